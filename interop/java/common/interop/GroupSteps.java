package interop;

import static interop.Env.await;
import static interop.Env.check;
import static interop.Env.equal;
import static interop.Env.message;

import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Groups as administrators see them, and what consumers see of their configuration. Order configuration of topics. */
final class GroupSteps {
    private GroupSteps() {
    }

    static void add(List<Step> steps) {
        steps.add(new Step("steady", "group.admin", GroupSteps::admin));
        steps.add(new Step("steady", "group.enable", GroupSteps::enable));
        steps.add(new Step("steady", "group.forbidden", GroupSteps::forbidden));
        steps.add(new Step("steady", "group.delete", GroupSteps::delete));
        steps.add(new Step("steady", "retry.group", GroupSteps::retryTimes));
        steps.add(new Step("steady", "retry.gone", GroupSteps::gone));
        steps.add(new Step("steady", "order.conf", GroupSteps::orderConf));
    }

    /** One request over the client's own connection: fields are names and values in turn. */
    static RemotingCommand ask(Env env, int code, String... fields) throws Exception {
        RemotingCommand c = RemotingCommand.createRequestCommand(code, null);
        for (int i = 0; i < fields.length; i += 2) {
            c.addExtField(fields[i], fields[i + 1]);
        }
        return env.producer().getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl().getRemotingClient()
            .invokeSync(env.broker, c, 10_000);
    }

    static String askBody(Env env, int code, String... fields) throws Exception {
        RemotingCommand r = ask(env, code, fields);
        equal("code of the answer to " + code + ", " + r.getRemark(), 0, r.getCode());
        return r.getBody() == null ? "" : new String(r.getBody(), StandardCharsets.UTF_8);
    }

    private static String admin(Env env) throws Exception {
        String group = env.group("admin");
        var c = Compat.group(group);
        c.setRetryMaxTimes(3);
        c.setRetryQueueNums(2);
        c.setConsumeBroadcastEnable(false);
        c.setWhichBrokerWhenConsumeSlowly(5);
        env.admin().createAndUpdateSubscriptionGroupConfig(env.broker, c);
        var got = env.admin().examineSubscriptionGroupConfig(env.broker, group);
        equal("the group", c, got);
        c.setConsumeEnable(false);
        env.admin().createAndUpdateSubscriptionGroupConfig(env.broker, c);
        check(!env.admin().examineSubscriptionGroupConfig(env.broker, group).isConsumeEnable(), "the change is there");
        Map<String, ?> all = env.admin().getAllSubscriptionGroup(env.broker, 10_000).getSubscriptionGroupTable();
        equal("the group in the list", c, all.get(group));
        check(all.containsKey("TOOLS_CONSUMER"), "the list has the built-in groups, has " + all.keySet());
        env.admin().deleteSubscriptionGroup(env.broker, group, true);
        check(!env.admin().getAllSubscriptionGroup(env.broker, 10_000).getSubscriptionGroupTable().containsKey(group), "deleted");
        return all.size() + " groups";
    }

    /** consumeEnable goes off and on while a push consumer runs: nothing comes, and then all, without a restart. */
    private static String enable(Env env) throws Exception {
        String topic = env.topic("enable", 2);
        String group = env.group("enable");
        env.admin().createAndUpdateSubscriptionGroupConfig(env.broker, Compat.group(group));
        Sink s = new Sink(env.newPush("enable"), topic, "*").start();
        env.send(topic, "early", 0, 4, 2);
        await(30, () -> "4 come, have " + s.count(), () -> s.count() == 4);
        var c = Compat.group(group);
        c.setConsumeEnable(false);
        env.admin().createAndUpdateSubscriptionGroupConfig(env.broker, c);
        env.send(topic, "off", 0, 10, 2);
        Thread.sleep(2000);
        equal("messages while consuming is off", 4, s.count());
        c.setConsumeEnable(true);
        env.admin().createAndUpdateSubscriptionGroupConfig(env.broker, c);
        long begin = System.nanoTime();
        Set<String> want = Env.numbered("off", 0, 10);
        await(30, () -> "10 more come, have " + s.texts(), () -> new HashSet<>(s.texts()).containsAll(want));
        s.consumer.shutdown();
        return "resumed after " + (System.nanoTime() - begin) / 1_000_000 + " ms";
    }

    /** Request 353 takes a topic from a group. */
    private static String forbidden(Env env) throws Exception {
        String topic = env.topic("forbidden", 1);
        String group = env.group("forbidden");
        env.admin().createAndUpdateSubscriptionGroupConfig(env.broker, Compat.group(group));
        Sink s = new Sink(env.newPush("forbidden"), topic, "*").start();
        env.send(topic, "m", 0, 2, 1);
        await(30, () -> "2 come, have " + s.count(), () -> s.count() == 2);
        equal("forbidden", "{\"group\":\"" + group + "\",\"readable\":false,\"topic\":\"" + topic + "\"}",
            askBody(env, 353, "group", group, "topic", topic, "readable", "false"));
        env.send(topic, "n", 0, 2, 1);
        Thread.sleep(1500);
        equal("messages while it is forbidden", 2, s.count());
        equal("allowed", "{\"group\":\"" + group + "\",\"readable\":true,\"topic\":\"" + topic + "\"}",
            askBody(env, 353, "group", group, "topic", topic, "readable", "true"));
        await(30, () -> "2 more come, have " + s.count(), () -> s.count() == 4);
        s.consumer.shutdown();
        return "";
    }

    /** A group without consumers is deleted with its offsets, and its retry topic as mqadmin does. */
    private static String delete(Env env) throws Exception {
        String topic = env.topic("gdelete", 1);
        env.send(topic, "m", 0, 8, 1);
        for (boolean clean : new boolean[] {true, false}) {
            String group = env.group("gdelete" + clean);
            env.admin().createAndUpdateSubscriptionGroupConfig(env.broker, Compat.group(group));
            askBody(env, 15, "consumerGroup", group, "topic", topic, "queueId", "0", "commitOffset", "5");
            String[] query = {"consumerGroup", group, "topic", topic, "queueId", "0", "setZeroIfNotFound", "false"};
            equal("committed", "5", ask(env, 14, query).getExtFields().get("offset"));
            askBody(env, 207, "groupName", group, "cleanOffset", "" + clean); // 4.9's own call spells it removeOffset
            equal("code for the offset after cleanOffset=" + clean, clean ? 22 : 0, ask(env, 14, query).getCode());
            Map<String, ?> all = env.admin().getAllSubscriptionGroup(env.broker, 10_000).getSubscriptionGroupTable();
            check(!all.containsKey(group), group + " is deleted");
        }
        String retry = "%RETRY%" + env.group("gdeleteretry");
        var c = Compat.group(env.group("gdeleteretry"));
        env.admin().createAndUpdateSubscriptionGroupConfig(env.broker, c);
        equal("retry topic before the first failure", 17, ask(env, 351, "topic", retry).getCode());
        sendBack(env, env.drain(env.queue(topic, 0)).get(0), env.group("gdeleteretry"), 0);
        check(askBody(env, 351, "topic", retry).contains("\"topicName\":\"" + retry + "\""), "the retry topic is there");
        env.admin().deleteTopicInBroker(Set.of(env.broker), retry);
        equal("retry topic after its deletion", 17, ask(env, 351, "topic", retry).getCode());
        return "";
    }

    /** Request 36 without maxReconsumeTimes, which the clients always send. */
    private static void sendBack(Env env, MessageExt m, String group, int level) throws Exception {
        askBody(env, 36, "offset", "" + m.getCommitLogOffset(), "group", group, "delayLevel", "" + level, "originMsgId", m.getMsgId(),
            "originTopic", m.getTopic(), "unitMode", "false");
    }

    /** The group's retryMaxTimes counts where the request names none; retries of retries keep where they came from. */
    private static String retryTimes(Env env) throws Exception {
        String topic = env.topic("times", 1);
        String group = env.group("times");
        var c = Compat.group(group);
        c.setRetryMaxTimes(2);
        env.admin().createAndUpdateSubscriptionGroupConfig(env.broker, c);
        Message sent = new Message(topic, "tagR", "keyR", "again".getBytes());
        SendResult r = env.producer().send(sent);
        env.awaitStored(topic, 1, 1);
        MessageExt m = env.drain(env.queue(topic, 0)).get(0);
        for (int times = 1; times <= 2; times++) {
            sendBack(env, m, group, 0);
            int n = times;
            await(30, "retry " + n + " is there", () -> env.puller().maxOffset(env.queue("%RETRY%" + group, 0)) == n);
            m = env.drain(env.queue("%RETRY%" + group, 0)).get(n - 1);
            equal("reconsume times", n, m.getReconsumeTimes());
            equal("origin", r.getOffsetMsgId(), m.getProperty("ORIGIN_MESSAGE_ID"));
            equal("topic", topic, m.getProperty("RETRY_TOPIC"));
            equal("level", "" + (2 + n), m.getProperty("DELAY"));
        }
        sendBack(env, m, group, 0);
        m = RetrySteps.awaitDead(env, group, 1).get(0);
        equal("reconsume times of the dead message", 3, m.getReconsumeTimes());
        equal("origin", r.getOffsetMsgId(), m.getProperty("ORIGIN_MESSAGE_ID"));
        equal("topic", topic, m.getProperty("RETRY_TOPIC"));
        equal("body", "again", Env.text(m));
        // A group that wants no retries.
        c.setRetryQueueNums(0);
        env.admin().createAndUpdateSubscriptionGroupConfig(env.broker, c);
        sendBack(env, m, group, 0);
        Thread.sleep(300);
        equal("retries of a group that wants none", 2L, env.puller().maxOffset(env.queue("%RETRY%" + group, 0)));
        equal("dead", 1L, env.puller().maxOffset(env.queue("%DLQ%" + group, 0)));
        return "";
    }

    /** A message that is sent back and is not there: the client gets an error, and sends its copy. */
    private static String gone(Env env) throws Exception {
        String topic = env.topic("gone", 1);
        String group = env.group("gone");
        env.admin().createAndUpdateSubscriptionGroupConfig(env.broker, Compat.group(group));
        equal("code", 1, ask(env, 36, "offset", "" + (1L << 40), "group", group, "delayLevel", "0", "originMsgId", "x",
            "originTopic", topic, "unitMode", "false").getCode());
        Message copy = message("%RETRY%" + group, "copy");
        MessageAccessor.putProperty(copy, "RETRY_TOPIC", topic);
        MessageAccessor.putProperty(copy, "RECONSUME_TIME", "1");
        MessageAccessor.putProperty(copy, "MAX_RECONSUME_TIMES", "16");
        copy.setDelayTimeLevel(3);
        env.producer().send(copy, env.queue("%RETRY%" + group, 0));
        await(30, "the copy is there", () -> env.puller().maxOffset(env.queue("%RETRY%" + group, 0)) == 1);
        MessageExt m = env.drain(env.queue("%RETRY%" + group, 0)).get(0);
        equal("body", "copy", Env.text(m));
        equal("reconsume times", 1, m.getReconsumeTimes());
        return "";
    }

    /** The order configuration of a topic says which queues producers see. The NameServers run with orderMessageEnable. */
    private static String orderConf(Env env) throws Exception {
        String topic = env.topic("orderconf", 4);
        env.admin().createOrUpdateOrderConf(topic, env.brokerName + ":2", true);
        await(20, "the route has the configuration",
            () -> (env.brokerName + ":2").equals(env.admin().examineTopicRouteInfo(topic).getOrderTopicConf()));
        var p = env.newProducer("orderconf");
        p.start();
        equal("queues for producers", 2, p.fetchPublishMessageQueues(topic).size());
        p.shutdown();
        equal("queues for consumers", 4, env.puller().fetchSubscribeMessageQueues(topic).size());
        env.admin().deleteKvConfig("ORDER_TOPIC_CONFIG", topic);
        await(20, "the route has none", () -> {
            String conf = env.admin().examineTopicRouteInfo(topic).getOrderTopicConf();
            return conf == null || conf.isEmpty();
        });
        return "";
    }
}
