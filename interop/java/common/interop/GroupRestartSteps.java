package interop;

import static interop.Env.await;
import static interop.Env.check;
import static interop.Env.equal;
import static interop.Env.message;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * What of groups must outlive the broker's process, as RestartSteps: two orderly consumers that hold locks go on in
 * order, a message that waits for its retry comes, and administrators find groups as they left them.
 */
final class GroupRestartSteps {
    private static final int SHARDS = 6;
    private final String round;
    private final Map<Integer, AtomicInteger> inside = new ConcurrentHashMap<>();
    private final Map<String, List<Integer>> shards = new ConcurrentHashMap<>();
    private final OrderSteps.Log a = new OrderSteps.Log(shards, inside);
    private final OrderSteps.Log b = new OrderSteps.Log(shards, inside);
    private final List<DefaultMQPushConsumer> orderly = new ArrayList<>();
    private String orderTopic;
    private DefaultMQPushConsumer failing;
    private final List<MessageExt> failed = Collections.synchronizedList(new ArrayList<>());
    private long failedAt;

    private GroupRestartSteps(String round) {
        this.round = round;
    }

    static void add(List<Step> steps) {
        for (String round : new String[] {"stop", "kill"}) {
            GroupRestartSteps r = new GroupRestartSteps(round);
            steps.add(new Step("before " + round, "groups", r::prepare));
            steps.add(new Step("after " + round, "order", r::afterOrder));
            steps.add(new Step("after " + round, "retry", r::afterRetry));
            steps.add(new Step("after " + round, "groups", r::afterGroups));
        }
    }

    private String prepare(Env env) throws Exception {
        var c = Compat.group(env.group("recfg" + round));
        c.setRetryMaxTimes(7);
        env.admin().createAndUpdateSubscriptionGroupConfig(env.broker, c);

        String retryTopic = env.topic("refail" + round, 1);
        failing = env.newPush("refail" + round);
        failing.subscribe(retryTopic, "*");
        failing.registerMessageListener((MessageListenerConcurrently) (ms, ctx) -> {
            failed.addAll(ms);
            failedAt = failedAt == 0 ? System.currentTimeMillis() : failedAt;
            ctx.setDelayLevelWhenNextConsume(18); // 15 s in the suite's broker files
            return ms.get(0).getReconsumeTimes() == 0 ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        failing.start();

        orderTopic = env.topic("reorder" + round, 4);
        for (OrderSteps.Log log : List.of(a, b)) {
            DefaultMQPushConsumer o = env.newPush("reorder" + round);
            o.subscribe(orderTopic, "*");
            o.registerMessageListener(log);
            o.start();
            orderly.add(o);
        }
        int[] sent = {0};
        // Not before both hold queues, and so locks.
        await(50, () -> "both consume, have " + a.count + " and " + b.count, () -> {
            send(env, sent[0]++);
            Thread.sleep(300);
            return a.count.get() > 0 && b.count.get() > 0 && a.count.get() + b.count.get() >= SHARDS * sent[0];
        });
        next = sent[0];
        env.producer().send(message(retryTopic, "again"));
        await(30, () -> "the message fails, came " + failed.size() + " times", () -> failed.size() == 1);
        Thread.sleep(1000); // it is on its way back to the broker
        return a.count + " and " + b.count;
    }

    private int next; // number of the next message of each shard

    private void send(Env env, int i) throws Exception {
        for (int shard = 0; shard < SHARDS; shard++) {
            equal("send status", SendStatus.SEND_OK,
                env.producer().send(message(orderTopic, "s" + shard + ":" + i), env.queue(orderTopic, shard % 4)).getSendStatus());
        }
    }

    private String afterOrder(Env env) throws Exception {
        await(40, "the broker takes messages", () -> env.producer()
            .send(message(env.topicName("refail" + round), "plain")).getSendStatus() == SendStatus.SEND_OK);
        int from = next;
        int n = from + 20;
        for (; next < n; next++) {
            send(env, next);
            Thread.sleep(100);
        }
        await(60, () -> "all come, have " + shards, () -> {
            for (int shard = 0; shard < SHARDS; shard++) {
                if (!shards.getOrDefault("s" + shard, List.of()).contains(n - 1)) {
                    return false;
                }
            }
            return true;
        });
        for (DefaultMQPushConsumer o : orderly) {
            o.shutdown();
        }
        int repeated = 0;
        for (List<Integer> all : shards.values()) {
            Set<Integer> seen = new HashSet<>();
            int last = -1;
            for (int i : all) {
                if (seen.add(i)) {
                    check(i == last + 1, i + " came after " + last + " in " + all);
                    last = i;
                } else {
                    repeated++;
                }
            }
            equal("last", n - 1, last);
        }
        return repeated + " repeated, queues handled twice at a time: " + (a.overlaps.get() + b.overlaps.get());
    }

    /** Sent back before the restart, delivered after it, not before its time. */
    private String afterRetry(Env env) throws Exception {
        MessageExt[] came = new MessageExt[1];
        await(45, () -> "the failed message comes again, have " + Env.texts(failed), () -> {
            for (MessageExt m : new ArrayList<>(failed)) {
                came[0] = m.getReconsumeTimes() == 1 && Env.text(m).equals("again") ? m : came[0];
            }
            return came[0] != null;
        });
        failing.shutdown();
        long millis = came[0].getStoreTimestamp() - failedAt;
        check(millis >= 14_500, "again after " + millis + " ms");
        equal("topic", env.topicName("refail" + round), came[0].getTopic());
        return millis + " ms";
    }

    private String afterGroups(Env env) throws Exception {
        equal("retryMaxTimes", 7, env.admin().examineSubscriptionGroupConfig(env.broker, env.group("recfg" + round)).getRetryMaxTimes());
        return "";
    }
}
