package interop;

import static interop.Env.await;
import static interop.Env.check;
import static interop.Env.equal;
import static interop.Env.message;
import static interop.Env.refused;

import java.util.List;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Messages with a time of their own, by the properties that 5.x clients set. Apache delivers within the second that
 * follows the time, so the times of what must come in order lie 1.5 s apart.
 */
final class TimerSteps {
    private static final int MESSAGE_ILLEGAL = 13;
    private static final int ILLEGAL_OPERATION = 604;

    private TimerSteps() {
    }

    static void add(List<Step> steps) {
        steps.add(new Step("steady", "timer.delay", TimerSteps::delay));
        steps.add(new Step("steady", "timer.refused", TimerSteps::refusals));
        steps.add(new Step("steady", "timer.over", TimerSteps::over));
        if (Compat.RECALLS) {
            steps.add(new Step("steady", "timer.recall", TimerSteps::recall));
        }
    }

    static Message timed(String topic, String body, String property, long value) {
        Message m = message(topic, body);
        m.setTags("T");
        MessageAccessor.putProperty(m, property, String.valueOf(value));
        return m;
    }

    private static SendResult send(Env env, Message m) throws Exception {
        return env.producer().send(m, env.queue(m.getTopic(), 0));
    }

    /** Sent in the reverse order of their times, they come in the order of their times, none before its own. */
    private static String delay(Env env) throws Exception {
        String topic = env.topic("timer", 1);
        Sink s = new Sink(env.newPush("timer"), topic, "T").start();
        long now = System.currentTimeMillis();
        send(env, timed(topic, "at", "TIMER_DELIVER_MS", now + 6000));
        long third = System.currentTimeMillis();
        send(env, timed(topic, "seconds", "TIMER_DELAY_SEC", 4));
        long second = System.currentTimeMillis();
        send(env, timed(topic, "millis", "TIMER_DELAY_MS", 1500));
        await(40, () -> "three come, have " + s.texts(), () -> s.count() >= 3);
        s.consumer.shutdown();
        List<MessageExt> got = env.drain(env.queue(topic, 0));
        equal("order", List.of("millis", "seconds", "at"), Env.texts(got));
        long[] early = {
            got.get(0).getStoreTimestamp() - second - 1500,
            got.get(1).getStoreTimestamp() - third - 4000,
            got.get(2).getStoreTimestamp() - now - 6000,
        };
        for (int i = 0; i < 3; i++) {
            // The first is measured from before its send began, by another clock's milliseconds.
            check(early[i] >= -20 && early[i] < 12_000, "message " + i + " came " + early[i] + " ms after its time");
            check(got.get(i).getProperty("TIMER_OUT_MS") != null, "TIMER_OUT_MS of message " + i);
            equal("real topic", topic, got.get(i).getProperty("REAL_TOPIC"));
            equal("topic", topic, got.get(i).getTopic());
        }
        return early[0] + ", " + early[1] + ", " + early[2] + " ms after their times";
    }

    /** Beyond the longest delay, and no number; neither leaves anything behind. */
    private static String refusals(Env env) throws Exception {
        String topic = env.topic("timerbad", 1);
        long days = 24 * 3600;
        equal("400 days", MESSAGE_ILLEGAL, refused("400 days", () -> send(env, timed(topic, "x", "TIMER_DELAY_SEC", 400 * days))));
        equal("400 days in ms", MESSAGE_ILLEGAL,
            refused("400 days in ms", () -> send(env, timed(topic, "x", "TIMER_DELAY_MS", 400 * days * 1000))));
        equal("a far time", MESSAGE_ILLEGAL,
            refused("a far time", () -> send(env, timed(topic, "x", "TIMER_DELIVER_MS", Long.MAX_VALUE))));
        Message m = timed(topic, "x", "TIMER_DELAY_SEC", 1);
        MessageAccessor.putProperty(m, "TIMER_DELAY_SEC", "soon");
        equal("no number", MESSAGE_ILLEGAL, refused("no number", () -> send(env, m)));
        send(env, message(topic, "plain"));
        env.awaitStored(topic, 1, 1);
        return "";
    }

    /** A time that is over, and a level that wins over a time. */
    private static String over(Env env) throws Exception {
        String topic = env.topic("timerover", 1);
        send(env, timed(topic, "over", "TIMER_DELIVER_MS", System.currentTimeMillis() - 5000));
        send(env, timed(topic, "negative", "TIMER_DELAY_SEC", -5));
        env.awaitStored(topic, 1, 2);
        Message m = timed(topic, "level", "TIMER_DELAY_SEC", 3600);
        m.setDelayTimeLevel(2);
        send(env, m);
        await(30, "the level's message comes", () -> env.puller().maxOffset(env.queue(topic, 0)) == 3);
        List<MessageExt> got = env.drain(env.queue(topic, 0));
        equal("bodies", List.of("over", "negative", "level"), Env.texts(got));
        equal("the level's time", null, got.get(2).getProperty("TIMER_DELAY_SEC"));
        return "";
    }

    /** A handle takes its message back, and no other. */
    private static String recall(Env env) throws Exception {
        String topic = env.topic("timerback", 1);
        equal("handle of a plain message", null, Compat.recallHandle(send(env, message(topic, "plain"))));
        SendResult r = send(env, timed(topic, "back", "TIMER_DELAY_SEC", 6));
        String handle = Compat.recallHandle(r);
        check(handle != null, "no recall handle in " + r);
        send(env, timed(topic, "stays", "TIMER_DELAY_SEC", 6));
        SendResult soon = send(env, timed(topic, "soon", "TIMER_DELAY_MS", 1000));
        equal("recalled", r.getMsgId(), Compat.recall(env.producer(), topic, handle));
        String other = env.topic("timerother", 1);
        equal("another topic", ILLEGAL_OPERATION, refused("another topic", () -> Compat.recall(env.producer(), other, handle)));
        await(30, "what stays comes", () -> env.puller().maxOffset(env.queue(topic, 0)) >= 3);
        Thread.sleep(2000);
        equal("bodies", List.of("plain", "soon", "stays"), Env.texts(env.drain(env.queue(topic, 0))));
        equal("too late", ILLEGAL_OPERATION,
            refused("too late", () -> Compat.recall(env.producer(), topic, Compat.recallHandle(soon))));
        return "";
    }
}
