package interop;

import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.protocol.RequestCode;
import org.apache.rocketmq.common.protocol.header.CreateTopicRequestHeader;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.common.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** What the 4.9 and 5.3 client libraries spell differently: this is 4.9's spelling. */
final class Compat {
    /** Says whether request() without a callback waits for the answer: its request() waits for the answer. */
    static final boolean REQUEST_WAITS = true;

    /** Whether consumers unwrap inner batches. */
    static final boolean UNWRAPS = false;

    private Compat() {
    }

    /** Creates a topic whose queues are batch queues; this version's own requests know no attributes. */
    static void createBatchTopic(Env env, String topic, int queues) throws Exception {
        CreateTopicRequestHeader h = new CreateTopicRequestHeader();
        h.setTopic(topic);
        h.setDefaultTopic("TBW102");
        h.setReadQueueNums(queues);
        h.setWriteQueueNums(queues);
        h.setPerm(6);
        h.setTopicFilterType("SINGLE_TAG");
        h.setTopicSysFlag(0);
        h.setOrder(false);
        RemotingCommand request = RemotingCommand.createRequestCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, h);
        request.addExtField("attributes", "+queue.type=BatchCQ");
        ask(env, request);
    }

    /** Makes a request to the broker that must succeed. */
    static RemotingCommand ask(Env env, RemotingCommand request) throws Exception {
        RemotingCommand answer = env.producer().getDefaultMQProducerImpl().getmQClientFactory().getMQClientAPIImpl()
            .getRemotingClient().invokeSync(env.broker, request, 10_000);
        Env.equal("code of " + answer.getRemark(), 0, answer.getCode());
        return answer;
    }

    static void broadcasting(DefaultMQPushConsumer c) {
        c.setMessageModel(MessageModel.BROADCASTING);
    }

    static void createTopic(DefaultMQProducer p, String key, String topic, int queues) throws Exception {
        p.createTopic(key, topic, queues);
    }

    static SubscriptionGroupConfig group(String name) {
        SubscriptionGroupConfig c = new SubscriptionGroupConfig();
        c.setGroupName(name);
        return c;
    }

    /** Steps that only this version has: none. */
    static void add(List<Step> steps) {
    }

    // ---- taking back delayed messages

    static final boolean RECALLS = false;

    static String recallHandle(SendResult r) {
        throw new UnsupportedOperationException();
    }

    static String recall(DefaultMQProducer p, String topic, String handle) {
        throw new UnsupportedOperationException();
    }
}
