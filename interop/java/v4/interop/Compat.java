package interop;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.common.subscription.SubscriptionGroupConfig;

/** What the 4.9 and 5.3 client libraries spell differently: this is 4.9's spelling. */
final class Compat {
    /** Says whether request() without a callback waits for the answer: its request() waits for the answer. */
    static final boolean REQUEST_WAITS = true;

    private Compat() {
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
}
