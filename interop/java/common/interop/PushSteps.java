package interop;

import static interop.Env.await;
import static interop.Env.check;
import static interop.Env.equal;

import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** Push consumers: sharing, leaving, broadcasting, tags, offsets kept for the next instance. */
final class PushSteps {
    private PushSteps() {
    }

    static void add(List<Step> steps) {
        steps.add(new Step("steady", "push.cluster", PushSteps::cluster));
        steps.add(new Step("steady", "push.broadcast", PushSteps::broadcast));
        steps.add(new Step("steady", "push.tags", PushSteps::tags));
        steps.add(new Step("steady", "push.prompt", PushSteps::prompt));
        steps.add(new Step("steady", "push.groups", PushSteps::groups));
        steps.add(new Step("steady", "push.newgroup", PushSteps::newGroup));
        steps.add(new Step("steady", "push.offsets", PushSteps::offsets));
    }

    /** Two instances share 8 queues, one leaves while messages flow, the other takes its queues, and none is lost. */
    private static String cluster(Env env) throws Exception {
        String topic = env.topic("cluster", 8);
        Sink a = new Sink(env.newPush("cluster"), topic, "*").start();
        Sink b = new Sink(env.newPush("cluster"), topic, "*").start();
        int[] sent = {0};
        // Sooner than the 20 s of the client's own period: the broker tells members of each coming and going.
        await(12, () -> "two instances share the queues, have " + a.queues() + " and " + b.queues(), () -> {
            a.clear();
            b.clear();
            env.send(topic, "w", sent[0], sent[0] + 16, 8);
            sent[0] += 16;
            Thread.sleep(300);
            return a.queues().size() == 4 && b.queues().size() == 4;
        });
        // Count only what is sent from here on.
        Set<String> want = Env.numbered("m", 0, 400);
        for (int i = 0; i < 400; i += 20) {
            env.send(topic, "m", i, i + 20, 8);
            if (i == 200) {
                b.consumer.shutdown();
            }
        }
        Set<String> got = new HashSet<>();
        await(12, () -> "every message is consumed, missing " + minus(want, got), () -> {
            got.addAll(a.texts());
            got.addAll(b.texts());
            return got.containsAll(want);
        });
        int doubled = 0;
        Set<String> seen = new HashSet<>();
        List<String> all = a.texts();
        all.addAll(b.texts());
        for (String s : all) {
            doubled += s.startsWith("m") && !seen.add(s) ? 1 : 0;
        }
        await(30, "the one that stays has all queues", () -> {
            a.clear();
            env.send(topic, "e", 0, 8, 8);
            Thread.sleep(300);
            return a.queues().size() == 8;
        });
        a.consumer.shutdown();
        return doubled + " of 400 came twice";
    }

    static Set<String> minus(Set<String> a, Set<String> b) {
        Set<String> r = new HashSet<>(a);
        r.removeAll(b);
        return r;
    }

    private static String broadcast(Env env) throws Exception {
        String topic = env.topic("broadcast", 4);
        DefaultMQPushConsumer c1 = env.newPush("broadcast");
        Compat.broadcasting(c1);
        DefaultMQPushConsumer c2 = env.newPush("broadcast");
        Compat.broadcasting(c2);
        Sink a = new Sink(c1, topic, "*").start();
        Sink b = new Sink(c2, topic, "*").start();
        env.send(topic, "m", 0, 40, 4);
        Set<String> want = Env.numbered("m", 0, 40);
        await(30, () -> "both have all 40, have " + a.count() + " and " + b.count(),
            () -> a.texts().containsAll(want) && b.texts().containsAll(want));
        equal("messages of the first", 40, a.count());
        equal("messages of the second", 40, b.count());
        c1.shutdown();
        c2.shutdown();
        return "";
    }

    /** "Aa" and "BB" have one hash code, so that the tag itself must have been compared somewhere. */
    private static String tags(Env env) throws Exception {
        String topic = env.topic("tags", 2);
        Sink ab = new Sink(env.newPush("tagsab"), topic, "A || B").start();
        Sink aa = new Sink(env.newPush("tagsaa"), topic, "Aa").start();
        String[] tags = {"A", "B", "C", "Aa", "BB", ""};
        for (int i = 0; i < 60; i++) {
            env.producer().send(new Message(topic, tags[i % 6], (tags[i % 6] + ":" + i).getBytes()), env.queue(topic, i % 2));
        }
        await(30, () -> "20 and 10 messages, have " + ab.count() + " and " + aa.count(),
            () -> ab.count() >= 20 && aa.count() >= 10);
        Thread.sleep(300);
        equal("messages for A || B", 20, ab.count());
        equal("messages for Aa", 10, aa.count());
        check(ab.messages().stream().allMatch(m -> m.getTags().equals("A") || m.getTags().equals("B")), "a wrong tag came");
        check(aa.messages().stream().allMatch(m -> m.getTags().equals("Aa")), "a wrong tag came");
        ab.consumer.shutdown();
        aa.consumer.shutdown();
        return "";
    }

    /** A message for an idle consumer wakes its held pull. */
    private static String prompt(Env env) throws Exception {
        String topic = env.topic("prompt", 1);
        Sink s = new Sink(env.newPush("prompt"), topic, "*").start();
        env.send(topic, "warm", 0, 1, 1);
        await(30, "the first message arrives", () -> s.count() == 1);
        long worst = 0;
        for (int i = 0; i < 5; i++) {
            Thread.sleep(400);
            long begin = System.nanoTime();
            env.send(topic, "m", i, i + 1, 1);
            int n = i + 2;
            await(10, "message " + i + " arrives", () -> s.count() == n);
            worst = Math.max(worst, (System.nanoTime() - begin) / 1_000_000);
        }
        s.consumer.shutdown();
        check(worst < 2000, "a message took " + worst + " ms");
        return "worst " + worst + " ms";
    }

    /** Groups do not share progress, and two consumers of different topics in different groups do not mix. */
    private static String groups(Env env) throws Exception {
        String topic = env.topic("groups", 2);
        env.send(topic, "m", 0, 20, 2);
        Sink a = new Sink(env.newPush("groupsa"), topic, "*").start();
        Sink b = new Sink(env.newPush("groupsb"), topic, "*").start();
        await(30, () -> "both groups have all 20, have " + a.count() + " and " + b.count(),
            () -> a.count() >= 20 && b.count() >= 20);
        equal("messages of the first group", Env.numbered("m", 0, 20), new HashSet<>(a.texts()));
        equal("messages of the second group", Env.numbered("m", 0, 20), new HashSet<>(b.texts()));
        a.consumer.shutdown();
        b.consumer.shutdown();
        return "";
    }

    /** A new group on a young queue starts at its first message, even from LAST: message 0 is still in memory. */
    private static String newGroup(Env env) throws Exception {
        String topic = env.topic("newgroup", 2);
        env.send(topic, "m", 0, 10, 2);
        env.awaitStored(topic, 2, 10);
        DefaultMQPushConsumer c = env.newPush("newgroup");
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        Sink s = new Sink(c, topic, "*").start();
        await(30, () -> "all 10 come, have " + s.count(), () -> s.count() >= 10);
        equal("bodies", Env.numbered("m", 0, 10), new HashSet<>(s.texts()));
        c.shutdown();
        return "";
    }

    /** The next instance of a group goes on where the last stopped. */
    private static String offsets(Env env) throws Exception {
        String topic = env.topic("offsets", 4);
        env.send(topic, "m", 0, 40, 4);
        Sink a = new Sink(env.newPush("offsets"), topic, "*").start();
        await(30, () -> "40 come, have " + a.count(), () -> a.count() >= 40);
        a.settle(env, topic, 4, 40);
        env.send(topic, "n", 0, 20, 4);
        Sink b = new Sink(env.newPush("offsets"), topic, "*").start();
        await(30, () -> "20 come, have " + b.count(), () -> b.count() >= 20);
        Thread.sleep(500);
        equal("messages of the next instance", Env.numbered("n", 0, 20), new HashSet<>(b.texts()));
        equal("number of messages of the next instance", 20, b.count());
        b.consumer.shutdown();
        return "";
    }
}
