package interop;

import static interop.Env.await;
import static interop.Env.check;
import static interop.Env.equal;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The lite pull consumer, with queues shared by subscription and with queues assigned by hand. */
final class LiteSteps {
    private LiteSteps() {
    }

    static void add(List<Step> steps) {
        steps.add(new Step("steady", "lite.subscribe", LiteSteps::subscribe));
        steps.add(new Step("steady", "lite.assign", LiteSteps::assign));
    }

    private static List<MessageExt> poll(DefaultLitePullConsumer c, int n) throws Exception {
        List<MessageExt> got = new ArrayList<>();
        await(20, () -> n + " messages polled, have " + got.size(), () -> {
            got.addAll(c.poll(200));
            return got.size() >= n;
        });
        return got;
    }

    private static String subscribe(Env env) throws Exception {
        String topic = env.topic("lite", 4);
        env.send(topic, "m", 0, 40, 4);
        env.awaitStored(topic, 4, 40);
        DefaultLitePullConsumer c = env.newLite("lite");
        c.setAutoCommit(false);
        c.subscribe(topic, "*");
        c.start();
        equal("first bodies", Env.numbered("m", 0, 40), new HashSet<>(Env.texts(poll(c, 40))));
        equal("assigned queues", 4, c.assignment().size());
        c.commitSync();
        await(10, "all offsets are committed", () -> {
            long sum = 0;
            for (int q = 0; q < 4; q++) {
                sum += Math.max(0, c.committed(env.queue(topic, q)));
            }
            return sum == 40;
        });
        c.shutdown();
        env.send(topic, "m", 40, 48, 4);
        DefaultLitePullConsumer d = env.newLite("lite");
        d.subscribe(topic, "*");
        d.start();
        equal("bodies of the next consumer", Env.numbered("m", 40, 48), new HashSet<>(Env.texts(poll(d, 8))));
        equal("more messages", 0, d.poll(500).size());
        d.shutdown();
        return "";
    }

    private static String assign(Env env) throws Exception {
        String topic = env.topic("liteassign", 3);
        env.send(topic, "m", 0, 30, 3);
        env.awaitStored(topic, 3, 30);
        DefaultLitePullConsumer c = env.newLite("liteassign");
        c.setAutoCommit(false);
        c.start();
        equal("queues of the topic", 3, c.fetchMessageQueues(topic).size());
        MessageQueue q1 = env.queue(topic, 1);
        MessageQueue q2 = env.queue(topic, 2);
        c.assign(Arrays.asList(q1, q2));
        c.seek(q1, 5);
        c.seek(q2, 10);
        List<MessageExt> got = poll(c, 5);
        equal("from offset 5", List.of("m16", "m19", "m22", "m25", "m28"), Env.texts(got));
        c.seekToBegin(q2);
        equal("from the beginning", numbersFrom(2, 10), new HashSet<>(Env.texts(poll(c, 10))));
        equal("offset of an old time", 0L, c.offsetForTimestamp(q1, 1000L));
        c.seekToEnd(q1);
        c.seekToEnd(q2);
        env.send(topic, "n", 0, 3, 3);
        got = poll(c, 2);
        equal("after the end", Set.of("n1", "n2"), new HashSet<>(Env.texts(got)));
        c.shutdown();
        check(got.stream().allMatch(m -> m.getQueueId() != 0), "a message of a queue that was not assigned");
        return "";
    }

    private static Set<String> numbersFrom(int first, int n) {
        Set<String> r = new HashSet<>();
        for (int i = 0; i < n; i++) {
            r.add("m" + (first + 3 * i));
        }
        return r;
    }
}
