package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** The cluster, and the makers of clients and the checks that every step uses. Safe for many steps at a time. */
final class Env {
    interface Condition {
        boolean holds() throws Exception;
    }

    interface Action {
        void run() throws Exception;
    }

    final String namesrv;
    final String broker;
    final String brokerName;
    final String cluster;
    final String prefix;
    private final AtomicInteger instances = new AtomicInteger();
    private DefaultMQAdminExt admin;
    private DefaultMQProducer producer;
    private DefaultMQPullConsumer puller;

    Env(String namesrv, String broker, String brokerName, String cluster, String prefix) {
        this.namesrv = namesrv;
        this.broker = broker;
        this.brokerName = brokerName;
        this.cluster = cluster;
        this.prefix = prefix;
    }

    // ---- makers of clients

    /** Unique names keep clients apart; short periods keep a test from waiting for the next poll of a route. */
    <T extends ClientConfig> T common(T c) {
        c.setNamesrvAddr(namesrv);
        c.setClientIP("127.0.0.1");
        c.setInstanceName(prefix + "-" + instances.incrementAndGet());
        c.setPollNameServerInterval(1000);
        c.setHeartbeatBrokerInterval(5000);
        c.setPersistConsumerOffsetInterval(1000);
        return c;
    }

    DefaultMQProducer newProducer(String group) throws Exception {
        DefaultMQProducer p = common(new DefaultMQProducer(prefix + "_p_" + group));
        p.setSendMsgTimeout(10_000);
        return p;
    }

    /** The producer that steps share when they do not test the producer. */
    synchronized DefaultMQProducer producer() throws Exception {
        if (producer == null) {
            DefaultMQProducer p = newProducer("shared");
            p.start();
            producer = p;
        }
        return producer;
    }

    synchronized DefaultMQAdminExt admin() throws Exception {
        if (admin == null) {
            DefaultMQAdminExt a = common(new DefaultMQAdminExt(10_000));
            a.setAdminExtGroup(prefix + "_admin");
            a.start();
            admin = a;
        }
        return admin;
    }

    synchronized DefaultMQPullConsumer puller() throws Exception {
        if (puller == null) {
            DefaultMQPullConsumer c = newPuller("shared");
            c.start();
            puller = c;
        }
        return puller;
    }

    DefaultMQPullConsumer newPuller(String group) {
        return common(new DefaultMQPullConsumer(group(group)));
    }

    DefaultMQPushConsumer newPush(String group) {
        DefaultMQPushConsumer c = common(new DefaultMQPushConsumer(group(group)));
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        c.setConsumeThreadMin(4);
        c.setConsumeThreadMax(4);
        return c;
    }

    DefaultLitePullConsumer newLite(String group) {
        DefaultLitePullConsumer c = common(new DefaultLitePullConsumer(group(group)));
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        c.setPullThreadNums(2);
        return c;
    }

    String group(String name) {
        return prefix + "_g_" + name;
    }

    // ---- topics and messages

    String topicName(String name) {
        return prefix + "_t_" + name;
    }

    /** Creates a topic as mqadmin updateTopic does (request 17) and waits until its route can be had. */
    String topic(String name, int queues) throws Exception {
        String topic = topicName(name);
        configure(topic, queues, queues, 6);
        return topic;
    }

    /**
     * Sets a topic's configuration and waits until the NameServer tells it. Apache's NameServer ignores the second of two
     * changes that carry one data version, and repeating a configuration changes nothing: after 4 s without effect
     * another flag, which means nothing here, makes it a new change.
     */
    void configure(String topic, int read, int write, int perm) throws Exception {
        String[] seen = {"no route"};
        Condition told = () -> {
            var d = admin().examineTopicRouteInfo(topic).getQueueDatas();
            seen[0] = d.toString();
            return d.size() == 1 && d.get(0).getReadQueueNums() == read && d.get(0).getWriteQueueNums() == write
                && d.get(0).getPerm() == perm && d.get(0).getBrokerName().equals(brokerName);
        };
        AssertionError last = null;
        for (int i = 0; i < 4; i++) {
            TopicConfig c = new TopicConfig(topic, read, write, perm);
            c.setOrder(i % 2 == 1);
            admin().createAndUpdateTopicConfig(broker, c);
            try {
                await(4, () -> topic + " has " + read + " read and " + write + " write queues, perm " + perm
                    + ", the NameServer says " + seen[0], told);
                return;
            } catch (AssertionError e) {
                last = e;
            }
        }
        throw last;
    }

    MessageQueue queue(String topic, int id) {
        return new MessageQueue(topic, brokerName, id);
    }

    static Message message(String topic, String body) {
        return new Message(topic, body.getBytes(StandardCharsets.UTF_8));
    }

    static String text(MessageExt m) {
        return new String(m.getBody(), StandardCharsets.UTF_8);
    }

    static List<String> texts(List<MessageExt> ms) {
        List<String> r = new ArrayList<>();
        for (MessageExt m : ms) {
            r.add(text(m));
        }
        return r;
    }

    static Set<String> numbered(String word, int from, int to) {
        Set<String> r = new HashSet<>();
        for (int i = from; i < to; i++) {
            r.add(word + i);
        }
        return r;
    }

    /** Sends word+from .. word+(to-1), each to the queue that the number falls on. */
    List<SendResult> send(String topic, String word, int from, int to, int queues) throws Exception {
        List<SendResult> r = new ArrayList<>();
        for (int i = from; i < to; i++) {
            SendResult s = producer().send(message(topic, word + i), queue(topic, i % queues));
            equal("send status", SendStatus.SEND_OK, s.getSendStatus());
            r.add(s);
        }
        return r;
    }

    /** Waits until the queues of the topic hold n messages (Apache's max offset lags behind the answer of a send). */
    void awaitStored(String topic, int queues, long n) throws Exception {
        long[] sum = new long[1];
        await(20, () -> topic + " holds " + n + " messages, has " + sum[0], () -> {
            sum[0] = 0;
            for (int q = 0; q < queues; q++) {
                sum[0] += puller().maxOffset(queue(topic, q));
            }
            return sum[0] >= n;
        });
        equal("messages in " + topic, n, sum[0]);
    }

    /** Everything in the queue, pulled from its start. */
    List<MessageExt> drain(MessageQueue q) throws Exception {
        List<MessageExt> r = new ArrayList<>();
        long at = puller().minOffset(q);
        long max = puller().maxOffset(q);
        while (at < max) {
            PullResult p = puller().pull(q, "*", at, 32);
            equal("pull status of " + q + " at " + at, PullStatus.FOUND, p.getPullStatus());
            r.addAll(p.getMsgFoundList());
            check(p.getNextBeginOffset() > at, "nextBeginOffset " + p.getNextBeginOffset() + " does not pass " + at);
            at = p.getNextBeginOffset();
        }
        return r;
    }

    List<MessageExt> drain(String topic, int queues) throws Exception {
        List<MessageExt> r = new ArrayList<>();
        for (int q = 0; q < queues; q++) {
            r.addAll(drain(queue(topic, q)));
        }
        return r;
    }

    // ---- checks

    static void check(boolean ok, String what) {
        if (!ok) {
            throw new AssertionError(what);
        }
    }

    static void equal(String what, Object want, Object got) {
        if (want instanceof Integer && got instanceof Long) {
            want = ((Integer) want).longValue();
        }
        if (!Objects.equals(want, got)) {
            throw new AssertionError(what + ": want " + shorten(want) + ", got " + shorten(got));
        }
    }

    private static String shorten(Object o) {
        String s = String.valueOf(o);
        return s.length() > 600 ? s.substring(0, 600) + "... (" + s.length() + " characters)" : s;
    }

    static void await(int seconds, String what, Condition c) throws Exception {
        await(seconds, () -> what, c);
    }

    static void await(int seconds, java.util.function.Supplier<String> what, Condition c) throws Exception {
        long end = System.nanoTime() + seconds * 1_000_000_000L;
        Exception last = null;
        while (true) {
            try {
                if (c.holds()) {
                    return;
                }
                last = null;
            } catch (InterruptedException e) {
                throw e;
            } catch (Exception e) {
                last = e;
            }
            if (System.nanoTime() > end) {
                throw new AssertionError("after " + seconds + " s not so: " + what.get(), last);
            }
            Thread.sleep(30);
        }
    }

    /** Runs what must be refused, and returns the response code that the broker gave. */
    static int refused(String what, Action a) throws Exception {
        try {
            a.run();
        } catch (MQBrokerException e) {
            return e.getResponseCode();
        } catch (MQClientException e) {
            if (e.getCause() instanceof MQBrokerException) {
                return ((MQBrokerException) e.getCause()).getResponseCode();
            }
            return e.getResponseCode();
        }
        throw new AssertionError(what + " was not refused");
    }
}
