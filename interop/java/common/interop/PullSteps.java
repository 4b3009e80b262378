package interop;

import static interop.Env.check;
import static interop.Env.equal;
import static interop.Env.message;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Pulling by offset: what each place in a queue answers, long polling, offsets by time, stored consumer offsets. */
final class PullSteps {
    private PullSteps() {
    }

    static void add(List<Step> steps) {
        steps.add(new Step("steady", "pull.range", PullSteps::range));
        steps.add(new Step("steady", "pull.limits", PullSteps::limits));
        steps.add(new Step("steady", "pull.empty", PullSteps::empty));
        steps.add(new Step("steady", "pull.time", PullSteps::time));
        steps.add(new Step("steady", "pull.tags", PullSteps::tags));
        steps.add(new Step("steady", "pull.hold", PullSteps::hold));
        steps.add(new Step("steady", "pull.holdends", PullSteps::holdEnds));
        steps.add(new Step("steady", "pull.commit", PullSteps::commit));
    }

    private static PullResult pull(Env env, MessageQueue q, long at, int n) throws Exception {
        return env.puller().pull(q, "*", at, n);
    }

    private static void expect(PullResult r, PullStatus status, long next, long min, long max, int messages) {
        equal("status", status, r.getPullStatus());
        equal("nextBeginOffset", next, r.getNextBeginOffset());
        equal("minOffset", min, r.getMinOffset());
        equal("maxOffset", max, r.getMaxOffset());
        equal("messages", messages, r.getMsgFoundList() == null ? 0 : r.getMsgFoundList().size());
    }

    private static String range(Env env) throws Exception {
        String topic = env.topic("range", 1);
        MessageQueue q = env.queue(topic, 0);
        env.send(topic, "m", 0, 20, 1);
        env.awaitStored(topic, 1, 20);
        equal("max", 20L, env.puller().maxOffset(q));
        equal("min", 0L, env.puller().minOffset(q));
        PullResult r = pull(env, q, 5, 7);
        expect(r, PullStatus.FOUND, 12, 0, 20, 7);
        for (int i = 0; i < 7; i++) {
            equal("offset", 5L + i, r.getMsgFoundList().get(i).getQueueOffset());
            equal("body", "m" + (5 + i), Env.text(r.getMsgFoundList().get(i)));
        }
        expect(pull(env, q, 19, 32), PullStatus.FOUND, 20, 0, 20, 1);
        expect(pull(env, q, 20, 32), PullStatus.NO_NEW_MSG, 20, 0, 20, 0);
        expect(pull(env, q, 21, 32), PullStatus.OFFSET_ILLEGAL, 20, 0, 20, 0);
        expect(pull(env, q, 1_000_000, 32), PullStatus.OFFSET_ILLEGAL, 20, 0, 20, 0);
        return "";
    }

    /** At most 32 messages and 256 KiB leave in one answer; a larger message leaves alone. */
    private static String limits(Env env) throws Exception {
        String topic = env.topic("limits", 2);
        env.send(topic, "m", 0, 80, 2);
        env.awaitStored(topic, 2, 80);
        expect(pull(env, env.queue(topic, 0), 0, 1000), PullStatus.FOUND, 32, 0, 40, 32);
        String big = env.topic("limitsbig", 1);
        MessageQueue q = env.queue(big, 0);
        for (int size : new int[] {100_000, 100_000, 100_000, 300_000, 1000}) {
            byte[] body = new byte[size]; // random, so that the client's compression gains nothing
            new Random(size).nextBytes(body);
            Message m = new Message(big, body);
            env.producer().send(m, q);
        }
        env.awaitStored(big, 1, 5);
        expect(pull(env, q, 0, 32), PullStatus.FOUND, 2, 0, 5, 2);
        expect(pull(env, q, 3, 32), PullStatus.FOUND, 4, 0, 5, 1);
        expect(pull(env, q, 4, 32), PullStatus.FOUND, 5, 0, 5, 1);
        return "";
    }

    private static String empty(Env env) throws Exception {
        String topic = env.topic("empty", 1);
        MessageQueue q = env.queue(topic, 0);
        equal("max", 0L, env.puller().maxOffset(q));
        equal("min", 0L, env.puller().minOffset(q));
        equal("search", 0L, env.puller().searchOffset(q, System.currentTimeMillis()));
        equal("earliest", -1L, env.puller().earliestMsgStoreTime(q));
        equal("status at 0", PullStatus.NO_NEW_MSG, pull(env, q, 0, 32).getPullStatus());
        PullResult r = pull(env, q, 9, 32);
        equal("status past the end", PullStatus.OFFSET_ILLEGAL, r.getPullStatus());
        equal("nextBeginOffset past the end", 0L, r.getNextBeginOffset());
        return "";
    }

    private static String time(Env env) throws Exception {
        String topic = env.topic("time", 1);
        MessageQueue q = env.queue(topic, 0);
        env.send(topic, "m", 0, 10, 1);
        Thread.sleep(300);
        long between = System.currentTimeMillis() - 100;
        env.send(topic, "m", 10, 20, 1);
        env.awaitStored(topic, 1, 20);
        List<MessageExt> all = env.drain(q);
        equal("between", 10L, env.puller().searchOffset(q, between));
        equal("before the first", 0L, env.puller().searchOffset(q, between - 3_600_000));
        equal("after the last", 20L, env.puller().searchOffset(q, System.currentTimeMillis() + 60_000));
        equal("at the first", 0L, env.puller().searchOffset(q, all.get(0).getStoreTimestamp()));
        long found = env.puller().searchOffset(q, all.get(15).getStoreTimestamp());
        check(found <= 15 && all.get((int) found).getStoreTimestamp() == all.get(15).getStoreTimestamp(),
            "search by the store time of 15 found " + found);
        equal("earliest", all.get(0).getStoreTimestamp(), env.puller().earliestMsgStoreTime(q));
        return "";
    }

    private static String tags(Env env) throws Exception {
        String topic = env.topic("pulltags", 1);
        MessageQueue q = env.queue(topic, 0);
        for (int i = 0; i < 12; i++) {
            env.producer().send(new Message(topic, i % 3 == 0 ? "A" : "B", ("m" + i).getBytes()), q);
        }
        env.producer().send(message(topic, "untagged"), q);
        env.awaitStored(topic, 1, 13);
        PullResult r = env.puller().pull(q, "A", 0, 32);
        equal("status", PullStatus.FOUND, r.getPullStatus());
        equal("bodies", List.of("m0", "m3", "m6", "m9"), Env.texts(r.getMsgFoundList()));
        check(r.getNextBeginOffset() >= 10, "nextBeginOffset " + r.getNextBeginOffset());
        r = env.puller().pull(q, "C", 0, 32);
        equal("status for a tag that is absent", PullStatus.NO_MATCHED_MSG, r.getPullStatus());
        equal("nextBeginOffset for a tag that is absent", 13L, r.getNextBeginOffset());
        equal("both tags", 12, env.puller().pull(q, "A || B", 0, 32).getMsgFoundList().size());
        return "";
    }

    /** A pull at the end waits and is answered as soon as a message arrives. */
    private static String hold(Env env) throws Exception {
        String topic = env.topic("hold", 1);
        MessageQueue q = env.queue(topic, 0);
        env.send(topic, "m", 0, 3, 1);
        env.awaitStored(topic, 1, 3);
        DefaultMQPullConsumer c = env.newPuller("hold");
        c.start();
        CompletableFuture<Long> done = new CompletableFuture<>();
        List<MessageExt> got = new ArrayList<>();
        Thread t = new Thread(() -> {
            try {
                PullResult r = c.pullBlockIfNotFound(q, "*", 3, 32);
                got.addAll(r.getMsgFoundList());
                done.complete(System.nanoTime());
            } catch (Throwable e) {
                done.completeExceptionally(e);
            }
        });
        t.start();
        Thread.sleep(800);
        check(!done.isDone(), "the pull did not wait");
        long sent = System.nanoTime();
        env.send(topic, "m", 3, 4, 1);
        long millis = (done.get(20, TimeUnit.SECONDS) - sent) / 1_000_000;
        equal("body", List.of("m3"), Env.texts(got));
        check(millis < 2000, "the held pull was answered " + millis + " ms after the send");
        c.shutdown();
        return millis + " ms after the send began";
    }

    /** Apache looks at held pulls every 5 s, so the end may be late by that much, but never early. */
    private static String holdEnds(Env env) throws Exception {
        String topic = env.topic("holdends", 1);
        MessageQueue q = env.queue(topic, 0);
        env.send(topic, "m", 0, 1, 1);
        env.awaitStored(topic, 1, 1);
        DefaultMQPullConsumer c = env.newPuller("holdends");
        c.setBrokerSuspendMaxTimeMillis(2000);
        c.start();
        long begin = System.nanoTime();
        PullResult r = c.pullBlockIfNotFound(q, "*", 1, 32);
        long millis = (System.nanoTime() - begin) / 1_000_000;
        c.shutdown();
        equal("status", PullStatus.NO_NEW_MSG, r.getPullStatus());
        check(millis >= 1900 && millis < 9000, "the hold of 2000 ms ended after " + millis + " ms");
        return millis + " ms";
    }

    private static String commit(Env env) throws Exception {
        String topic = env.topic("commit", 2);
        env.send(topic, "m", 0, 20, 2);
        env.awaitStored(topic, 2, 20);
        MessageQueue q = env.queue(topic, 1);
        DefaultMQPullConsumer c = env.newPuller("commit");
        c.start();
        c.pull(q, "*", 0, 1); // Apache knows a group from its first pull or heartbeat on
        c.getOffsetStore().updateConsumeOffsetToBroker(q, 7, false);
        equal("stored offset", 7L, c.fetchConsumeOffset(q, true));
        c.getOffsetStore().updateConsumeOffsetToBroker(q, 3, false);
        equal("stored offset, set back", 3L, c.fetchConsumeOffset(q, true));
        c.shutdown();
        DefaultMQPullConsumer d = env.newPuller("commit");
        d.start();
        equal("offset seen by the next consumer", 3L, d.fetchConsumeOffset(q, true));
        d.shutdown();
        return "";
    }
}
