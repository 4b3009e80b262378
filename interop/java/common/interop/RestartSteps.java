package interop;

import static interop.Env.await;
import static interop.Env.check;
import static interop.Env.equal;
import static interop.Env.message;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * What must outlive the broker's process. For each round, "before ROUND" prepares, the Go side stops and starts the
 * broker (round "stop": gracefully; round "kill": kill -9), "after ROUND" looks. Clients of "before" live through it.
 */
final class RestartSteps {
    private final String round;
    private String topic;
    private Sink live;
    private String liveTopic;
    private SendResult keyed;
    private List<MessageExt> stored;
    private long delayedAt;
    private String delayTopic;
    private Sink delayed;

    private RestartSteps(String round) {
        this.round = round;
    }

    static void add(List<Step> steps) {
        for (String round : new String[] {"stop", "kill"}) {
            RestartSteps r = new RestartSteps(round);
            steps.add(new Step("before " + round, "prepare", r::prepare));
            steps.add(new Step("after " + round, "live", r::afterLive));
            steps.add(new Step("after " + round, "messages", r::afterMessages));
            steps.add(new Step("after " + round, "offsets", r::afterOffsets));
            steps.add(new Step("after " + round, "query", r::afterQuery));
            steps.add(new Step("after " + round, "topics", r::afterTopics));
            steps.add(new Step("after " + round, "delay", r::afterDelay));
            steps.add(new Step("after " + round, "timer", r::afterTimer));
        }
    }

    private String prepare(Env env) throws Exception {
        topic = env.topic("re" + round, 5);
        env.send(topic, "m", 0, 50, 5);
        keyed = env.producer().send(new Message(topic, "T", "key" + round, "keyed".getBytes()), env.queue(topic, 0));
        env.awaitStored(topic, 5, 51);
        stored = env.drain(topic, 5);

        Sink a = new Sink(env.newPush("re" + round), topic, "*").start();
        await(30, () -> "51 come, have " + a.count(), () -> a.count() >= 51);
        a.settle(env, topic, 5, 51);
        DefaultMQPullConsumer c = env.newPuller("reb" + round);
        c.start();
        c.pull(env.queue(topic, 3), "*", 0, 1);
        c.getOffsetStore().updateConsumeOffsetToBroker(env.queue(topic, 3), 6, false);
        c.shutdown();

        liveTopic = env.topic("relive" + round, 4);
        live = new Sink(env.newPush("relive" + round), liveTopic, "*").start();
        env.send(liveTopic, "early", 0, 20, 4);
        await(30, () -> "20 come, have " + live.count(), () -> live.count() >= 20);

        delayTopic = env.topic("redelay" + round, 1);
        delayed = new Sink(env.newPush("redelay" + round), delayTopic, "*").start();
        env.send(delayTopic, "plain", 0, 1, 1);
        await(30, "the plain message comes", () -> delayed.count() == 1);
        Message m = message(delayTopic, "late");
        m.setDelayTimeLevel(18); // 15 s in the suite's broker files
        delayedAt = System.currentTimeMillis();
        env.producer().send(m);
        // Due after the restart, in due order and not as they were sent; the first one while the broker is down.
        for (int seconds : new int[] {20, 17, 5}) {
            env.producer().send(TimerSteps.timed(delayTopic, "timed" + seconds, "TIMER_DELIVER_MS", delayedAt + seconds * 1000L));
        }
        if (Compat.RECALLS) {
            SendResult back = env.producer().send(TimerSteps.timed(delayTopic, "recalled", "TIMER_DELAY_SEC", 15));
            Compat.recall(env.producer(), delayTopic, Compat.recallHandle(back));
        }
        Thread.sleep(1000);
        return "";
    }

    /** Producer and consumer, untouched, find the broker again. */
    private String afterLive(Env env) throws Exception {
        for (int i = 0; i < 20; i++) {
            int n = i;
            await(40, "message " + n + " is sent", () -> env.producer()
                .send(message(liveTopic, "later" + n), env.queue(liveTopic, n % 4)).getSendStatus() == SendStatus.SEND_OK);
        }
        Set<String> want = Env.numbered("later", 0, 20);
        long begin = System.nanoTime();
        await(45, () -> "the live consumer gets all that was sent after the restart, lacks "
            + PushSteps.minus(want, new HashSet<>(live.texts())), () -> live.texts().containsAll(want));
        live.consumer.shutdown();
        Map<String, Integer> times = new HashMap<>();
        live.texts().forEach(s -> times.merge(s, 1, Integer::sum));
        return "after " + (System.nanoTime() - begin) / 1_000_000 + " ms, " + (live.count() - 40) + " doubled";
    }

    private String afterMessages(Env env) throws Exception {
        List<MessageExt> now = env.drain(topic, 5);
        equal("number of messages", stored.size(), now.size());
        for (int i = 0; i < now.size(); i++) {
            MessageExt want = stored.get(i);
            MessageExt got = now.get(i);
            equal("body", Env.text(want), Env.text(got));
            equal("queue", want.getQueueId(), got.getQueueId());
            equal("queue offset", want.getQueueOffset(), got.getQueueOffset());
            equal("place in the log", want.getCommitLogOffset(), got.getCommitLogOffset());
            equal("store time", want.getStoreTimestamp(), got.getStoreTimestamp());
            equal("properties", want.getProperties().get("UNIQ_KEY"), got.getProperties().get("UNIQ_KEY"));
        }
        List<SendResult> r = env.send(topic, "n", 0, 5, 5);
        for (int q = 0; q < 5; q++) {
            equal("next offset of queue " + q, q == 0 ? 11L : 10L, r.get(q).getQueueOffset());
        }
        return "";
    }

    private String afterOffsets(Env env) throws Exception {
        DefaultMQPullConsumer c = env.newPuller("reb" + round);
        c.start();
        equal("committed offset", 6L, c.fetchConsumeOffset(env.queue(topic, 3), true));
        c.shutdown();
        Sink b = new Sink(env.newPush("re" + round), topic, "*").start();
        await(30, () -> "5 come, have " + b.count(), () -> b.count() >= 5);
        Thread.sleep(500);
        b.consumer.shutdown();
        equal("only what is new", Env.numbered("n", 0, 5), new HashSet<>(b.texts()));
        return "";
    }

    private String afterQuery(Env env) throws Exception {
        equal("by offset id", "keyed", Env.text(env.admin().viewMessage(topic, keyed.getOffsetMsgId())));
        await(20, "found by key", () -> QuerySteps.query(env, topic, "key" + round).size() == 1);
        MessageExt[] byId = new MessageExt[1];
        await(20, "found by unique id", () -> (byId[0] = env.admin().viewMessage(topic, keyed.getMsgId())) != null);
        equal("by unique id", "keyed", Env.text(byId[0]));
        return "";
    }

    private String afterTopics(Env env) throws Exception {
        var d = env.admin().examineTopicRouteInfo(topic).getQueueDatas();
        equal("brokers of the topic", 1, d.size());
        equal("read queues", 5, d.get(0).getReadQueueNums());
        equal("write queues", 5, d.get(0).getWriteQueueNums());
        return "";
    }

    /** Level 18 is 15 s: the message was stored before the restart and is delivered after it, not before its time. */
    private String afterDelay(Env env) throws Exception {
        await(45, "the delayed message comes", () -> delayed.texts().contains("late"));
        long millis = -1;
        for (MessageExt m : delayed.messages()) {
            if (Env.text(m).equals("late")) {
                millis = m.getStoreTimestamp() - delayedAt;
            }
        }
        check(millis >= 14_900, "delivered after " + millis + " ms");
        return millis + " ms";
    }

    /**
     * Each timer is there once, none before its time, in due order; what was recalled isn't. Apache cuts a timer's time
     * to the second when it stores it, which shows where another broker delivers it.
     */
    private String afterTimer(Env env) throws Exception {
        await(45, () -> "the timers come, have " + delayed.texts(), () -> delayed.texts().containsAll(List.of("timed5", "timed17", "timed20")));
        delayed.consumer.shutdown();
        StringBuilder late = new StringBuilder();
        List<String> order = new ArrayList<>();
        for (MessageExt m : env.drain(env.queue(delayTopic, 0))) {
            String text = Env.text(m);
            if (text.startsWith("timed")) {
                order.add(text);
                long millis = m.getStoreTimestamp() - delayedAt - 1000 * Integer.parseInt(text.substring("timed".length()));
                check(millis >= -1_020, text + " came " + -millis + " ms before its time");
                late.append(text).append(" +").append(millis).append(" ms ");
            }
            check(!text.equals("recalled"), "what was recalled came");
        }
        equal("timers", List.of("timed5", "timed17", "timed20"), order);
        return late.toString();
    }
}
