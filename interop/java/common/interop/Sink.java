package interop;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.store.OffsetStore;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.common.message.MessageExt;

/** A push consumer that accepts everything and remembers what came. */
final class Sink {
    final DefaultMQPushConsumer consumer;
    private final List<MessageExt> got = new ArrayList<>();

    Sink(DefaultMQPushConsumer c, String topic, String tags) throws Exception {
        consumer = c;
        c.subscribe(topic, tags);
        c.registerMessageListener((MessageListenerConcurrently) (ms, ctx) -> {
            synchronized (got) {
                got.addAll(ms);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
    }

    Sink start() throws Exception {
        consumer.start();
        return this;
    }

    /**
     * Ends the consumer when its own table of offsets has all n messages: a listener that has returned is not yet one
     * whose message counts as consumed.
     */
    void settle(Env env, String topic, int queues, long n) throws Exception {
        OffsetStore offsets = consumer.getDefaultMQPushConsumerImpl().getOffsetStore();
        Env.await(10, "the consumer's offsets add up to " + n, () -> {
            long sum = 0;
            for (int q = 0; q < queues; q++) {
                sum += Math.max(0, offsets.readOffset(env.queue(topic, q), ReadOffsetType.READ_FROM_MEMORY));
            }
            return sum == n;
        });
        consumer.shutdown();
    }

    List<MessageExt> messages() {
        synchronized (got) {
            return new ArrayList<>(got);
        }
    }

    List<String> texts() {
        return Env.texts(messages());
    }

    Set<Integer> queues() {
        Set<Integer> r = new HashSet<>();
        for (MessageExt m : messages()) {
            r.add(m.getQueueId());
        }
        return r;
    }

    int count() {
        synchronized (got) {
            return got.size();
        }
    }

    void clear() {
        synchronized (got) {
            got.clear();
        }
    }
}
