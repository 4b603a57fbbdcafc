import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import kafka.consumer.Whitelist;

/**
 * Topic filters of Apache Kafka 1.1.1. Arguments: topics. Each line of stdin is a filter; the answer
 * has a 1 or a 0 for each topic, or "invalid".
 */
public final class TopicFilters {
    public static void main(String[] topics) throws Exception {
        BufferedReader input =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            StringBuilder answer = new StringBuilder();
            try {
                Whitelist filter = new Whitelist(line);
                for (String topic : topics) {
                    answer.append(filter.isTopicAllowed(topic, false) ? '1' : '0');
                }
            } catch (RuntimeException invalid) {
                answer = new StringBuilder("invalid");
            }
            System.out.println(answer);
        }
    }
}
