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
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.AckStatus;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.consumer.PopStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/**
 * Pop consumption, which clients of 5.x have: by push consumers whose queues the broker shares out, and by the calls
 * themselves. Apache delivers again some seconds after the invisible time: bounds are generous.
 */
final class PopSteps {
    private PopSteps() {
    }

    static void add(List<Step> steps) {
        steps.add(new Step("steady", "pop.push", PopSteps::push));
        steps.add(new Step("steady", "pop.ack", PopSteps::ack));
        steps.add(new Step("steady", "pop.again", PopSteps::again));
        steps.add(new Step("steady", "pop.change", PopSteps::change));
        steps.add(new Step("steady", "pop.hold", PopSteps::hold));
        steps.add(new Step("steady", "pop.order", PopSteps::order));
        for (String round : new String[] {"stop", "kill"}) {
            Round r = new Round(round);
            steps.add(new Step("before " + round, "pop.prepare", r::prepare));
            steps.add(new Step("after " + round, "pop.live", r::afterLive));
            steps.add(new Step("after " + round, "pop.flying", r::afterFlying));
        }
    }

    private static PopClient client(Env env, String name, int queues) throws Exception {
        String topic = env.topic(name, queues);
        env.admin().createAndUpdateSubscriptionGroupConfig(env.broker, Compat.group(env.group(name)));
        return new PopClient(env, topic, env.group(name));
    }

    /** A push consumer that pops: its group is switched to POP, and it leaves the sharing to the broker. */
    private static DefaultMQPushConsumer pushConsumer(Env env, PopClient p, String name) throws Exception {
        env.admin().setMessageRequestMode(env.broker, p.topic, p.group, MessageRequestMode.POP, 0, 10_000);
        DefaultMQPushConsumer c = env.newPush(name);
        c.setClientRebalance(false);
        c.setPopInvisibleTime(10_000);
        c.subscribe(p.topic, "*");
        return c;
    }

    /** What came, how often. */
    private static final class Got {
        final Map<String, Integer> times = new HashMap<>();

        synchronized int add(MessageExt m) {
            return times.merge(Env.text(m), 1, Integer::sum);
        }

        synchronized Set<String> texts() {
            return new HashSet<>(times.keySet());
        }

        synchronized int times(String text) {
            return times.getOrDefault(text, 0);
        }
    }

    /** Two consumers share a topic; a message that fails comes again, as of its own topic and counted. */
    private static String push(Env env) throws Exception {
        PopClient p = client(env, "poppush", 4);
        Got got = new Got();
        List<MessageExt> again = java.util.Collections.synchronizedList(new ArrayList<>());
        Set<String> popped = java.util.Collections.synchronizedSet(new HashSet<>());
        MessageListenerConcurrently listener = (ms, ctx) -> {
            MessageExt m = ms.get(0);
            if (PopClient.handle(m) != null) {
                popped.add(Env.text(m));
            }
            if (got.add(m) > 1) {
                again.add(m);
            }
            return Env.text(m).equals("m7") && m.getReconsumeTimes() == 0
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            DefaultMQPushConsumer c = pushConsumer(env, p, "poppush");
            c.setConsumeMessageBatchMaxSize(1);
            c.registerMessageListener(listener);
            c.start();
            consumers.add(c);
        }
        env.send(p.topic, "m", 0, 60, 4);
        Set<String> want = Env.numbered("m", 0, 60);
        await(40, () -> "60 messages come, lack " + PushSteps.minus(want, got.texts()), () -> got.texts().containsAll(want));
        await(50, "the failed message comes again", () -> got.times("m7") >= 2);
        equal("reconsume times", 1, again.get(0).getReconsumeTimes());
        equal("its topic", p.topic, again.get(0).getTopic());
        equal("messages that were popped", 60, popped.size());
        for (DefaultMQPushConsumer c : consumers) {
            c.shutdown();
        }
        return again.size() + " came again";
    }

    /** Acknowledged messages, one by one and together, do not come again; what is popped is nobody else's meanwhile. */
    private static String ack(Env env) throws Exception {
        PopClient p = client(env, "popack", 3);
        env.send(p.topic, "m", 0, 12, 3);
        env.awaitStored(p.topic, 3, 12);
        List<MessageExt> ms = p.popAll(12, 20, 60_000, false);
        equal("popped", Env.numbered("m", 0, 12), new HashSet<>(Env.texts(ms)));
        equal("popped while all are in flight", null, p.pop(p.header(32, 60_000, 1000)).getMsgFoundList());
        List<String> handles = new ArrayList<>();
        for (int i = 0; i < 12; i++) {
            if (i < 4) {
                equal("acknowledged", AckStatus.OK, p.ack(PopClient.handle(ms.get(i))).getStatus());
            } else {
                handles.add(PopClient.handle(ms.get(i)));
            }
        }
        equal("acknowledged together", AckStatus.OK, p.ackBatch(handles).getStatus());
        env.send(p.topic, "n", 0, 3, 3);
        equal("popped after", Env.numbered("n", 0, 3), new HashSet<>(Env.texts(p.popAll(3, 20, 60_000, false))));
        return "";
    }

    /** What is not acknowledged comes again, until it is; a handle of before counts no more. */
    private static String again(Env env) throws Exception {
        PopClient p = client(env, "popagain", 2);
        env.send(p.topic, "m", 0, 6, 2);
        env.awaitStored(p.topic, 2, 6);
        List<MessageExt> first = p.popAll(6, 20, 3000, false);
        for (MessageExt m : first) {
            if (!Env.text(m).equals("m2") && !Env.text(m).equals("m5")) {
                p.ack(PopClient.handle(m));
            }
        }
        long begin = System.nanoTime();
        List<MessageExt> second = p.popAll(2, 40, 60_000, false);
        long millis = (System.nanoTime() - begin) / 1_000_000;
        equal("came again", Set.of("m2", "m5"), new HashSet<>(Env.texts(second)));
        for (MessageExt m : second) {
            equal("reconsume times", 1, m.getReconsumeTimes());
            equal("topic", p.topic, m.getTopic());
            check(m.getProperty("1ST_POP_TIME") != null, "no 1ST_POP_TIME");
        }
        for (MessageExt m : first) {
            equal("acknowledged by an expired handle", AckStatus.OK, p.ack(PopClient.handle(m)).getStatus());
        }
        for (MessageExt m : second) {
            p.ack(PopClient.handle(m));
        }
        equal("popped after all", null, p.pop(p.header(32, 60_000, 1000)).getMsgFoundList());
        return "after " + millis + " ms";
    }

    /** A shorter invisible time brings a message back early, a longer one keeps it away; the new handle counts. */
    private static String change(Env env) throws Exception {
        PopClient p = client(env, "popchange", 1);
        env.send(p.topic, "m", 0, 2, 1);
        env.awaitStored(p.topic, 1, 2);
        List<MessageExt> ms = p.popAll(2, 20, 4000, false);
        MessageExt shorter = ms.get(0);
        String longer = p.change(PopClient.handle(ms.get(1)), 120_000).getExtraInfo();
        equal("changed", AckStatus.OK, p.change(PopClient.handle(shorter), 1000).getStatus());
        List<MessageExt> again = p.popAll(1, 40, 60_000, false);
        equal("came again", List.of(Env.text(shorter)), Env.texts(again));
        equal("popped while the other is away", null, p.pop(p.header(32, 60_000, 4000)).getMsgFoundList());
        equal("acknowledged by the new handle", AckStatus.OK, p.ack(longer).getStatus());
        p.ack(PopClient.handle(again.get(0)));
        return "";
    }

    /** A pop and a notification that wait are woken by a message; both end in time without one. */
    private static String hold(Env env) throws Exception {
        PopClient p = client(env, "pophold", 4);
        long begin = System.nanoTime();
        PopResult none = p.pop(p.header(32, 60_000, 1500));
        long millis = (System.nanoTime() - begin) / 1_000_000;
        equal("status of a pop without messages", PopStatus.POLLING_NOT_FOUND, none.getPopStatus());
        check(millis >= 1000, "a pop for 1.5 s ended after " + millis + " ms");
        check(!p.notified(1000), "notified of nothing");
        CompletableFuture<List<MessageExt>> waiting = CompletableFuture.supplyAsync(() -> {
            try {
                return p.pop(p.header(32, 60_000, 15_000)).getMsgFoundList();
            } catch (Exception e) {
                throw new AssertionError(e);
            }
        });
        await(10, "the pop is held", () -> p.polling() == 1);
        begin = System.nanoTime();
        env.producer().send(message(p.topic, "one"), env.queue(p.topic, 2));
        List<MessageExt> got = waiting.get(20, TimeUnit.SECONDS);
        millis = (System.nanoTime() - begin) / 1_000_000;
        equal("the held pop gets", List.of("one"), Env.texts(got));
        p.ack(PopClient.handle(got.get(0)));
        env.producer().send(message(p.topic, "two"), env.queue(p.topic, 1));
        await(20, "notified of a message", () -> p.notified(5000));
        p.ack(PopClient.handle(p.popAll(1, 20, 60_000, false).get(0)));
        return "woken after " + millis + " ms";
    }

    /** In order one batch of a queue is in flight; what is not acknowledged comes again before what follows. */
    private static String order(Env env) throws Exception {
        PopClient p = client(env, "poporder", 1);
        env.send(p.topic, "m", 0, 6, 1);
        env.awaitStored(p.topic, 1, 6);
        PopMessageRequestHeader h = p.header(3, 5000, 2000);
        h.setOrder(true);
        List<MessageExt> first = p.pop(h).getMsgFoundList();
        equal("first batch", List.of("m0", "m1", "m2"), Env.texts(first));
        h.setBornTime(System.currentTimeMillis());
        equal("a second batch meanwhile", null, p.pop(h).getMsgFoundList());
        p.ack(PopClient.handle(first.get(0)));
        List<MessageExt> second = new ArrayList<>();
        await(30, "the rest comes again", () -> {
            h.setBornTime(System.currentTimeMillis());
            List<MessageExt> found = p.pop(h).getMsgFoundList();
            if (found != null) {
                second.addAll(found);
            }
            return !second.isEmpty();
        });
        equal("second batch", List.of("m1", "m2", "m3"), Env.texts(second));
        equal("consumed before", List.of(1, 1, 0),
            List.of(second.get(0).getReconsumeTimes(), second.get(1).getReconsumeTimes(), second.get(2).getReconsumeTimes()));
        for (MessageExt m : second) {
            equal("acknowledged", AckStatus.OK, p.ack(PopClient.handle(m)).getStatus());
        }
        h.setBornTime(System.currentTimeMillis());
        equal("third batch", List.of("m4", "m5"), Env.texts(p.pop(h).getMsgFoundList()));
        return "";
    }

    /** What is popped, and who pops, through a restart of the broker. */
    private static final class Round {
        private final String round;
        private PopClient live;
        private DefaultMQPushConsumer consumer;
        private final Got got = new Got();
        private PopClient flying;
        private final Set<String> acked = new HashSet<>();

        Round(String round) {
            this.round = round;
        }

        String prepare(Env env) throws Exception {
            live = client(env, "poplive" + round, 4);
            consumer = pushConsumer(env, live, "poplive" + round);
            consumer.registerMessageListener((MessageListenerConcurrently) (ms, ctx) -> {
                ms.forEach(got::add);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            env.send(live.topic, "early", 0, 20, 4);
            await(40, () -> "20 come, have " + got.texts(), () -> got.texts().size() >= 20);

            flying = client(env, "popflying" + round, 2);
            env.send(flying.topic, "m", 0, 10, 2);
            env.awaitStored(flying.topic, 2, 10);
            for (MessageExt m : flying.popAll(10, 20, 20_000, false)) {
                if (m.getQueueOffset() % 2 == 0) {
                    acked.add(Env.text(m));
                    equal("acknowledged", AckStatus.OK, flying.ack(PopClient.handle(m)).getStatus());
                }
            }
            return "";
        }

        /** The consumer, untouched, gets all that is sent afterwards. */
        String afterLive(Env env) throws Exception {
            for (int i = 0; i < 20; i++) {
                int n = i;
                await(40, "message " + n + " is sent", () -> env.producer()
                    .send(message(live.topic, "later" + n), env.queue(live.topic, n % 4)) != null);
            }
            Set<String> want = Env.numbered("later", 0, 20);
            await(60, () -> "the popping consumer gets all that was sent after the restart, lacks "
                + PushSteps.minus(want, got.texts()), () -> got.texts().containsAll(want));
            consumer.shutdown();
            return "";
        }

        /** What was in flight comes again; what was acknowledged does not. */
        String afterFlying(Env env) throws Exception {
            Set<String> want = PushSteps.minus(Env.numbered("m", 0, 10), acked);
            List<MessageExt> again = flying.popAll(want.size(), 60, 60_000, false);
            equal("what was in flight comes again", want, new HashSet<>(Env.texts(again)));
            equal("each once", want.size(), again.size());
            for (MessageExt m : again) {
                equal("acknowledged", AckStatus.OK, flying.ack(PopClient.handle(m)).getStatus());
            }
            equal("popped after all", null, flying.pop(flying.header(32, 60_000, 2000)).getMsgFoundList());
            return "";
        }
    }
}
