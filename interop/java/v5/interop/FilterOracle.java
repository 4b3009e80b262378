package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.SqlFilter;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * What Apache's own filter says. Each line of the input is an expression and a property string, both in base64 with a
 * blank between; each line of the output is error (it can't be compiled), true, false, null or thrown.
 */
final class FilterOracle {
    private FilterOracle() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, true);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split(" ", -1);
            out.println(answer(decode(parts[0]), decode(parts[1])));
        }
    }

    private static String decode(String s) {
        return new String(Base64.getDecoder().decode(s), StandardCharsets.UTF_8);
    }

    private static String answer(String expression, String properties) {
        Expression e;
        try {
            e = new SqlFilter().compile(expression);
        } catch (Throwable t) {
            return "error";
        }
        try {
            return String.valueOf(e.evaluate(new MessageEvaluationContext(MessageDecoder.string2messageProperties(properties))));
        } catch (Throwable t) {
            return "thrown";
        }
    }
}
