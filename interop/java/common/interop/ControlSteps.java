package interop;

import static interop.Env.await;
import static interop.Env.check;
import static interop.Env.equal;

import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageQueue;

/** What an operator does to consumers: offsets reset, skipped and cloned, clients listed and asked for their state. */
final class ControlSteps {
    /** By round, the consumers of groups that were reset before a restart. */
    private static final Map<String, Sink> RESET = new ConcurrentHashMap<>();

    private ControlSteps() {
    }

    static void add(List<Step> steps) {
        steps.add(new Step("steady", "reset.online", ControlSteps::resetOnline));
        steps.add(new Step("steady", "reset.offline", ControlSteps::resetOffline));
        steps.add(new Step("steady", "reset.clone", ControlSteps::cloneOffsets));
        steps.add(new Step("steady", "control.lists", ControlSteps::lists));
        steps.add(new Step("steady", "control.stats", ControlSteps::stats));
        steps.add(new Step("steady", "control.client", ControlSteps::client));
        for (String round : new String[] {"stop", "kill"}) { // before RestartSteps, whose steps leave the time to be saved
            steps.add(new Step("before " + round, "reset.prepare", env -> prepareReset(env, round)));
            steps.add(new Step("after " + round, "reset.begin", env -> beginReset(env, round)));
        }
    }

    /** Steps that come last: clients that were reset take their time. */
    static void addLast(List<Step> steps) {
        for (String round : new String[] {"stop", "kill"}) {
            steps.add(new Step("after " + round, "reset", env -> afterReset(env, round)));
        }
    }

    /** The tools find a group's brokers by the route of its retry topic. */
    private static void awaitGroup(Env env, String group) throws Exception {
        await(20, "%RETRY% topic of " + group + " has a route",
            () -> env.admin().examineTopicRouteInfo("%RETRY%" + env.group(group)).getQueueDatas().size() == 1);
    }

    private static long committed(Env env, String group, MessageQueue q) throws Exception {
        var all = env.admin().examineConsumeStats(env.group(group), q.getTopic()).getOffsetTable();
        return all.containsKey(q) ? all.get(q).getConsumerOffset() : -1;
    }

    private static void awaitCommitted(Env env, String group, String topic, int queues, long n) throws Exception {
        long[] sum = new long[1];
        await(30, () -> "offsets of " + group + " add up to " + n + ", not " + sum[0], () -> {
            sum[0] = 0;
            for (int q = 0; q < queues; q++) {
                sum[0] += committed(env, group, env.queue(topic, q));
            }
            return sum[0] == n;
        });
    }

    /** A consumer at work goes back to the beginning. */
    private static String resetOnline(Env env) throws Exception {
        String topic = env.topic("reset", 2);
        env.send(topic, "m", 0, 20, 2);
        Sink s = new Sink(env.newPush("reset"), topic, "*").start();
        await(30, () -> "20 messages, have " + s.count(), () -> s.count() == 20);
        awaitGroup(env, "reset");
        awaitCommitted(env, "reset", topic, 2, 20);
        s.clear();
        long begin = System.nanoTime();
        var offsets = env.admin().resetOffsetByTimestamp(topic, env.group("reset"), 0, true);
        equal("offsets after the reset", Map.of(env.queue(topic, 0), 0L, env.queue(topic, 1), 0L), offsets);
        Set<String> want = Env.numbered("m", 0, 20);
        await(50, () -> "all 20 again, have " + s.count(), () -> new HashSet<>(s.texts()).equals(want));
        long millis = (System.nanoTime() - begin) / 1_000_000;
        awaitCommitted(env, "reset", topic, 2, 20);
        s.consumer.shutdown();
        return "after " + millis + " ms";
    }

    /** A group without consumers goes back to a time in one topic and skips a backlog in another; its next consumer begins there. */
    private static String resetOffline(Env env) throws Exception {
        String topic = env.topic("resetoff", 2);
        String skipped = env.topic("skip", 1);
        env.send(topic, "old", 0, 10, 2);
        Sink a = new Sink(env.newPush("resetoff"), topic, "*");
        a.consumer.subscribe(skipped, "*");
        a.start();
        await(30, () -> "10 messages, have " + a.count(), () -> a.count() == 10);
        Thread.sleep(50);
        long middle = System.currentTimeMillis();
        Thread.sleep(50);
        env.send(topic, "new", 0, 10, 2);
        await(30, () -> "20 messages, have " + a.count(), () -> a.count() == 20);
        awaitGroup(env, "resetoff");
        awaitCommitted(env, "resetoff", topic, 2, 20);
        a.consumer.shutdown();
        env.send(skipped, "backlog", 0, 10, 1);
        env.awaitStored(skipped, 1, 10);
        String group = env.group("resetoff");
        equal("offsets after the reset", Map.of(env.queue(topic, 0), 5L, env.queue(topic, 1), 5L),
            env.admin().resetOffsetByTimestamp(topic, group, middle, true));
        equal("offset of queue 0", 5L, committed(env, "resetoff", env.queue(topic, 0)));
        equal("offsets after the skip", Map.of(env.queue(skipped, 0), 10L), env.admin().resetOffsetByTimestamp(skipped, group, -1, true));
        Sink b = new Sink(env.newPush("resetoff"), topic, "*");
        b.consumer.subscribe(skipped, "*");
        b.start();
        env.send(skipped, "fresh", 0, 5, 1);
        Set<String> want = Env.numbered("new", 0, 10);
        want.addAll(Env.numbered("fresh", 0, 5));
        await(50, () -> "the new and the fresh ones, have " + b.texts(), () -> b.texts().containsAll(want));
        b.consumer.shutdown();
        equal("only the new and the fresh ones", want, new HashSet<>(b.texts()));
        return "";
    }

    /** A group begins where another is. */
    private static String cloneOffsets(Env env) throws Exception {
        String topic = env.topic("clone", 2);
        env.send(topic, "m", 0, 6, 2);
        Sink a = new Sink(env.newPush("clonesrc"), topic, "*").start();
        await(30, () -> "6 messages, have " + a.count(), () -> a.count() == 6);
        awaitGroup(env, "clonesrc");
        awaitCommitted(env, "clonesrc", topic, 2, 6);
        Sink b = new Sink(env.newPush("clonedest"), env.topic("clone2", 1), "*").start();
        awaitGroup(env, "clonedest");
        b.consumer.shutdown();
        env.admin().cloneGroupOffset(env.group("clonesrc"), env.group("clonedest"), topic, false);
        equal("cloned offset", 3L, committed(env, "clonedest", env.queue(topic, 0)));
        equal("cloned offset", 3L, committed(env, "clonedest", env.queue(topic, 1)));
        a.consumer.shutdown();
        return "";
    }

    private static String lists(Env env) throws Exception {
        String topic = env.topic("lists", 1);
        Sink s = new Sink(env.newPush("lists"), topic, "a || b").start();
        awaitGroup(env, "lists");
        env.send(topic, "m", 0, 1, 1);
        await(20, "the consumer is listed", () -> {
            try {
                return env.admin().examineConsumerConnectionInfo(env.group("lists")).getConnectionSet().size() == 1;
            } catch (MQBrokerException e) {
                equal("code while nobody is online", 206, e.getResponseCode());
                return false;
            }
        });
        var c = env.admin().examineConsumerConnectionInfo(env.group("lists"));
        equal("client id", s.consumer.buildMQClientId(), c.getConnectionSet().iterator().next().getClientId());
        equal("language", "JAVA", c.getConnectionSet().iterator().next().getLanguage().name());
        equal("expression", "a || b", c.getSubscriptionTable().get(topic).getSubString());
        equal("model", "CLUSTERING", c.getMessageModel().name());
        equal("type", "CONSUME_PASSIVELY", c.getConsumeType().name());
        await(20, "the group is among the topic's",
            () -> env.admin().queryTopicConsumeByWho(topic).getGroupList().contains(env.group("lists")));
        await(20, "the producer is listed", () -> {
            try {
                return env.admin().examineProducerConnectionInfo(env.producer().getProducerGroup(), topic).getConnectionSet().size() == 1;
            } catch (MQBrokerException e) {
                return false; // not before its first heartbeat
            }
        });
        s.consumer.shutdown();
        return "";
    }

    private static String stats(Env env) throws Exception {
        String topic = env.topic("stats", 2);
        env.send(topic, "m", 0, 6, 2);
        Sink s = new Sink(env.newPush("stats"), topic, "*").start();
        await(30, () -> "6 messages, have " + s.count(), () -> s.count() == 6);
        awaitGroup(env, "stats");
        awaitCommitted(env, "stats", topic, 2, 6);
        s.consumer.shutdown();
        env.send(topic, "late", 0, 2, 2);
        await(20, "a lag of 2", () -> env.admin().examineConsumeStats(env.group("stats"), topic).computeTotalDiff() == 2);
        var w = env.admin().examineConsumeStats(env.group("stats")).getOffsetTable().get(env.queue(topic, 1));
        equal("broker offset", 4L, w.getBrokerOffset());
        equal("consumer offset", 3L, w.getConsumerOffset());
        check(Math.abs(System.currentTimeMillis() - w.getLastTimestamp()) < 120_000, "time of the message consumed last: " + w.getLastTimestamp());
        var spans = env.admin().queryConsumeTimeSpan(topic, env.group("stats"));
        equal("time spans", 2, spans.size());
        for (var span : spans) {
            check(span.getMinTimeStamp() > 0 && span.getMaxTimeStamp() >= span.getConsumeTimeStamp()
                && span.getConsumeTimeStamp() >= span.getMinTimeStamp() && span.getDelayTime() > 0, "time span " + span.getMinTimeStamp()
                + " " + span.getConsumeTimeStamp() + " " + span.getMaxTimeStamp() + " " + span.getDelayTime());
        }
        var all = env.admin().fetchConsumeStatsInBroker(env.broker, false, 10_000);
        check(all.getTotalDiff() >= 2, "the broker's total lag is " + all.getTotalDiff());
        check(all.getConsumeStatsList().stream().anyMatch(m -> m.containsKey(env.group("stats"))), "the broker's stats lack the group");
        return "";
    }

    /** Running info with stacks, offsets as the client has them, and a message consumed on demand. */
    private static String client(Env env) throws Exception {
        String topic = env.topic("direct", 1);
        Sink s = new Sink(env.newPush("direct"), topic, "*").start();
        awaitGroup(env, "direct");
        SendResult sent = env.send(topic, "m", 0, 1, 1).get(0);
        await(30, "the message comes", () -> s.count() == 1);
        await(20, "it counts as consumed", () -> s.consumer.getDefaultMQPushConsumerImpl().getOffsetStore()
            .readOffset(env.queue(topic, 0), ReadOffsetType.READ_FROM_MEMORY) == 1);
        String id = s.consumer.buildMQClientId();
        var info = env.admin().getConsumerRunningInfo(env.group("direct"), id, true);
        check(info.getJstack() != null && info.getJstack().contains("TID: "), "no stacks");
        check(info.getMqTable().containsKey(env.queue(topic, 0)), "queues: " + info.getMqTable().keySet());
        equal("type", "CONSUME_PASSIVELY", info.getProperties().getProperty("PROP_CONSUME_TYPE"));
        check(info.getSubscriptionSet().stream().anyMatch(d -> d.getTopic().equals(topic)), "subscriptions");
        var status = env.admin().getConsumeStatus(topic, env.group("direct"), "");
        equal("offsets as the client has them", Map.of(env.queue(topic, 0), 1L), status.get(id));
        var done = env.admin().consumeMessageDirectly(env.group("direct"), id, topic, sent.getOffsetMsgId());
        equal("consumed on demand", "CR_SUCCESS", done.getConsumeResult().name());
        equal("deliveries", List.of("m0", "m0"), s.texts());
        s.consumer.shutdown();
        return "stacks of " + info.getJstack().length() + " characters";
    }

    /** A reset that no consumer has been told when the broker goes. */
    private static String prepareReset(Env env, String round) throws Exception {
        String group = "rereset" + round;
        String topic = env.topic(group, 2);
        env.send(topic, "m", 0, 10, 2);
        Sink a = new Sink(env.newPush(group), topic, "*").start();
        await(30, () -> "10 messages, have " + a.count(), () -> a.count() == 10);
        awaitGroup(env, group);
        awaitCommitted(env, group, topic, 2, 10);
        a.consumer.shutdown();
        equal("offsets after the reset", Map.of(env.queue(topic, 0), 0L, env.queue(topic, 1), 0L),
            env.admin().resetOffsetByTimestamp(topic, env.group(group), 0, true));
        return "";
    }

    private static String beginReset(Env env, String round) throws Exception {
        String group = "rereset" + round;
        RESET.put(round, new Sink(env.newPush(group), env.topicName(group), "*").start());
        return "";
    }

    private static String afterReset(Env env, String round) throws Exception {
        Sink b = RESET.get(round);
        Set<String> want = Env.numbered("m", 0, 10);
        await(50, () -> "all 10 again, have " + b.texts(), () -> new HashSet<>(b.texts()).equals(want));
        b.consumer.shutdown();
        return "";
    }
}
