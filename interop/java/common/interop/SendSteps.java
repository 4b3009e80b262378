package interop;

import static interop.Env.await;
import static interop.Env.check;
import static interop.Env.equal;
import static interop.Env.message;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Every way to send, each message then pulled back and compared. */
final class SendSteps {
    private SendSteps() {
    }

    static void add(List<Step> steps) {
        steps.add(new Step("steady", "send.sync", SendSteps::sync));
        steps.add(new Step("steady", "send.fields", SendSteps::fields));
        steps.add(new Step("steady", "send.async", SendSteps::async));
        steps.add(new Step("steady", "send.oneway", SendSteps::oneway));
        steps.add(new Step("steady", "send.batch", SendSteps::batch));
        steps.add(new Step("steady", "send.vip", SendSteps::vip));
        steps.add(new Step("steady", "send.large", SendSteps::large));
        // One step, since the way of compression is a property of the whole process when a producer is made.
        steps.add(new Step("steady", "send.compressed", SendSteps::compressed));
    }

    private static String sync(Env env) throws Exception {
        String topic = env.topic("sync", 4);
        DefaultMQProducer p = env.newProducer("sync");
        p.start();
        long[] next = new long[4];
        for (int i = 0; i < 40; i++) {
            SendResult r = p.send(message(topic, "m" + i));
            equal("send status", SendStatus.SEND_OK, r.getSendStatus());
            int q = r.getMessageQueue().getQueueId();
            equal("queue offset in queue " + q, next[q]++, r.getQueueOffset());
            check(r.getOffsetMsgId().length() == 32, "offset id " + r.getOffsetMsgId());
            equal("region", "DefaultRegion", r.getRegionId());
        }
        for (int q = 0; q < 4; q++) { // round robin over the queues
            equal("messages in queue " + q, 10L, next[q]);
        }
        p.shutdown();
        env.awaitStored(topic, 4, 40);
        equal("bodies", Env.numbered("m", 0, 40), new HashSet<>(Env.texts(env.drain(topic, 4))));
        return "";
    }

    private static String fields(Env env) throws Exception {
        String topic = env.topic("fields", 2);
        Message m = new Message(topic, "tagA", "key1 key2", 77, "\u4f60\u597d, \ud83d\ude80".getBytes(StandardCharsets.UTF_8), true);
        m.putUserProperty("colour", "bl\u00e5");
        m.setBuyerId("b");
        long before = System.currentTimeMillis();
        SendResult r = env.producer().send(m, env.queue(topic, 1));
        env.awaitStored(topic, 2, 1);
        List<MessageExt> got = env.drain(topic, 2);
        equal("messages", 1, got.size());
        MessageExt x = got.get(0);
        equal("body", "\u4f60\u597d, \ud83d\ude80", Env.text(x));
        equal("topic", topic, x.getTopic());
        equal("tags", "tagA", x.getTags());
        equal("keys", "key1 key2", x.getKeys());
        equal("flag", 77, x.getFlag());
        equal("property colour", "bl\u00e5", x.getUserProperty("colour"));
        equal("buyer", "b", x.getBuyerId());
        equal("queue", 1, x.getQueueId());
        equal("queue offset", r.getQueueOffset(), x.getQueueOffset());
        equal("message id", r.getMsgId(), x.getMsgId());
        equal("reconsume times", 0, x.getReconsumeTimes());
        equal("region", "DefaultRegion", x.getProperty("MSG_REGION"));
        equal("trace", "true", x.getProperty("TRACE_ON"));
        equal("cluster", env.cluster, x.getProperty("CLUSTER"));
        check(x.getBornTimestamp() >= before - 5 && x.getBornTimestamp() <= x.getStoreTimestamp() + 5,
            "born " + x.getBornTimestamp() + ", stored " + x.getStoreTimestamp() + ", sent after " + before);
        equal("born host", "127.0.0.1", x.getBornHostString());
        equal("store host", "/" + env.broker, x.getStoreHost().toString());
        check(x.getBodyCRC() == org.apache.rocketmq.common.UtilAll.crc32(x.getBody()), "body CRC " + x.getBodyCRC());
        return "";
    }

    private static String async(Env env) throws Exception {
        String topic = env.topic("async", 4);
        DefaultMQProducer p = env.newProducer("async");
        p.start();
        int n = 300;
        CountDownLatch left = new CountDownLatch(n);
        ConcurrentLinkedQueue<Throwable> failed = new ConcurrentLinkedQueue<>();
        Set<String> ids = java.util.concurrent.ConcurrentHashMap.newKeySet();
        for (int i = 0; i < n; i++) {
            p.send(message(topic, "m" + i), new SendCallback() {
                @Override
                public void onSuccess(SendResult r) {
                    if (r.getSendStatus() != SendStatus.SEND_OK) {
                        failed.add(new AssertionError("status " + r.getSendStatus()));
                    }
                    ids.add(r.getMessageQueue().getQueueId() + "@" + r.getQueueOffset());
                    left.countDown();
                }

                @Override
                public void onException(Throwable e) {
                    failed.add(e);
                    left.countDown();
                }
            });
        }
        check(left.await(30, TimeUnit.SECONDS), left.getCount() + " of " + n + " callbacks are missing");
        check(failed.isEmpty(), failed.size() + " failed, the first with " + failed.peek());
        equal("distinct places", n, ids.size());
        p.shutdown();
        env.awaitStored(topic, 4, n);
        equal("bodies", Env.numbered("m", 0, n), new HashSet<>(Env.texts(env.drain(topic, 4))));
        return "";
    }

    private static String oneway(Env env) throws Exception {
        String topic = env.topic("oneway", 4);
        DefaultMQProducer p = env.newProducer("oneway");
        p.start();
        for (int i = 0; i < 100; i++) {
            p.sendOneway(message(topic, "m" + i));
        }
        env.awaitStored(topic, 4, 100);
        p.shutdown();
        equal("bodies", Env.numbered("m", 0, 100), new HashSet<>(Env.texts(env.drain(topic, 4))));
        return "";
    }

    private static String batch(Env env) throws Exception {
        String topic = env.topic("batch", 2);
        for (int round = 0; round < 3; round++) {
            List<Message> ms = new ArrayList<>();
            for (int i = 0; i < 10; i++) {
                Message m = new Message(topic, "t" + i, "k" + round + "x" + i, ("m" + (round * 10 + i)).getBytes(StandardCharsets.UTF_8));
                m.putUserProperty("n", "" + i);
                m.setFlag(i);
                ms.add(m);
            }
            SendResult r = env.producer().send(ms, env.queue(topic, 1));
            equal("send status", SendStatus.SEND_OK, r.getSendStatus());
            equal("first queue offset", (long) round * 10, r.getQueueOffset());
            equal("offset ids", 10, r.getOffsetMsgId().split(",").length);
        }
        env.awaitStored(topic, 2, 30);
        List<MessageExt> got = env.drain(env.queue(topic, 1));
        for (int i = 0; i < 30; i++) {
            MessageExt x = got.get(i);
            equal("queue offset", (long) i, x.getQueueOffset());
            equal("body", "m" + i, Env.text(x));
            equal("tags", "t" + i % 10, x.getTags());
            equal("keys", "k" + i / 10 + "x" + i % 10, x.getKeys());
            equal("property", "" + i % 10, x.getUserProperty("n"));
            equal("flag", i % 10, x.getFlag());
        }
        return "";
    }

    /** The VIP channel is listenPort-2. */
    private static String vip(Env env) throws Exception {
        String topic = env.topic("vip", 1);
        DefaultMQProducer p = env.newProducer("vip");
        p.setVipChannelEnabled(true);
        p.start();
        equal("send status", SendStatus.SEND_OK, p.send(message(topic, "m0")).getSendStatus());
        p.shutdown();
        env.awaitStored(topic, 1, 1);
        return "";
    }

    /** The largest body that is allowed: 4 MiB to the byte. */
    private static String large(Env env) throws Exception {
        String topic = env.topic("large", 1);
        DefaultMQProducer p = env.newProducer("large");
        p.setMaxMessageSize(8 << 20);
        p.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        p.setSendMsgTimeout(20_000);
        p.start();
        byte[] body = new byte[4 << 20];
        new Random(7).nextBytes(body);
        equal("send status", SendStatus.SEND_OK, p.send(new Message(topic, body)).getSendStatus());
        equal("send status", SendStatus.SEND_OK, p.send(message(topic, "small")).getSendStatus());
        p.shutdown();
        env.awaitStored(topic, 1, 2);
        List<MessageExt> got = env.drain(topic, 1);
        equal("messages", 2, got.size());
        check(Arrays.equals(body, got.get(0).getBody()), "the body came back changed");
        equal("second body", "small", Env.text(got.get(1)));
        return "";
    }

    private static String compressed(Env env) throws Exception {
        String topic = env.topic("compressed", 1);
        MessageQueue q = env.queue(topic, 0);
        String[] types = {"ZLIB", "LZ4", "ZSTD"};
        int[] bits = {3 << 8, 1 << 8, 2 << 8};
        StringBuilder line = new StringBuilder();
        while (line.length() < 40_000) {
            line.append("line ").append(line.length()).append(" of a text that packs well\n");
        }
        for (int i = 0; i < types.length; i++) {
            System.setProperty("rocketmq.message.compressType", types[i]);
            DefaultMQProducer p = env.newProducer("compressed" + types[i]);
            p.start();
            equal(types[i] + " send status", SendStatus.SEND_OK, p.send(message(topic, types[i] + line), q).getSendStatus());
            p.shutdown();
        }
        System.clearProperty("rocketmq.message.compressType");
        env.awaitStored(topic, 1, types.length);
        List<MessageExt> got = env.drain(q);
        StringBuilder sizes = new StringBuilder();
        for (int i = 0; i < types.length; i++) {
            MessageExt x = got.get(i);
            equal(types[i] + " body", types[i] + line, Env.text(x));
            equal(types[i] + " compression bits", bits[i], x.getSysFlag() & 0x700);
            check(x.getStoreSize() < 20_000, types[i] + " was stored in " + x.getStoreSize() + " bytes");
            sizes.append(types[i]).append(' ').append(x.getStoreSize()).append(' ');
        }
        return sizes.toString().trim();
    }
}
