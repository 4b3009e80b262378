package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Runs the steps of one Apache client version against one cluster, told what to do by the Go test on the other side of
 * its standard streams. A line in is "run PHASE" or "quit". Lines out are JSON: {"plan":[step...]} when a phase begins,
 * then {"step","ok","detail","millis"} for each step as it ends, then {"done":phase}.
 */
public final class Main {
    private static final int STEP_SECONDS = 75;
    private static PrintStream out;

    private Main() {
    }

    public static void main(String[] args) throws Exception {
        out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // whatever a library prints must not look like an answer
        Env env = new Env(args[0], args[1], args[2], args[3], args[4]);
        List<Step> steps = new ArrayList<>();
        TopicSteps.add(steps);
        SendSteps.add(steps);
        BatchSteps.add(steps);
        PullSteps.add(steps);
        LiteSteps.add(steps);
        PushSteps.add(steps);
        OrderSteps.add(steps);
        RetrySteps.add(steps);
        TimerSteps.add(steps);
        GroupSteps.add(steps);
        QuerySteps.add(steps);
        ReplySteps.add(steps);
        FilterSteps.add(steps);
        ControlSteps.add(steps);
        PassSteps.add(steps);
        ErrorSteps.add(steps);
        OutageSteps.add(steps);
        RestartSteps.add(steps);
        ControlSteps.addLast(steps);
        GroupRestartSteps.add(steps);
        Compat.add(steps);
        TxnSteps.add(steps);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null && !line.equals("quit"); line = in.readLine()) {
            runPhase(env, steps, line.substring("run ".length()));
        }
        System.exit(0); // client threads that do not stop must not keep the process
    }

    private static void runPhase(Env env, List<Step> steps, String phase) throws Exception {
        List<Step> due = new ArrayList<>();
        StringBuilder plan = new StringBuilder();
        for (Step s : steps) {
            if (s.phase.equals(phase) && wanted(s)) {
                due.add(s);
                plan.append(plan.length() == 0 ? "" : ",").append(quote(s.name));
            }
        }
        print("{\"plan\":[" + plan + "]}");
        // Steps of "steady" share nothing but the servers; the other phases keep their order.
        int lanes = phase.equals("steady") ? 5 : 1;
        ExecutorService pool = Executors.newFixedThreadPool(lanes);
        ExecutorService inner = Executors.newCachedThreadPool();
        List<Future<?>> all = new ArrayList<>();
        for (Step s : due) {
            all.add(pool.submit(() -> runStep(env, inner, s)));
        }
        for (Future<?> f : all) {
            f.get();
        }
        pool.shutdown();
        inner.shutdownNow();
        print("{\"done\":" + quote(phase) + "}");
    }

    /** INTEROP_STEPS, a regular expression, picks the steps of phase "steady" while one looks for a fault. */
    private static boolean wanted(Step s) {
        String only = System.getenv("INTEROP_STEPS");
        return only == null || !s.phase.equals("steady") || s.name.matches(only);
    }

    private static void runStep(Env env, ExecutorService inner, Step s) {
        long begin = System.nanoTime();
        boolean ok = false;
        String detail;
        Future<String> f = inner.submit(() -> s.body.run(env));
        try {
            detail = f.get(STEP_SECONDS, TimeUnit.SECONDS);
            ok = true;
        } catch (TimeoutException e) {
            f.cancel(true);
            detail = "not finished after " + STEP_SECONDS + " s";
        } catch (Throwable e) {
            detail = explain(e.getCause() == null ? e : e.getCause());
        }
        long millis = (System.nanoTime() - begin) / 1_000_000;
        print("{\"step\":" + quote(s.name) + ",\"ok\":" + ok + ",\"detail\":" + quote(detail == null ? "" : detail)
            + ",\"millis\":" + millis + "}");
    }

    private static String explain(Throwable e) {
        StringBuilder b = new StringBuilder();
        for (Throwable t = e; t != null; t = t.getCause()) {
            b.append(b.length() == 0 ? "" : " / caused by ").append(t);
            for (StackTraceElement at : t.getStackTrace()) {
                if (at.getClassName().startsWith("interop.") && !at.getMethodName().equals("check")
                    && !at.getMethodName().equals("equal")) {
                    b.append(" at ").append(at.getFileName()).append(':').append(at.getLineNumber());
                    break;
                }
            }
        }
        return b.toString();
    }

    private static synchronized void print(String line) {
        out.println(line);
    }

    private static String quote(String s) {
        StringBuilder b = new StringBuilder("\"");
        for (char c : s.toCharArray()) {
            if (c == '"' || c == '\\') {
                b.append('\\').append(c);
            } else if (c < 0x20) {
                b.append(String.format("\\u%04x", (int) c));
            } else {
                b.append(c);
            }
        }
        return b.append('"').toString();
    }
}
