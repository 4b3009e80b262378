package interop;

import static interop.Env.await;
import static interop.Env.check;
import static interop.Env.equal;
import static interop.Env.message;
import static interop.Env.refused;

import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;

/** Topics made by an administrator and by the first send, and what the NameServer tells of them. */
final class TopicSteps {
    private TopicSteps() {
    }

    static void add(List<Step> steps) {
        steps.add(new Step("steady", "topic.admin", TopicSteps::admin));
        steps.add(new Step("steady", "topic.perm", TopicSteps::perm));
        steps.add(new Step("steady", "topic.client", TopicSteps::client));
        steps.add(new Step("steady", "topic.firstsend", TopicSteps::firstSend));
        steps.add(new Step("steady", "namesrv.lists", TopicSteps::lists));
        steps.add(new Step("steady", "namesrv.kv", TopicSteps::kv));
        steps.add(new Step("alone", "namesrv.wipe", TopicSteps::wipe));
    }

    private static void awaitRoute(Env env, String topic, int read, int write, int perm) throws Exception {
        String[] seen = new String[1];
        await(15, () -> topic + " has " + read + " read and " + write + " write queues, perm " + perm + ", seen "
            + seen[0], () -> {
            var d = env.admin().examineTopicRouteInfo(topic).getQueueDatas();
            seen[0] = d.toString();
            return d.size() == 1 && d.get(0).getReadQueueNums() == read && d.get(0).getWriteQueueNums() == write
                && d.get(0).getPerm() == perm && d.get(0).getBrokerName().equals(env.brokerName);
        });
    }

    private static String admin(Env env) throws Exception {
        String topic = env.topic("admin", 3);
        equal("publish queues", 3, env.producer().fetchPublishMessageQueues(topic).size());
        env.configure(topic, 5, 4, 6);
        var route = env.admin().examineTopicRouteInfo(topic);
        equal("broker address", env.broker, route.getBrokerDatas().get(0).getBrokerAddrs().get(0L));
        equal("cluster", env.cluster, route.getBrokerDatas().get(0).getCluster());
        equal("subscribe queues", 5, env.puller().fetchSubscribeMessageQueues(topic).size());
        return "";
    }

    /** Clients leave out queues that may not be written, and a pull of a topic that may not be read answers 16. */
    private static String perm(Env env) throws Exception {
        String topic = env.topic("perm", 1);
        env.send(topic, "m", 0, 1, 1);
        env.awaitStored(topic, 1, 1);
        env.configure(topic, 1, 1, 2);
        equal("pull code", 16, refused("a pull of a write-only topic",
            () -> env.puller().pull(env.queue(topic, 0), "*", 0, 1)));
        env.configure(topic, 1, 1, 4);
        equal("pulled", 1, env.drain(topic, 1).size());
        return "";
    }

    private static String client(Env env) throws Exception {
        String topic = env.topicName("client");
        await(20, topic + " is created by a client", () -> { // a busy machine may cost this client a request
            Compat.createTopic(env.producer(), "TBW102", topic, 2);
            return true;
        });
        awaitRoute(env, topic, 2, 2, 6);
        return "";
    }

    private static String firstSend(Env env) throws Exception {
        String topic = env.topicName("firstsend");
        equal("route before", 17, refused("the route of a topic that does not exist",
            () -> env.admin().examineTopicRouteInfo(topic)));
        DefaultMQProducer p = env.newProducer("firstsend");
        p.start();
        SendResult r = p.send(message(topic, "first"));
        equal("send status", SendStatus.SEND_OK, r.getSendStatus());
        awaitRoute(env, topic, 4, 4, 6);
        env.awaitStored(topic, 4, 1);
        equal("body", List.of("first"), Env.texts(env.drain(r.getMessageQueue())));
        // The next send uses the topic's own route.
        await(10, "producer sees 4 queues", () -> p.fetchPublishMessageQueues(topic).size() == 4);
        equal("send status", SendStatus.SEND_OK, p.send(message(topic, "second")).getSendStatus());
        p.shutdown();
        return "queue " + r.getMessageQueue().getQueueId();
    }

    private static String lists(Env env) throws Exception {
        String topic = env.topic("lists", 1);
        Set<String> all = env.admin().fetchAllTopicList().getTopicList();
        check(all.contains(topic), "the list of all topics lacks " + topic);
        Set<String> ofCluster = env.admin().fetchTopicsByCLuster(env.cluster).getTopicList();
        check(ofCluster.contains(topic), "the list of the cluster's topics lacks " + topic);
        var info = env.admin().examineBrokerClusterInfo();
        equal("brokers of the cluster", Set.of(env.brokerName), info.getClusterAddrTable().get(env.cluster));
        var data = info.getBrokerAddrTable().get(env.brokerName);
        equal("address of the broker", env.broker, data.getBrokerAddrs().get(0L));
        return all.size() + " topics";
    }

    private static String kv(Env env) throws Exception {
        String ns = env.prefix + "_ns";
        equal("missing key", 22, refused("a missing key", () -> env.admin().getKVConfig(ns, "k")));
        env.admin().createAndUpdateKvConfig(ns, "k", "v \u4e2d;1");
        equal("value", "v \u4e2d;1", env.admin().getKVConfig(ns, "k"));
        env.admin().createAndUpdateKvConfig(ns, "k2", "w");
        equal("list", "w", env.admin().getKVListByNamespace(ns).getTable().get("k2"));
        env.admin().deleteKvConfig(ns, "k");
        equal("deleted key", 22, refused("a deleted key", () -> env.admin().getKVConfig(ns, "k")));
        return "";
    }

    /** Takes write permission of the broker's topics at the NameServer and gives it back; nothing else may run. */
    private static String wipe(Env env) throws Exception {
        String topic = env.topic("wipe", 2);
        try {
            int n = env.admin().wipeWritePermOfBroker(env.namesrv, env.brokerName);
            check(n > 0, "no topic lost its write permission");
            awaitRoute(env, topic, 2, 2, 4);
        } finally {
            check(env.admin().addWritePermOfBroker(env.namesrv, env.brokerName) > 0, "no topic got permission back");
        }
        awaitRoute(env, topic, 2, 2, 6);
        return "";
    }
}
