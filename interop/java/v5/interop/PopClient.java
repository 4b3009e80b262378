package interop;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ChangeInvisibleTimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.NotificationRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.NotificationResponseHeader;
import org.apache.rocketmq.remoting.protocol.header.PollingInfoRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PollingInfoResponseHeader;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/** The calls of pop consumption as the client's own code makes and reads them, one group at one topic. */
final class PopClient {
    private final Env env;
    private final MQClientAPIImpl api;
    final String topic;
    final String group;

    PopClient(Env env, String topic, String group) throws Exception {
        this.env = env;
        this.topic = topic;
        this.group = group;
        api = env.admin().getDefaultMQAdminExtImpl().getMqClientInstance().getMQClientAPIImpl();
    }

    /** The header of a pop from any queue, from the oldest message on. */
    PopMessageRequestHeader header(int most, long invisibleMillis, long pollMillis) {
        PopMessageRequestHeader h = new PopMessageRequestHeader();
        h.setConsumerGroup(group);
        h.setTopic(topic);
        h.setQueueId(-1);
        h.setMaxMsgNums(most);
        h.setInvisibleTime(invisibleMillis);
        h.setPollTime(pollMillis);
        h.setBornTime(System.currentTimeMillis());
        h.setInitMode(0);
        h.setExpType("TAG");
        h.setExp("*");
        h.setOrder(false);
        return h;
    }

    PopResult pop(PopMessageRequestHeader h) throws Exception {
        CompletableFuture<PopResult> f = new CompletableFuture<>();
        api.popMessageAsync(env.brokerName, env.broker, h, h.getPollTime() + 10_000, new PopCallback() {
            @Override
            public void onSuccess(PopResult r) {
                f.complete(r);
            }

            @Override
            public void onException(Throwable e) {
                f.completeExceptionally(e);
            }
        });
        return f.get(h.getPollTime() + 20_000, TimeUnit.MILLISECONDS);
    }

    /** Pops until n messages have come. */
    List<MessageExt> popAll(int n, int seconds, long invisibleMillis, boolean order) throws Exception {
        List<MessageExt> all = new ArrayList<>();
        Env.await(seconds, () -> n + " messages are popped, have " + Env.texts(all), () -> {
            PopMessageRequestHeader h = header(32, invisibleMillis, 2000);
            h.setOrder(order);
            List<MessageExt> found = pop(h).getMsgFoundList();
            if (found != null) {
                all.addAll(found);
            }
            return all.size() >= n;
        });
        return all;
    }

    private static final class Acked implements AckCallback {
        final CompletableFuture<AckResult> done = new CompletableFuture<>();

        @Override
        public void onSuccess(AckResult r) {
            done.complete(r);
        }

        @Override
        public void onException(Throwable e) {
            done.completeExceptionally(e);
        }

        AckResult get() throws Exception {
            return done.get(20, TimeUnit.SECONDS);
        }
    }

    /** The topic that a message was popped of: its retry topic, maybe. */
    private String real(String[] ck) {
        return ExtraInfoUtil.getRealTopic(ck, topic, group);
    }

    AckResult ack(String handle) throws Exception {
        String[] ck = ExtraInfoUtil.split(handle);
        AckMessageRequestHeader h = new AckMessageRequestHeader();
        h.setTopic(real(ck));
        h.setConsumerGroup(group);
        h.setQueueId(ExtraInfoUtil.getQueueId(ck));
        h.setOffset(ExtraInfoUtil.getQueueOffset(ck));
        h.setExtraInfo(handle);
        Acked a = new Acked();
        api.ackMessageAsync(env.broker, 10_000, a, h);
        return a.get();
    }

    AckResult ackBatch(List<String> handles) throws Exception {
        Acked a = new Acked();
        api.batchAckMessageAsync(env.broker, 10_000, a, topic, group, handles);
        return a.get();
    }

    AckResult change(String handle, long invisibleMillis) throws Exception {
        String[] ck = ExtraInfoUtil.split(handle);
        ChangeInvisibleTimeRequestHeader h = new ChangeInvisibleTimeRequestHeader();
        h.setTopic(real(ck));
        h.setConsumerGroup(group);
        h.setQueueId(ExtraInfoUtil.getQueueId(ck));
        h.setOffset(ExtraInfoUtil.getQueueOffset(ck));
        h.setExtraInfo(handle);
        h.setInvisibleTime(invisibleMillis);
        Acked a = new Acked();
        api.changeInvisibleTimeAsync(env.brokerName, env.broker, h, 10_000, a);
        return a.get();
    }

    boolean notified(long pollMillis) throws Exception {
        NotificationRequestHeader h = new NotificationRequestHeader();
        h.setConsumerGroup(group);
        h.setTopic(topic);
        h.setQueueId(-1);
        h.setPollTime(pollMillis);
        h.setBornTime(System.currentTimeMillis());
        RemotingCommand r = api.getRemotingClient().invokeSync(env.broker,
            RemotingCommand.createRequestCommand(RequestCode.NOTIFICATION, h), pollMillis + 10_000);
        Env.equal("code of a notification", 0, r.getCode());
        return ((NotificationResponseHeader) r.decodeCommandCustomHeader(NotificationResponseHeader.class)).isHasMsg();
    }

    int polling() throws Exception {
        PollingInfoRequestHeader h = new PollingInfoRequestHeader();
        h.setConsumerGroup(group);
        h.setTopic(topic);
        h.setQueueId(-1);
        RemotingCommand r = api.getRemotingClient().invokeSync(env.broker,
            RemotingCommand.createRequestCommand(RequestCode.POLLING_INFO, h), 10_000);
        Env.equal("code of polling info", 0, r.getCode());
        return ((PollingInfoResponseHeader) r.decodeCommandCustomHeader(PollingInfoResponseHeader.class)).getPollingNum();
    }

    static String handle(MessageExt m) {
        return m.getProperty("POP_CK");
    }
}
