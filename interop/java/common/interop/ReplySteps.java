package interop;

import static interop.Env.check;
import static interop.Env.equal;
import static interop.Env.message;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;

/** Request-reply: a producer that waits for what a consumer answers. */
final class ReplySteps {
    private ReplySteps() {
    }

    static void add(List<Step> steps) {
        steps.add(new Step("steady", "rpc.request", ReplySteps::request));
        steps.add(new Step("steady", "rpc.timeout", ReplySteps::timeout));
        steps.add(new Step("steady", "rpc.nobody", ReplySteps::nobody));
    }

    /** A consumer that answers each message with "re: " and its body. */
    private static DefaultMQPushConsumer replier(Env env, String name, String topic, CompletableFuture<Throwable> failed)
        throws Exception {
        DefaultMQPushConsumer c = env.newPush(name);
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (ms, ctx) -> {
            for (MessageExt m : ms) {
                try {
                    Message reply = MessageUtil.createReplyMessage(m, ("re: " + Env.text(m)).getBytes());
                    reply.putUserProperty("mine", "kept");
                    env.producer().send(reply, 10_000);
                } catch (Throwable e) {
                    failed.complete(e);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        return c;
    }

    /** The asynchronous form, whose callback both versions also call, with null, when the question has been sent. */
    private static Message ask(DefaultMQProducer p, Message question) throws Exception {
        CompletableFuture<Message> got = new CompletableFuture<>();
        p.request(question, new RequestCallback() {
            @Override
            public void onSuccess(Message m) {
                if (m != null) {
                    got.complete(m);
                }
            }

            @Override
            public void onException(Throwable e) {
                got.completeExceptionally(e);
            }
        }, 30_000);
        return got.get(40, TimeUnit.SECONDS);
    }

    private static String request(Env env) throws Exception {
        String topic = env.topic("rpc", 2);
        CompletableFuture<Throwable> failed = new CompletableFuture<>();
        DefaultMQPushConsumer c = replier(env, "rpc", topic, failed);
        DefaultMQProducer p = env.newProducer("rpc");
        p.start();
        for (int i = 0; i < 10; i++) {
            Message question = message(topic, "question " + i);
            Message m = Compat.REQUEST_WAITS ? p.request(question, 30_000) : ask(p, question);
            equal("answer", "re: question " + i, new String(m.getBody()));
            equal("property of the answer", "kept", m.getUserProperty("mine"));
            check(m.getProperty("PUSH_REPLY_TIME") != null, "an answer without PUSH_REPLY_TIME: " + m.getProperties());
            equal("topic of the answer", env.cluster + "_REPLY_TOPIC", m.getTopic());
        }
        // Bodies so large that producers compress them.
        String large = "x".repeat(20_000);
        equal("large answer", "re: " + large, new String(ask(p, message(topic, large)).getBody()));
        p.shutdown();
        c.shutdown();
        check(!failed.isDone(), "a reply failed: " + failed.getNow(null));
        check(env.puller().maxOffset(env.queue(env.cluster + "_REPLY_TOPIC", 0)) >= 11, "the replies are not kept");
        return "";
    }

    private static String timeout(Env env) throws Exception {
        String topic = env.topic("rpctimeout", 1);
        DefaultMQProducer p = env.newProducer("rpctimeout");
        p.start();
        try {
            p.request(message(topic, "nobody listens"), 2_000);
            check(false, "an answer came from nowhere");
        } catch (RequestTimeoutException e) {
            return e.getErrorMessage();
        } finally {
            p.shutdown();
        }
        return "";
    }

    /** The replier learns that its requester is gone. */
    private static String nobody(Env env) throws Exception {
        String topic = env.cluster + "_REPLY_TOPIC";
        Message reply = message(topic, "an answer to nobody");
        reply.putUserProperty("mine", "kept");
        MessageAccessor.putProperty(reply, "MSG_TYPE", "reply");
        MessageAccessor.putProperty(reply, "CORRELATION_ID", "none");
        MessageAccessor.putProperty(reply, "REPLY_TO_CLIENT", "127.0.0.1@nobody");
        try {
            env.producer().send(reply, 10_000);
            check(false, "a reply to nobody was accepted");
        } catch (MQClientException e) {
            MQBrokerException cause = (MQBrokerException) e.getCause();
            equal("code", 1, cause.getResponseCode());
            check(cause.getErrorMessage().contains("channel of <127.0.0.1@nobody> not found"), cause.getErrorMessage());
        }
        return "";
    }
}
