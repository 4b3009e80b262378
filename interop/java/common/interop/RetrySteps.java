package interop;

import static interop.Env.await;
import static interop.Env.check;
import static interop.Env.equal;
import static interop.Env.message;

import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** RECONSUME_LATER, the dead-letter queue and delay levels. The brokers run with short levels: 1s 2s 1s 1s 1s ... */
final class RetrySteps {
    private RetrySteps() {
    }

    static void add(List<Step> steps) {
        steps.add(new Step("steady", "retry.later", RetrySteps::later));
        steps.add(new Step("steady", "retry.dlq", RetrySteps::dlq));
        steps.add(new Step("steady", "retry.straight", RetrySteps::straight));
        steps.add(new Step("steady", "retry.level", RetrySteps::level));
        steps.add(new Step("steady", "delay.level", RetrySteps::delay));
    }

    /** Waits for n messages in the dead-letter queue of the group and returns them. */
    static List<MessageExt> awaitDead(Env env, String group, int n) throws Exception {
        String topic = "%DLQ%" + group;
        await(40, topic + " has " + n, () -> env.puller().maxOffset(env.queue(topic, 0)) >= n);
        List<MessageExt> dead = env.drain(env.queue(topic, 0));
        equal("messages in " + topic, n, dead.size());
        return dead;
    }

    /** One delivery, and when it came. */
    private static final class Delivery {
        final MessageExt message;
        final long nanos = System.nanoTime();

        Delivery(MessageExt m) {
            message = m;
        }
    }

    /**
     * The %RETRY% topic is made at the group's first heartbeat, too late for that consumer's first look at routes: it
     * would consume retries after its next rebalance, 20 s on. So a forerunner lets the group be known.
     */
    private static void introduce(Env env, String group, String topic) throws Exception {
        Sink s = new Sink(env.newPush(group), topic, "*").start();
        await(20, "%RETRY% topic of " + group + " has a route",
            () -> env.admin().examineTopicRouteInfo("%RETRY%" + env.group(group)).getQueueDatas().size() == 1);
        s.consumer.shutdown();
    }

    private static List<Delivery> consume(DefaultMQPushConsumer c, String topic, int failures, int delayLevel) throws Exception {
        List<Delivery> got = java.util.Collections.synchronizedList(new ArrayList<>());
        c.setConsumeMessageBatchMaxSize(1);
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (ms, ctx) -> {
            got.add(new Delivery(ms.get(0)));
            ctx.setDelayLevelWhenNextConsume(delayLevel);
            return ms.get(0).getReconsumeTimes() < failures
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        return got;
    }

    private static SendResult sendOne(Env env, String topic) throws Exception {
        Message m = new Message(topic, "tagR", "keyR", "again".getBytes());
        m.putUserProperty("mine", "kept");
        return env.producer().send(m);
    }

    private static void expectSame(Env env, String topic, SendResult sent, MessageExt m) {
        equal("body", "again", Env.text(m));
        equal("topic", topic, m.getTopic());
        equal("tags", "tagR", m.getTags());
        equal("keys", "keyR", m.getKeys());
        equal("property", "kept", m.getUserProperty("mine"));
        equal("message id", sent.getMsgId(), m.getMsgId());
    }

    private static String later(Env env) throws Exception {
        String topic = env.topic("later", 2);
        introduce(env, "later", topic);
        DefaultMQPushConsumer c = env.newPush("later");
        List<Delivery> got = consume(c, topic, 2, 0);
        SendResult sent = sendOne(env, topic);
        await(40, () -> "three deliveries, have " + got.size(), () -> got.size() >= 3);
        Thread.sleep(500);
        c.shutdown();
        equal("deliveries", 3, got.size());
        for (int i = 0; i < 3; i++) {
            MessageExt m = got.get(i).message;
            equal("reconsume times", i, m.getReconsumeTimes());
            expectSame(env, topic, sent, m);
            if (i > 0) {
                equal("origin", sent.getOffsetMsgId(), m.getProperty("ORIGIN_MESSAGE_ID"));
                long millis = (got.get(i).nanos - got.get(i - 1).nanos) / 1_000_000;
                check(millis >= 900, "delivery " + i + " came after " + millis + " ms, before its delay of 1 s");
            }
        }
        return "";
    }

    private static String dlq(Env env) throws Exception {
        String topic = env.topic("dlq", 2);
        introduce(env, "dlq", topic);
        DefaultMQPushConsumer c = env.newPush("dlq");
        c.setMaxReconsumeTimes(2);
        List<Delivery> got = consume(c, topic, Integer.MAX_VALUE, 0);
        SendResult sent = sendOne(env, topic);
        List<MessageExt> dead = awaitDead(env, env.group("dlq"), 1);
        c.shutdown();
        equal("deliveries", 3, got.size());
        MessageExt m = dead.get(0);
        expectSame(env, "%DLQ%" + env.group("dlq"), sent, m);
        equal("reconsume times", 3, m.getReconsumeTimes());
        equal("original topic", topic, m.getProperty("RETRY_TOPIC"));
        equal("origin", sent.getOffsetMsgId(), m.getProperty("ORIGIN_MESSAGE_ID"));
        await(20, "the dead message is found by its key", () -> env.admin()
            .queryMessage("%DLQ%" + env.group("dlq"), "keyR", 8, 0, Long.MAX_VALUE).getMessageList().size() == 1);
        return "";
    }

    /** A negative delay level sends to the dead-letter queue at the first failure. */
    private static String straight(Env env) throws Exception {
        String topic = env.topic("straight", 1);
        DefaultMQPushConsumer c = env.newPush("straight");
        List<Delivery> got = consume(c, topic, Integer.MAX_VALUE, -1);
        SendResult sent = sendOne(env, topic);
        List<MessageExt> dead = awaitDead(env, env.group("straight"), 1);
        c.shutdown();
        equal("deliveries", 1, got.size());
        expectSame(env, "%DLQ%" + env.group("straight"), sent, dead.get(0));
        return "";
    }

    /** The listener chooses the delay: level 2 is 2 s. */
    private static String level(Env env) throws Exception {
        String topic = env.topic("level", 1);
        introduce(env, "level", topic);
        DefaultMQPushConsumer c = env.newPush("level");
        List<Delivery> got = consume(c, topic, 1, 2);
        sendOne(env, topic);
        await(40, () -> "two deliveries, have " + got.size(), () -> got.size() >= 2);
        c.shutdown();
        long millis = (got.get(1).nanos - got.get(0).nanos) / 1_000_000;
        check(millis >= 1900, "level 2 came after " + millis + " ms");
        return millis + " ms";
    }

    private static String delay(Env env) throws Exception {
        String topic = env.topic("delay", 2);
        Sink s = new Sink(env.newPush("delay"), topic, "*").start();
        env.send(topic, "plain", 0, 1, 1);
        await(30, "the plain message comes", () -> s.count() == 1);
        long begin = System.nanoTime();
        for (int i = 0; i < 10; i++) {
            Message m = message(topic, "late" + i);
            m.setDelayTimeLevel(2);
            m.setTags("T");
            env.producer().send(m, env.queue(topic, 1));
        }
        await(30, () -> "11 messages, have " + s.count(), () -> s.count() >= 11);
        long millis = (System.nanoTime() - begin) / 1_000_000;
        check(millis >= 1900 && millis < 12_000, "level 2 took " + millis + " ms");
        s.consumer.shutdown();
        List<MessageExt> got = env.drain(env.queue(topic, 1));
        equal("messages", 10, got.size());
        for (int i = 0; i < 10; i++) {
            equal("body", "late" + i, Env.text(got.get(i)));
            equal("tags", "T", got.get(i).getTags());
            equal("real topic", topic, got.get(i).getProperty("REAL_TOPIC"));
            equal("delay", "2", got.get(i).getProperty("DELAY"));
        }
        equal("by tag", 10, env.puller().pull(env.queue(topic, 1), "T", 0, 32).getMsgFoundList().size());
        return "all after " + millis + " ms";
    }
}
