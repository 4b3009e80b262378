package interop;

import static interop.Env.await;
import static interop.Env.check;
import static interop.Env.equal;
import static interop.Env.message;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/** What clients do among themselves and the broker only has to let through: namespaces, traces, properties. */
final class PassSteps {
    private PassSteps() {
    }

    static void add(List<Step> steps) {
        steps.add(new Step("steady", "pass.namespace", PassSteps::namespace));
        steps.add(new Step("steady", "pass.trace", PassSteps::trace));
        steps.add(new Step("steady", "pass.properties", PassSteps::properties));
    }

    /** Names in a namespace are other names to the broker, and the plain ones to who uses it. */
    private static String namespace(Env env) throws Exception {
        String space = env.prefix + "space";
        String plain = env.prefix + "_t_ns";
        env.configure(space + "%" + plain, 2, 2, 6);
        DefaultMQProducer p = env.newProducer("ns");
        p.setNamespace(space);
        p.start();
        DefaultMQPushConsumer c = env.newPush("ns");
        c.setNamespace(space);
        Sink s = new Sink(c, plain, "*").start();
        for (int i = 0; i < 6; i++) {
            p.send(message(plain, "m" + i));
        }
        Set<String> want = Env.numbered("m", 0, 6);
        await(40, () -> "all of the namespace, have " + s.texts(), () -> new HashSet<>(s.texts()).equals(want));
        for (MessageExt m : s.messages()) {
            equal("topic", plain, m.getTopic());
        }
        await(20, "the group has its name in the namespace", () -> env.admin()
            .queryTopicConsumeByWho(space + "%" + plain).getGroupList().contains(space + "%" + env.group("ns")));
        p.shutdown();
        s.consumer.shutdown();
        return "";
    }

    /** Producer and consumer trace their messages; the traces are found by message id and by key. */
    private static String trace(Env env) throws Exception {
        String topic = env.topic("traced", 1);
        DefaultMQProducer p = env.common(new DefaultMQProducer(env.prefix + "_p_traced", true, null));
        p.setSendMsgTimeout(10_000);
        p.start();
        DefaultMQPushConsumer c = env.common(new DefaultMQPushConsumer(env.group("traced"), true, null));
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        Sink s = new Sink(c, topic, "*").start();
        SendResult sent = p.send(new Message(topic, "T", "tracedKey", "m".getBytes()));
        await(40, "the traced message comes", () -> s.count() == 1);
        String[] seen = {""};
        await(40, () -> "the traces of " + sent.getMsgId() + " are found, have " + seen[0], () -> {
            seen[0] = traces(env, sent.getMsgId());
            return seen[0].contains("Pub\u0001") && seen[0].contains("SubBefore\u0001") && seen[0].contains("SubAfter\u0001");
        });
        check(traces(env, "tracedKey").contains(sent.getMsgId()), "the trace is not found by the message's key");
        p.shutdown();
        s.consumer.shutdown();
        return "";
    }

    private static String traces(Env env, String key) throws Exception {
        StringBuilder b = new StringBuilder();
        try {
            for (MessageExt m : env.admin().queryMessage("RMQ_SYS_TRACE_TOPIC", key, 32, 0, Long.MAX_VALUE).getMessageList()) {
                b.append(Env.text(m));
            }
        } catch (MQClientException e) {
            equal("code while there is none", 208, e.getResponseCode());
        }
        return b.toString();
    }

    /** Properties that mean something elsewhere come through untouched; the unique key is the client's. */
    private static String properties(Env env) throws Exception {
        String topic = env.topic("props", 1);
        Message m = message(topic, "m");
        m.setKeys("k1 k2");
        MessageAccessor.putProperty(m, "_SYS_MSG_PRIORITY_", "5");
        MessageAccessor.putProperty(m, "PRIORITY", "7");
        MessageAccessor.putProperty(m, "__SHARDINGKEY", "order-1");
        m.putUserProperty("umlaut", "äöü € 漢字");
        m.setBuyerId("buyer");
        SendResult sent = env.producer().send(m, env.queue(topic, 0));
        env.awaitStored(topic, 1, 1);
        MessageExt got = env.drain(env.queue(topic, 0)).get(0);
        equal("message id", sent.getMsgId(), got.getMsgId());
        equal("unique key", sent.getMsgId(), got.getProperty("UNIQ_KEY"));
        equal("keys", "k1 k2", got.getKeys());
        for (String name : new ArrayList<>(m.getProperties().keySet())) {
            if (!name.equals("WAIT")) {
                equal(name, m.getProperty(name), got.getProperty(name));
            }
        }
        return got.getProperties().size() + " properties";
    }
}
