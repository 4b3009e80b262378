package interop;

import static interop.Env.equal;
import static interop.Env.message;
import static interop.Env.refused;

import java.util.List;
import java.util.Random;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;

/** What a client may do wrong, and the code it is told. After each refusal the same client still works. */
final class ErrorSteps {
    private ErrorSteps() {
    }

    static void add(List<Step> steps) {
        steps.add(new Step("steady", "error.large", ErrorSteps::large));
        steps.add(new Step("steady", "error.properties", ErrorSteps::properties));
        steps.add(new Step("steady", "error.names", ErrorSteps::names));
        steps.add(new Step("steady", "error.queue", ErrorSteps::queue));
        steps.add(new Step("steady", "error.ids", ErrorSteps::ids));
    }

    private static void stillWorks(Env env, DefaultMQProducer p, String topic) throws Exception {
        equal("send status after the refusal", SendStatus.SEND_OK, p.send(message(topic, "fine"), env.queue(topic, 0)).getSendStatus());
    }

    private static String large(Env env) throws Exception {
        String topic = env.topic("errlarge", 1);
        DefaultMQProducer p = env.newProducer("errlarge");
        p.setMaxMessageSize(64 << 20);
        p.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        p.start();
        byte[] body = new byte[(4 << 20) + 1];
        new Random(1).nextBytes(body);
        equal("code", 13, refused("a body of 4 MiB and one byte", () -> p.send(new Message(topic, body), env.queue(topic, 0))));
        stillWorks(env, p, topic);
        p.shutdown();
        env.awaitStored(topic, 1, 1);
        return "";
    }

    private static String properties(Env env) throws Exception {
        String topic = env.topic("errprops", 1);
        Message m = message(topic, "x");
        m.putUserProperty("p", "v".repeat(33_000));
        equal("code", 13, refused("33,000 bytes of properties", () -> env.producer().send(m, env.queue(topic, 0))));
        stillWorks(env, env.producer(), topic);
        env.awaitStored(topic, 1, 1);
        return "";
    }

    private static String names(Env env) throws Exception {
        StringBuilder codes = new StringBuilder();
        for (String bad : new String[] {"bad topic", "bad.topic", "../escape", "x".repeat(128)}) {
            int code = refused("topic " + bad, () -> env.admin().createAndUpdateTopicConfig(env.broker, new TopicConfig(bad, 1, 1, 6)));
            equal("code of topic " + bad, 29, code);
            equal("route of topic " + bad, 17, refused("the route of " + bad, () -> env.admin().examineTopicRouteInfo(bad)));
        }
        return codes.toString();
    }

    private static String queue(Env env) throws Exception {
        String topic = env.topic("errqueue", 2);
        equal("send to queue 77", 29, refused("queue 77",
            () -> env.producer().send(message(topic, "x"), env.queue(topic, 77))));
        equal("pull of queue 77", 29, refused("queue 77", () -> env.puller().pull(env.queue(topic, 77), "*", 0, 1)));
        String none = env.topicName("errnone");
        equal("pull of an unknown topic", 17, refused("an unknown topic",
            () -> env.puller().pull(env.queue(none, 0), "*", 0, 1)));
        stillWorks(env, env.producer(), topic);
        return "";
    }

    private static String ids(Env env) throws Exception {
        String topic = env.topic("errids", 1);
        env.send(topic, "m", 0, 1, 1);
        // A well-formed offset id of a place where no message is.
        String host = "7F000001" + String.format("%08X", Integer.parseInt(env.broker.split(":")[1]));
        refused("an offset id past the end", () -> env.admin().viewMessage(topic, host + "00000FFFFFFFFFF0"));
        refused("an offset id inside a message", () -> env.admin().viewMessage(topic, host + "0000000000000003"));
        stillWorks(env, env.producer(), topic);
        return "";
    }
}
