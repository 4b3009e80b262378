package interop;

import static interop.Env.await;
import static interop.Env.check;
import static interop.Env.equal;

import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages found by key, by unique id and by offset id. */
final class QuerySteps {
    private QuerySteps() {
    }

    static void add(List<Step> steps) {
        steps.add(new Step("steady", "query.key", QuerySteps::key));
        steps.add(new Step("steady", "query.ids", QuerySteps::ids));
        steps.add(new Step("steady", "query.collide", QuerySteps::collide));
        steps.add(new Step("steady", "query.time", QuerySteps::time));
    }

    static List<MessageExt> query(Env env, String topic, String key) throws Exception {
        try {
            QueryResult r = env.admin().queryMessage(topic, key, 32, 0, System.currentTimeMillis() + 60_000);
            return r.getMessageList();
        } catch (MQClientException e) {
            if (e.getResponseCode() == 208 || String.valueOf(e.getMessage()).contains("no message")) { // NO_MESSAGE
                return List.of();
            }
            throw e;
        }
    }

    private static String key(Env env) throws Exception {
        String topic = env.topic("querykey", 2);
        String other = env.topic("querykey2", 1);
        for (int i = 0; i < 6; i++) {
            String keys = i % 2 == 0 ? "even k" + i : "odd k" + i;
            env.producer().send(new Message(topic, "T", keys, ("m" + i).getBytes()), env.queue(topic, i % 2));
        }
        env.producer().send(new Message(other, "T", "even", "elsewhere".getBytes()));
        await(20, "k5 is found", () -> query(env, topic, "k5").size() == 1);
        equal("even", Set.of("m0", "m2", "m4"), new HashSet<>(Env.texts(query(env, topic, "even"))));
        equal("k3", List.of("m3"), Env.texts(query(env, topic, "k3")));
        equal("absent key", 0, query(env, topic, "absent").size());
        long future = System.currentTimeMillis() + 3_600_000;
        try {
            equal("outside of the time", 0,
                env.admin().queryMessage(topic, "even", 32, future, future + 1000).getMessageList().size());
        } catch (MQClientException e) {
            check(String.valueOf(e.getMessage()).contains("no message") || e.getResponseCode() == 208, "unexpected: " + e);
        }
        return "";
    }

    /** Keys with one hash, and keys that contain the separator of the index. */
    private static String collide(Env env) throws Exception {
        String topic = env.topic("collide", 1);
        for (String key : new String[] {"Aa", "BB", "x#Aa", "x#BB", "AaAa", "BBBB"}) {
            env.producer().send(new Message(topic, "T", key, key.getBytes()), env.queue(topic, 0));
        }
        await(20, "BBBB is found", () -> query(env, topic, "BBBB").size() == 1);
        for (String key : new String[] {"Aa", "BB", "x#Aa", "x#BB", "AaAa", "BBBB"}) {
            equal(key, List.of(key), Env.texts(query(env, topic, key)));
        }
        return "";
    }

    /** Offsets by time: nothing there, before the first, between two, behind the last. */
    private static String time(Env env) throws Exception {
        String topic = env.topic("bytime", 2);
        long begin = System.currentTimeMillis() - 60_000;
        equal("in an empty queue", 0L, env.puller().searchOffset(env.queue(topic, 1), begin));
        env.send(topic, "early", 0, 3, 1);
        Thread.sleep(100);
        long middle = System.currentTimeMillis();
        Thread.sleep(100);
        env.send(topic, "late", 0, 4, 1);
        env.awaitStored(topic, 1, 7);
        equal("before the first", 0L, env.puller().searchOffset(env.queue(topic, 0), begin));
        equal("between two", 3L, env.puller().searchOffset(env.queue(topic, 0), middle));
        equal("behind the last", 7L, env.puller().searchOffset(env.queue(topic, 0), System.currentTimeMillis() + 60_000));
        return "";
    }

    private static String ids(Env env) throws Exception {
        String topic = env.topic("queryid", 1);
        SendResult r = env.producer().send(new Message(topic, "T", "someKey", "wanted".getBytes()));
        MessageExt byOffset = env.admin().viewMessage(topic, r.getOffsetMsgId());
        equal("body by offset id", "wanted", Env.text(byOffset));
        equal("topic by offset id", topic, byOffset.getTopic());
        equal("queue offset by offset id", r.getQueueOffset(), byOffset.getQueueOffset());
        MessageExt[] byId = new MessageExt[1];
        await(20, "found by unique id", () -> (byId[0] = env.admin().viewMessage(topic, r.getMsgId())) != null);
        equal("body by unique id", "wanted", Env.text(byId[0]));
        equal("unique id", r.getMsgId(), byId[0].getMsgId());
        MessageExt byKey = query(env, topic, "someKey").get(0);
        equal("unique id by key", r.getMsgId(), byKey.getMsgId());
        return r.getMsgId() + " " + r.getOffsetMsgId();
    }
}
