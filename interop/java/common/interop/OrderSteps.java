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
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;

/** Ordered consumption: queue locks, order kept through sharing, leaving and suspension, and the poisoned message. */
final class OrderSteps {
    private OrderSteps() {
    }

    static void add(List<Step> steps) {
        steps.add(new Step("steady", "order.share", OrderSteps::share));
        steps.add(new Step("steady", "order.suspend", OrderSteps::suspend));
        steps.add(new Step("steady", "order.poison", OrderSteps::poison));
    }

    /**
     * What came for each shard at both instances, in order of arrival; and whether a queue was ever handled twice at a
     * time. A shard is in one queue, and a queue is handled by one thread at a time, so that its list needs no lock.
     */
    static final class Log implements MessageListenerOrderly {
        final Map<String, List<Integer>> shards;
        final Map<Integer, AtomicInteger> inside;
        final AtomicInteger overlaps = new AtomicInteger();
        final AtomicInteger count = new AtomicInteger();

        Log(Map<String, List<Integer>> shards, Map<Integer, AtomicInteger> inside) {
            this.shards = shards;
            this.inside = inside;
        }

        @Override
        public ConsumeOrderlyStatus consumeMessage(List<MessageExt> ms, org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyContext ctx) {
            AtomicInteger in = inside.computeIfAbsent(ms.get(0).getQueueId(), k -> new AtomicInteger());
            if (in.incrementAndGet() != 1) {
                overlaps.incrementAndGet();
            }
            for (MessageExt m : ms) {
                String[] p = Env.text(m).split(":");
                shards.computeIfAbsent(p[0], k -> java.util.Collections.synchronizedList(new ArrayList<>())).add(Integer.parseInt(p[1]));
                count.incrementAndGet();
            }
            in.decrementAndGet();
            return ConsumeOrderlyStatus.SUCCESS;
        }
    }

    private static String share(Env env) throws Exception {
        String topic = env.topic("order", 4);
        Map<Integer, AtomicInteger> inside = new ConcurrentHashMap<>();
        Map<String, List<Integer>> shards = new ConcurrentHashMap<>();
        Log la = new Log(shards, inside);
        Log lb = new Log(shards, inside);
        DefaultMQPushConsumer a = env.newPush("order");
        a.subscribe(topic, "*");
        a.registerMessageListener(la);
        DefaultMQPushConsumer b = env.newPush("order");
        b.subscribe(topic, "*");
        b.registerMessageListener(lb);
        a.start();
        b.start();
        DefaultMQProducer p = env.newProducer("order");
        p.start();
        int n = 60;
        for (int i = 0; i < n; i++) {
            for (int shard = 0; shard < 6; shard++) {
                p.send(message(topic, "s" + shard + ":" + i), (qs, m, arg) -> qs.get((Integer) arg % qs.size()), shard);
            }
            if (i == n / 2) {
                await(40, () -> "both consume, have " + la.count + " and " + lb.count,
                    () -> la.count.get() > 0 && lb.count.get() > 0 && la.count.get() + lb.count.get() >= 6 * (n / 2 + 1));
                b.shutdown();
            }
        }
        p.shutdown();
        await(40, () -> "all " + 6 * n + " come, have " + la.count + " and " + lb.count,
            () -> la.count.get() + lb.count.get() >= 6 * n);
        a.shutdown();
        equal("queues handled twice at a time", 0, la.overlaps.get() + lb.overlaps.get());
        for (int shard = 0; shard < 6; shard++) {
            List<Integer> all = shards.getOrDefault("s" + shard, List.of());
            Set<Integer> seen = new HashSet<>();
            int last = -1;
            for (int i : all) {
                if (seen.add(i)) {
                    check(i == last + 1, "shard " + shard + ": " + i + " came after " + last + " in " + all);
                    last = i;
                }
            }
            equal("last of shard " + shard, n - 1, last);
        }
        return la.count + " and " + lb.count;
    }

    /** A suspended queue delivers the same message again before any later one, and other queues go on. */
    private static String suspend(Env env) throws Exception {
        String topic = env.topic("suspend", 2);
        List<String> q0 = new ArrayList<>();
        List<String> q1 = new ArrayList<>();
        DefaultMQPushConsumer c = env.newPush("suspend");
        c.setConsumeMessageBatchMaxSize(1);
        c.setSuspendCurrentQueueTimeMillis(300);
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerOrderly) (ms, ctx) -> {
            String text = Env.text(ms.get(0));
            List<String> log = ms.get(0).getQueueId() == 0 ? q0 : q1;
            synchronized (log) {
                log.add(text);
                return text.equals("m2") && log.stream().filter("m2"::equals).count() < 3
                    ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
            }
        });
        c.start();
        env.send(topic, "m", 0, 10, 2);
        await(40, () -> "7 and 5 come, have " + q0 + " and " + q1, () -> {
            synchronized (q0) {
                synchronized (q1) {
                    return q0.size() >= 7 && q1.size() >= 5;
                }
            }
        });
        c.shutdown();
        equal("queue 0", List.of("m0", "m2", "m2", "m2", "m4", "m6", "m8"), q0);
        equal("queue 1", List.of("m1", "m3", "m5", "m7", "m9"), q1);
        return "";
    }

    /** After maxReconsumeTimes a poisoned message goes to the dead-letter queue and the queue goes on. */
    private static String poison(Env env) throws Exception {
        String topic = env.topic("poison", 1);
        Map<String, Integer> seen = new HashMap<>();
        DefaultMQPushConsumer c = env.newPush("poison");
        c.setConsumeMessageBatchMaxSize(1);
        c.setSuspendCurrentQueueTimeMillis(200);
        c.setMaxReconsumeTimes(2);
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerOrderly) (ms, ctx) -> {
            String text = Env.text(ms.get(0));
            synchronized (seen) {
                seen.merge(text, 1, Integer::sum);
            }
            return text.equals("m1") ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
        });
        c.start();
        env.send(topic, "m", 0, 4, 1);
        await(40, () -> "messages 2 and 3 come, have " + seen, () -> {
            synchronized (seen) {
                return seen.containsKey("m2") && seen.containsKey("m3");
            }
        });
        List<MessageExt> dead = RetrySteps.awaitDead(env, env.group("poison"), 1);
        c.shutdown();
        equal("dead body", "m1", Env.text(dead.get(0)));
        equal("dead message's topic, of " + dead.get(0).getProperties(), topic, dead.get(0).getProperty("RETRY_TOPIC"));
        equal("deliveries of m1", 3, seen.get("m1"));
        return "";
    }
}
