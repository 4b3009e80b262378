package interop;

import static interop.Env.await;

import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.producer.SendStatus;

/**
 * The NameServer goes away and comes back, empty. Phase "before outage" starts a producer and a consumer; in "during
 * outage" there is no NameServer and they carry on with the routes they know; in "after outage" it runs again, and the
 * broker has told it everything.
 */
final class OutageSteps {
    private String topic;
    private Sink live;

    private OutageSteps() {
    }

    static void add(List<Step> steps) {
        OutageSteps o = new OutageSteps();
        steps.add(new Step("before outage", "prepare", o::prepare));
        steps.add(new Step("during outage", "carryon", o::during));
        steps.add(new Step("after outage", "routes", o::after));
    }

    private String prepare(Env env) throws Exception {
        topic = env.topic("outage", 4);
        live = new Sink(env.newPush("outage"), topic, "*").start();
        env.send(topic, "before", 0, 8, 4);
        await(30, () -> "8 come, have " + live.count(), () -> live.count() >= 8);
        return "";
    }

    private void sendAndGet(Env env, String word) throws Exception {
        for (int i = 0; i < 40; i++) {
            int n = i;
            await(20, "message " + n + " is sent", () -> env.producer()
                .send(Env.message(topic, word + n), env.queue(topic, n % 4)).getSendStatus() == SendStatus.SEND_OK);
            Thread.sleep(50); // longer, all in all, than a period of route polls
        }
        Set<String> want = Env.numbered(word, 0, 40);
        await(30, () -> "all are consumed, missing " + PushSteps.minus(want, new HashSet<>(live.texts())),
            () -> live.texts().containsAll(want));
    }

    private String during(Env env) throws Exception {
        sendAndGet(env, "during");
        return "";
    }

    private String after(Env env) throws Exception {
        await(40, "the topic has a route again", () -> env.admin().examineTopicRouteInfo(topic).getQueueDatas().size() == 1);
        sendAndGet(env, "after");
        String fresh = env.topic("outage2", 2);
        env.send(fresh, "m", 0, 2, 2);
        live.consumer.shutdown();
        return "";
    }
}
