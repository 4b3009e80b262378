package interop;

import static interop.Env.await;
import static interop.Env.check;
import static interop.Env.equal;
import static interop.Env.message;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import java.util.zip.DeflaterOutputStream;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageBatch;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * Topics with queue.type=BatchCQ. 5.3's producer sends batches that such a topic keeps as one record, and 5.3's consumers
 * unwrap them. 4.9's producer sends batches that become a record each; its consumers get a record as it is, the batch's
 * bytes as one body, at Apache's broker too: the steps unpack those.
 */
final class BatchSteps {
    private static final int INNER_BATCH = 0x80;
    private final String round;
    private String topic;
    private List<String> stored;

    private BatchSteps(String round) {
        this.round = round;
    }

    static void add(List<Step> steps) {
        steps.add(new Step("steady", "batchcq.pull", BatchSteps::pull));
        steps.add(new Step("steady", "batchcq.push", BatchSteps::push));
        steps.add(new Step("steady", "batchcq.compressed", BatchSteps::compressed));
        for (String round : new String[] {"stop", "kill"}) {
            BatchSteps b = new BatchSteps(round);
            steps.add(new Step("before " + round, "batchcq", b::before));
            steps.add(new Step("after " + round, "batchcq", b::after));
        }
    }

    private static String topic(Env env, String name, int queues) throws Exception {
        String topic = env.topicName(name);
        await(20, topic + " is made", () -> {
            Compat.createBatchTopic(env, topic, queues);
            return env.admin().examineTopicRouteInfo(topic).getQueueDatas().size() == 1;
        });
        return topic;
    }

    private static List<Message> numbered(String topic, String word, int from, int to) {
        List<Message> ms = new ArrayList<>();
        for (int i = from; i < to; i++) {
            ms.add(message(topic, word + i));
        }
        return ms;
    }

    /** Sends a batch with a unique key of its own, which is what makes it one record; 5.3's producer does so by itself. */
    private static SendResult inner(Env env, MessageQueue q, String word, int from, int to) throws Exception {
        MessageBatch b = MessageBatch.generateFromList(numbered(q.getTopic(), word, from, to));
        for (Message m : b) {
            MessageClientIDSetter.setUniqID(m);
        }
        MessageClientIDSetter.setUniqID(b);
        b.setBody(b.encode());
        SendResult r = env.producer().send(b, q);
        equal("send status", SendStatus.SEND_OK, r.getSendStatus());
        equal("offset ids", 1, r.getOffsetMsgId().split(",").length);
        return r;
    }

    /** The bodies of the messages, those of a batch that the client left packed one by one. */
    private static List<String> texts(List<MessageExt> ms) throws Exception {
        List<String> r = new ArrayList<>();
        for (MessageExt m : ms) {
            if (Compat.UNWRAPS || (m.getSysFlag() & INNER_BATCH) == 0) {
                r.add(Env.text(m));
                continue;
            }
            for (Message one : MessageDecoder.decodeMessages(ByteBuffer.wrap(m.getBody()))) {
                r.add(new String(one.getBody(), java.nio.charset.StandardCharsets.UTF_8));
            }
        }
        return r;
    }

    private static List<String> words(String word, int from, int to) {
        List<String> r = new ArrayList<>();
        for (int i = from; i < to; i++) {
            r.add(word + i);
        }
        return r;
    }

    private static String pull(Env env) throws Exception {
        String topic = topic(env, "bcqpull", 2);
        MessageQueue q = env.queue(topic, 1);
        equal("offset of the first batch", 0L, inner(env, q, "m", 0, 3).getQueueOffset());
        Thread.sleep(50); // the batches' store times differ
        equal("offset of a plain message", 3L, env.producer().send(message(topic, "m3"), q).getQueueOffset());
        Thread.sleep(50);
        equal("offset of the second batch", 4L, inner(env, q, "m", 4, 54).getQueueOffset());
        // What the producer makes of a list itself: one record, or with 4.9 one for each.
        SendResult r = env.producer().send(numbered(topic, "m", 54, 57), q);
        equal("offset of the third batch", 54L, r.getQueueOffset());
        equal("its offset ids", Compat.UNWRAPS ? 1 : 3, r.getOffsetMsgId().split(",").length);
        env.awaitStored(topic, 2, 57);

        List<MessageExt> all = env.drain(q);
        equal("all", words("m", 0, 57), texts(all));
        if (Compat.UNWRAPS) {
            for (int i = 0; i < all.size(); i++) {
                equal("queue offset", (long) i, all.get(i).getQueueOffset());
                check(all.get(i).getProperty("UNIQ_KEY") != null, "message " + i + " has no unique id of its own");
            }
        }
        // An offset inside a batch brings all of it; the next is behind it.
        PullResult p = env.puller().pull(q, "*", 1, 3);
        equal("status", PullStatus.FOUND, p.getPullStatus());
        equal("the batch", words("m", 0, 3), texts(p.getMsgFoundList()));
        equal("next", 3L, p.getNextBeginOffset());
        p = env.puller().pull(q, "*", 30, 1);
        equal("a batch larger than asked for", words("m", 4, 54), texts(p.getMsgFoundList()));
        equal("next", 54L, p.getNextBeginOffset());
        equal("at the end", PullStatus.NO_NEW_MSG, env.puller().pull(q, "*", 57, 32).getPullStatus());
        equal("min", 0L, env.puller().minOffset(q));
        equal("by the time of the plain message", 3L, env.puller().searchOffset(q, all.get(Compat.UNWRAPS ? 3 : 1).getStoreTimestamp()));
        return "";
    }

    /** A consumer that takes one message after the other and remembers them. */
    private static DefaultMQPushConsumer orderly(Env env, String group, String topic, List<MessageExt> got) throws Exception {
        DefaultMQPushConsumer c = env.newPush(group);
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerOrderly) (ms, ctx) -> {
            synchronized (got) {
                got.addAll(ms);
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        c.start();
        return c;
    }

    private static List<String> taken(List<MessageExt> got) throws Exception {
        synchronized (got) {
            return texts(got);
        }
    }

    private static String push(Env env) throws Exception {
        String topic = topic(env, "bcqpush", 1);
        MessageQueue q = env.queue(topic, 0);
        List<MessageExt> got = new ArrayList<>();
        DefaultMQPushConsumer c = orderly(env, "bcqpush", topic, got);
        int n = 0;
        for (int size : new int[] {1, 2, 33, 64, 5}) { // before, and while it waits
            inner(env, q, "m", n, n + size);
            n += size;
            env.producer().send(message(topic, "m" + n++), q);
        }
        int sent = n;
        await(30, () -> sent + " come, have " + got.size(), () -> taken(got).size() >= sent);
        Thread.sleep(300);
        equal("each once and in order", words("m", 0, sent), taken(got));
        await(20, "the offset is committed", () -> {
            c.getDefaultMQPushConsumerImpl().persistConsumerOffset();
            return c.getDefaultMQPushConsumerImpl().getOffsetStore().readOffset(q, ReadOffsetType.READ_FROM_STORE) == sent;
        });
        c.shutdown();
        inner(env, q, "m", sent, sent + 4);
        got.clear();
        DefaultMQPushConsumer d = orderly(env, "bcqpush", topic, got);
        await(30, () -> "4 more come, have " + got.size(), () -> taken(got).size() >= 4);
        Thread.sleep(300);
        equal("only what is new", words("m", sent, sent + 4), taken(got));
        d.shutdown();
        return "";
    }

    /** A batch packed and compressed before it is sent, as one message whose sysFlag and INNER_NUM say what it is. */
    private static String compressed(Env env) throws Exception {
        String topic = topic(env, "bcqzip", 1);
        MessageQueue q = env.queue(topic, 0);
        env.producer().send(message(topic, "m0"), q);
        MessageBatch b = MessageBatch.generateFromList(numbered(topic, "m", 1, 21));
        ByteArrayOutputStream zip = new ByteArrayOutputStream();
        try (DeflaterOutputStream z = new DeflaterOutputStream(zip)) {
            z.write(b.encode());
        }
        RemotingCommand request = RemotingCommand.createRequestCommand(310, null);
        String[] fields = {"a", "packer", "b", topic, "c", "TBW102", "d", "4", "e", "0", "f", "" + (1 | 0x40 | INNER_BATCH), "g", "1700000000000",
            "h", "0", "i", "UNIQ_KEY\u0001zip" + env.prefix + "\u0002INNER_NUM\u000120", "j", "0", "k", "false", "m", "false"};
        for (int i = 0; i < fields.length; i += 2) {
            request.addExtField(fields[i], fields[i + 1]);
        }
        request.setBody(zip.toByteArray());
        equal("queue offset", "1", Compat.ask(env, request).getExtFields().get("queueOffset"));
        equal("next offset", 21L, env.producer().send(message(topic, "m21"), q).getQueueOffset());
        env.awaitStored(topic, 1, 22);
        equal("all", words("m", 0, 22), texts(env.drain(q)));
        return "";
    }

    private String before(Env env) throws Exception {
        topic = topic(env, "bcq" + round, 1);
        MessageQueue q = env.queue(topic, 0);
        inner(env, q, "m", 0, 10);
        env.producer().send(message(topic, "m10"), q);
        inner(env, q, "m", 11, 40);
        env.producer().send(message(topic, "m40"), q);
        env.awaitStored(topic, 1, 41);
        stored = texts(env.drain(q));
        equal("all", words("m", 0, 41), stored);
        Sink s = new Sink(env.newPush("bcq" + round), topic, "*").start();
        await(30, () -> "41 come, have " + s.count(), () -> texts(s.messages()).size() >= 41);
        s.settle(env, topic, 1, 41);
        if (round.equals("kill")) {
            Thread.sleep(6000); // Apache saves its tables of offsets every 5 s
        }
        return "";
    }

    private String after(Env env) throws Exception {
        MessageQueue q = env.queue(topic, 0);
        equal("all", stored, texts(env.drain(q)));
        equal("next offset", 41L, inner(env, q, "n", 0, 7).getQueueOffset());
        env.awaitStored(topic, 1, 48);
        Sink s = new Sink(env.newPush("bcq" + round), topic, "*").start();
        await(30, () -> "7 come, have " + s.count(), () -> texts(s.messages()).size() >= 7);
        Thread.sleep(500);
        s.consumer.shutdown();
        equal("only what is new", words("n", 0, 7), texts(s.messages()).stream().sorted().collect(Collectors.toList()));
        List<String> all = new ArrayList<>(stored);
        all.addAll(words("n", 0, 7));
        equal("all with the new", all, texts(env.drain(q)));
        check(env.puller().maxOffset(q) == 48, "max offset");
        return "";
    }
}
