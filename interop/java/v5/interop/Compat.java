package interop;

import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;

/** What the 4.9 and 5.3 client libraries spell differently: this is 5.3's spelling. */
final class Compat {
    /** Says whether request() without a callback waits for the answer: its request() ends when the question has been sent, answered or not. */
    static final boolean REQUEST_WAITS = false;

    /** Whether consumers unwrap inner batches. */
    static final boolean UNWRAPS = true;

    private Compat() {
    }

    /** Creates a topic whose queues are batch queues. */
    static void createBatchTopic(Env env, String topic, int queues) throws Exception {
        TopicConfig c = new TopicConfig(topic, queues, queues, 6);
        c.setAttributes(Map.of("+queue.type", "BatchCQ"));
        env.admin().createAndUpdateTopicConfig(env.broker, c);
    }

    /** Makes a request to the broker that must succeed. */
    static RemotingCommand ask(Env env, RemotingCommand request) throws Exception {
        RemotingCommand answer = env.producer().getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl()
            .getRemotingClient().invokeSync(env.broker, request, 10_000);
        Env.equal("code of " + answer.getRemark(), 0, answer.getCode());
        return answer;
    }

    static void broadcasting(DefaultMQPushConsumer c) {
        c.setMessageModel(MessageModel.BROADCASTING);
    }

    static void createTopic(DefaultMQProducer p, String key, String topic, int queues) throws Exception {
        p.createTopic(key, topic, queues, Map.of());
    }

    static SubscriptionGroupConfig group(String name) {
        SubscriptionGroupConfig c = new SubscriptionGroupConfig();
        c.setGroupName(name);
        return c;
    }

    /** Steps that only this version has. */
    static void add(List<Step> steps) {
        PopSteps.add(steps);
    }

    // ---- taking back delayed messages

    static final boolean RECALLS = true;

    static String recallHandle(SendResult r) {
        return r.getRecallHandle();
    }

    static String recall(DefaultMQProducer p, String topic, String handle) throws Exception {
        return p.recallMessage(topic, handle);
    }
}
