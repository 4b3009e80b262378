package interop;

import static interop.Env.await;
import static interop.Env.check;
import static interop.Env.equal;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.BiFunction;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Transactions: what a producer decides, and what it says when it is asked. The brokers ask every 2 s for what is older
 * than 2 s; that a decision was written down they know after half a second.
 */
final class TxnSteps {
    private TxnSteps() {
    }

    static void add(List<Step> steps) {
        steps.add(new Step("steady", "txn.commit", TxnSteps::commit));
        steps.add(new Step("steady", "txn.rollback", TxnSteps::rollback));
        steps.add(new Step("steady", "txn.check", TxnSteps::checked));
        steps.add(new Step("steady", "txn.shared", TxnSteps::shared));
        for (String round : new String[] {"stop", "kill"}) {
            Restart r = new Restart(round);
            steps.add(new Step("before " + round, "txn.prepare", r::prepare));
            steps.add(new Step("after " + round, "txn.pending", r::after));
        }
    }

    /** A producer whose decisions come from two functions; it remembers how often it was asked for each body. */
    private static final class Producer implements TransactionListener {
        final TransactionMQProducer producer;
        final java.util.function.Function<String, LocalTransactionState> decide;
        final BiFunction<String, Integer, LocalTransactionState> answer;
        private final Map<String, Integer> asked = new HashMap<>();
        private final List<String> wrong = new ArrayList<>();

        Producer(Env env, String group, java.util.function.Function<String, LocalTransactionState> decide,
            BiFunction<String, Integer, LocalTransactionState> answer) throws Exception {
            producer = env.common(new TransactionMQProducer(env.prefix + "_tp_" + group));
            producer.setSendMsgTimeout(10_000);
            producer.setTransactionListener(this);
            this.decide = decide;
            this.answer = answer;
            producer.start();
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message m, Object arg) {
            return decide.apply(new String(m.getBody()));
        }

        @Override
        public synchronized LocalTransactionState checkLocalTransaction(MessageExt m) {
            String body = Env.text(m);
            int times = asked.merge(body, 1, Integer::sum);
            if (!m.getTopic().startsWith("j") || m.getTransactionId() == null
                || !m.getTransactionId().equals(m.getProperty("UNIQ_KEY")) || !"t".equals(m.getTags())) {
                wrong.add("asked with " + m);
            }
            return answer.apply(body, times);
        }

        synchronized int asked(String body) {
            return asked.getOrDefault(body, 0);
        }

        synchronized void expectRight() {
            equal("what was asked wrongly", List.of(), wrong);
        }

        List<TransactionSendResult> send(String topic, String word, int from, int to) throws Exception {
            List<TransactionSendResult> all = new ArrayList<>();
            for (int i = from; i < to; i++) {
                Message m = new Message(topic, "t", word + "key" + i, (word + i).getBytes());
                m.putUserProperty("mine", "kept");
                TransactionSendResult r = producer.sendMessageInTransaction(m, null);
                equal("send status", SendStatus.SEND_OK, r.getSendStatus());
                all.add(r);
            }
            return all;
        }
    }

    private static LocalTransactionState unknown(String body, int times) {
        return LocalTransactionState.UNKNOW;
    }

    private static boolean even(String body) {
        return (body.charAt(body.length() - 1) - '0') % 2 == 0;
    }

    private static String commit(Env env) throws Exception {
        String topic = env.topic("txncommit", 1);
        Sink sink = new Sink(env.newPush("txncommit"), topic, "t").start();
        Producer p = new Producer(env, "commit", body -> LocalTransactionState.COMMIT_MESSAGE, TxnSteps::unknown);
        List<TransactionSendResult> sent = p.send(topic, "c", 0, 20);
        await(30, () -> "20 come, have " + sink.count(), () -> sink.count() >= 20);
        env.awaitStored(topic, 1, 20);
        for (MessageExt m : env.drain(topic, 1)) { // the broker may take up commits in any order
            int i = Integer.parseInt(Env.text(m).substring(1));
            TransactionSendResult r = sent.get(i);
            equal("state", LocalTransactionState.COMMIT_MESSAGE, r.getLocalTransactionState());
            equal("id", r.getMsgId(), m.getMsgId());
            equal("transaction id", r.getTransactionId(), m.getProperty("UNIQ_KEY"));
            equal("own property", "kept", m.getProperty("mine"));
            equal("keys", "ckey" + i, m.getKeys());
            equal("real topic", topic, m.getProperty("REAL_TOPIC"));
            equal("real queue", "0", m.getProperty("REAL_QID"));
            equal("transaction", "true", m.getProperty("TRAN_MSG"));
            equal("id in properties", r.getMsgId(), m.getProperty("__transactionId__"));
            equal("group", p.producer.getProducerGroup(), m.getProperty("PGROUP"));
            equal("type", 8, m.getSysFlag() & 12);
            check(m.getPreparedTransactionOffset() < m.getCommitLogOffset(), "names its half message " + m);
        }
        p.producer.shutdown();
        sink.consumer.shutdown();
        equal("what the consumer got", Env.numbered("c", 0, 20), new HashSet<>(sink.texts()));
        return "";
    }

    private static String rollback(Env env) throws Exception {
        String topic = env.topic("txnrollback", 1);
        Producer p = new Producer(env, "rollback", body -> even(body)
            ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE, TxnSteps::unknown);
        p.send(topic, "r", 0, 10);
        env.awaitStored(topic, 1, 5);
        Thread.sleep(5000);
        env.awaitStored(topic, 1, 5);
        equal("messages", Set.of("r0", "r2", "r4", "r6", "r8"), new HashSet<>(Env.texts(env.drain(topic, 1))));
        p.producer.shutdown();
        int asked = 0;
        for (int i = 0; i < 10; i++) {
            asked += p.asked("r" + i);
        }
        return "asked " + asked + " times";
    }

    /** The first answer decides nothing, the second does. */
    private static String checked(Env env) throws Exception {
        String topic = env.topic("txncheck", 1);
        Producer p = new Producer(env, "check", body -> LocalTransactionState.UNKNOW, (body, times) -> {
            if (times < 2) {
                return LocalTransactionState.UNKNOW;
            }
            return even(body) ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
        });
        p.send(topic, "u", 0, 10);
        equal("messages before a decision", 0L, env.puller().maxOffset(env.queue(topic, 0)));
        env.awaitStored(topic, 1, 5);
        await(20, "all were asked twice", () -> {
            for (int i = 0; i < 10; i++) {
                if (p.asked("u" + i) < 2) {
                    return false;
                }
            }
            return true;
        });
        Thread.sleep(4500); // nothing comes twice
        env.awaitStored(topic, 1, 5);
        List<MessageExt> got = env.drain(topic, 1);
        equal("messages", Set.of("u0", "u2", "u4", "u6", "u8"), new HashSet<>(Env.texts(got)));
        for (MessageExt m : got) {
            equal("checks", "2", m.getProperty("TRANSACTION_CHECK_TIMES"));
            equal("own property", "kept", m.getProperty("mine"));
        }
        p.producer.shutdown();
        p.expectRight();
        return "";
    }

    /** A producer that is gone is not asked; another of its group is. */
    private static String shared(Env env) throws Exception {
        String topic = env.topic("txnshared", 1);
        Producer gone = new Producer(env, "shared", body -> LocalTransactionState.UNKNOW, TxnSteps::unknown);
        Producer stays = new Producer(env, "shared", body -> LocalTransactionState.UNKNOW,
            (body, times) -> LocalTransactionState.COMMIT_MESSAGE);
        stays.send(topic, "s", 4, 5); // it is known to the broker from here on
        gone.send(topic, "s", 0, 4);
        gone.producer.shutdown();
        env.awaitStored(topic, 1, 5);
        equal("messages", Env.numbered("s", 0, 5), new HashSet<>(Env.texts(env.drain(topic, 1))));
        stays.producer.shutdown();
        stays.expectRight();
        return "";
    }

    /** Half messages that wait while the broker's process ends. */
    private static final class Restart {
        private final String round;
        private String topic;
        private Producer producer;
        private volatile boolean decided;

        Restart(String round) {
            this.round = round;
        }

        String prepare(Env env) throws Exception {
            topic = env.topic("txn" + round, 1);
            producer = new Producer(env, round, body -> switch (body.charAt(0)) {
                case 'c' -> LocalTransactionState.COMMIT_MESSAGE;
                case 'r' -> LocalTransactionState.ROLLBACK_MESSAGE;
                default -> LocalTransactionState.UNKNOW;
            }, (body, times) -> {
                if (!decided || !body.startsWith("p")) {
                    return LocalTransactionState.UNKNOW;
                }
                return even(body) ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
            });
            producer.send(topic, "c", 0, 5);
            producer.send(topic, "r", 0, 5);
            producer.send(topic, "p", 0, 10);
            env.awaitStored(topic, 1, 5);
            await(20, "the pending are asked for", () -> producer.asked("p9") > 0);
            Thread.sleep(1000); // decisions are written down
            return "";
        }

        /** Apache's broker may make two of one half message by a kill. */
        String after(Env env) throws Exception {
            decided = true;
            Set<String> want = Env.numbered("c", 0, 5);
            want.addAll(Set.of("p0", "p2", "p4", "p6", "p8"));
            Set<String> seen = new HashSet<>();
            await(45, () -> "all come, lack " + PushSteps.minus(want, seen), () -> {
                seen.addAll(Env.texts(env.drain(topic, 1)));
                return seen.containsAll(want);
            });
            Thread.sleep(4500);
            List<String> all = Env.texts(env.drain(topic, 1));
            producer.producer.shutdown();
            producer.expectRight();
            equal("messages", want, new HashSet<>(all));
            check(round.equals("kill") || all.size() == 10, "some came twice: " + all);
            return (all.size() - 10) + " doubled";
        }
    }
}
