package interop;

import static interop.Env.await;
import static interop.Env.check;
import static interop.Env.equal;
import static interop.Env.message;
import static interop.Env.refused;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Subscriptions by SQL92: push, pull and lite pull consumers, expressions that are none, restarts. */
final class FilterSteps {
    private static final String EXPRESSION = "a BETWEEN 0 AND 3 AND color IN ('red','blue')";
    private static final String BAD = "a > 1 AND b == 2";

    private final String round;
    private String topic;
    private Sink live;

    private FilterSteps(String round) {
        this.round = round;
    }

    static void add(List<Step> steps) {
        steps.add(new Step("steady", "filter.push", FilterSteps::push));
        steps.add(new Step("steady", "filter.pull", FilterSteps::pull));
        steps.add(new Step("steady", "filter.lite", FilterSteps::lite));
        steps.add(new Step("steady", "filter.change", FilterSteps::change));
        steps.add(new Step("steady", "filter.bad", FilterSteps::bad));
        for (String round : new String[] {"stop", "kill"}) {
            FilterSteps r = new FilterSteps(round);
            steps.add(new Step("before " + round, "filter", r::prepare));
            steps.add(new Step("after " + round, "filter", r::after));
        }
    }

    /** Message i has a = i % 10 and every third color; each fifth has none of both. */
    private static Message numbered(String topic, String word, int i) {
        Message m = message(topic, word + i);
        if (i % 5 != 4) {
            m.putUserProperty("a", String.valueOf(i % 10));
            m.putUserProperty("color", List.of("red", "blue", "green").get(i % 3));
        }
        return m;
    }

    private static Set<String> matching(String word, int from, int to) {
        Set<String> r = new HashSet<>();
        for (int i = from; i < to; i++) {
            if (i % 5 != 4 && i % 10 <= 3 && i % 3 != 2) {
                r.add(word + i);
            }
        }
        return r;
    }

    private static void send(Env env, String topic, String word, int from, int to, int queues) throws Exception {
        for (int i = from; i < to; i++) {
            equal("send status", SendStatus.SEND_OK,
                env.producer().send(numbered(topic, word, i), env.queue(topic, i % queues)).getSendStatus());
        }
    }

    private static Sink sink(DefaultMQPushConsumer c, String topic, String expression) throws Exception {
        Sink s = new Sink(c, topic, "*");
        c.subscribe(topic, MessageSelector.bySql(expression));
        return s;
    }

    private static String push(Env env) throws Exception {
        String topic = env.topic("sqlpush", 4);
        Sink some = sink(env.newPush("sqlpush"), topic, EXPRESSION).start();
        Sink none = sink(env.newPush("sqlnone"), topic, "a IS NULL AND TAGS IS NULL AND NOT (color = 'red')").start();
        Sink lacking = sink(env.newPush("sqlnull"), topic, "color IS NULL").start();
        send(env, topic, "m", 0, 100, 4);
        Set<String> want = matching("m", 0, 100);
        await(45, () -> want.size() + " and 20 come, have " + some.count() + " and " + lacking.count(),
            () -> some.count() >= want.size() && lacking.count() >= 20);
        Thread.sleep(500);
        equal("messages", want, new HashSet<>(some.texts()));
        equal("number of messages", want.size(), some.count());
        equal("messages without color", 20, lacking.count());
        equal("messages of a filter that is NULL", 0, none.count());
        long begin = System.nanoTime();
        send(env, topic, "n", 0, 1, 4); // wakes a held pull
        await(10, "the next message comes", () -> some.texts().contains("n0"));
        long millis = (System.nanoTime() - begin) / 1_000_000;
        for (Sink s : List.of(some, none, lacking)) {
            s.consumer.shutdown();
        }
        return want.size() + " messages, one more after " + millis + " ms";
    }

    /** Before its first heartbeat a client does not know the broker's version, and pulls by no expression. */
    private static PullResult firstPull(DefaultMQPullConsumer c, MessageQueue q, String expression) throws Exception {
        PullResult[] r = new PullResult[1];
        await(45, "the client knows the broker", () -> (r[0] = c.pull(q, MessageSelector.bySql(expression), 0, 32)) != null);
        return r[0];
    }

    private static String pull(Env env) throws Exception {
        String topic = env.topic("sqlpull", 1);
        MessageQueue q = env.queue(topic, 0);
        send(env, topic, "m", 0, 30, 1);
        env.awaitStored(topic, 1, 30);
        DefaultMQPullConsumer c = env.newPuller("sqlpull");
        c.start();
        PullResult r = firstPull(c, q, EXPRESSION);
        equal("status", PullStatus.FOUND, r.getPullStatus());
        equal("messages", matching("m", 0, 30), new HashSet<>(Env.texts(r.getMsgFoundList())));
        equal("nextBeginOffset", 30L, r.getNextBeginOffset());
        r = c.pull(q, MessageSelector.bySql("a > 100"), 5, 32);
        equal("status where nothing matches", PullStatus.NO_MATCHED_MSG, r.getPullStatus());
        equal("nextBeginOffset where nothing matches", 30L, r.getNextBeginOffset());
        r = c.pull(q, MessageSelector.byTag("*"), 0, 32);
        equal("messages by tag", 30, r.getMsgFoundList().size());
        c.shutdown();
        return "";
    }

    private static String lite(Env env) throws Exception {
        String topic = env.topic("sqllite", 2);
        send(env, topic, "m", 0, 40, 2);
        env.awaitStored(topic, 2, 40);
        DefaultLitePullConsumer c = env.newLite("sqllite");
        c.subscribe(topic, MessageSelector.bySql("color = 'green' AND a <> 2"));
        c.start();
        Set<String> want = new HashSet<>();
        for (int i = 0; i < 40; i++) {
            if (i % 5 != 4 && i % 3 == 2 && i % 10 != 2) {
                want.add("m" + i);
            }
        }
        List<MessageExt> got = new ArrayList<>();
        await(30, () -> want.size() + " messages polled, have " + got.size(), () -> {
            got.addAll(c.poll(200));
            return got.size() >= want.size();
        });
        got.addAll(c.poll(500));
        c.shutdown();
        equal("messages", want, new HashSet<>(Env.texts(got)));
        equal("number of messages", want.size(), got.size());
        return "";
    }

    /** A running consumer subscribes otherwise. What it had under way by the old expression may still come. */
    private static String change(Env env) throws Exception {
        String topic = env.topic("sqlchange", 1);
        Sink s = sink(env.newPush("sqlchange"), topic, "a = 1").start();
        send(env, topic, "m", 0, 3, 1);
        await(45, "the first message comes", () -> s.texts().contains("m1"));
        s.consumer.subscribe(topic, MessageSelector.bySql("a = 2"));
        int[] n = {10};
        await(45, "messages by the new expression come", () -> {
            send(env, topic, "m", n[0], n[0] + 3, 1);
            n[0] += 10;
            Thread.sleep(500);
            return s.texts().stream().anyMatch(t -> t.length() > 2 && t.endsWith("2"));
        });
        s.clear();
        send(env, topic, "m", 1000, 1010, 1);
        await(20, "a message by the new expression comes", () -> s.texts().contains("m1002"));
        Thread.sleep(300);
        s.consumer.shutdown();
        check(s.texts().stream().allMatch(t -> t.endsWith("2")), "other messages than by the new expression: " + s.texts());
        return n[0] / 10 - 1 + " rounds";
    }

    private static String bad(Env env) throws Exception {
        String topic = env.topic("sqlbad", 1);
        MessageQueue q = env.queue(topic, 0);
        send(env, topic, "m", 0, 3, 1);
        env.awaitStored(topic, 1, 3);
        StringBuilder detail = new StringBuilder();
        for (String bad : new String[] {BAD, "a between 10 and 0", "a > 'x'", "(a = 1"}) {
            DefaultMQPushConsumer c = sink(env.newPush("sqlbad"), topic, bad).consumer;
            equal("start with " + bad, 23, refused("start with " + bad, c::start));
            c.shutdown();
        }
        DefaultMQPullConsumer c = env.newPuller("sqlbadpull");
        c.start();
        equal("messages by a good expression", List.of("m0"), Env.texts(firstPull(c, q, "a = 0").getMsgFoundList()));
        try { // Apache passes every message where the pull itself carries an expression that is none
            PullResult r = c.pull(q, MessageSelector.bySql(BAD), 0, 32);
            equal("messages by a bad expression", 3, r.getMsgFoundList().size());
            detail.append("a pull gets everything");
        } catch (MQBrokerException e) {
            equal("code of a pull", 23, e.getResponseCode());
            check(e.getErrorMessage().contains("at character 14"), "where it is wrong: " + e.getErrorMessage());
            detail.append("a pull gets ").append(e.getErrorMessage());
        }
        PullResult after = c.pull(q, MessageSelector.bySql("a = 1"), 0, 32);
        equal("messages after the refusal", List.of("m1"), Env.texts(after.getMsgFoundList()));
        c.shutdown();
        return detail.toString();
    }

    private String prepare(Env env) throws Exception {
        topic = env.topic("resql" + round, 2);
        live = sink(env.newPush("resql" + round), topic, EXPRESSION).start();
        send(env, topic, "early", 0, 20, 2);
        Set<String> want = matching("early", 0, 20);
        await(45, () -> want + " come, have " + live.texts(), () -> live.texts().containsAll(want));
        return "";
    }

    /** The consumer lived through the restart: it goes on by its expression, and gets nothing else. */
    private String after(Env env) throws Exception {
        for (int i = 0; i < 20; i++) {
            int n = i;
            await(40, "message " + n + " is sent", () -> env.producer()
                .send(numbered(topic, "late", n), env.queue(topic, n % 2)).getSendStatus() == SendStatus.SEND_OK);
        }
        long begin = System.nanoTime();
        Set<String> want = matching("late", 0, 20);
        await(45, () -> want + " come, have " + live.texts(), () -> live.texts().containsAll(want));
        Thread.sleep(300);
        live.consumer.shutdown();
        want.addAll(matching("early", 0, 20));
        equal("messages", want, new HashSet<>(live.texts()));
        return "after " + (System.nanoTime() - begin) / 1_000_000 + " ms";
    }
}
