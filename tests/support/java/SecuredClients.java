import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Apache Kafka's client in every cell of tests/support/secured_clients.py: reads a cell as JSON a
 * line, runs all of them at the same time, and writes an outcome as JSON a line.
 */
public final class SecuredClients {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int LIMIT_MS = 60_000;

    /** Hands out the token that is configured: Java's client has no such handler before 3.1. */
    public static final class TokenHandler implements AuthenticateCallbackHandler {
        private String token;

        public void configure(
                Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
            token = (String) entries.get(0).getOptions().get("token");
        }

        public void handle(Callback[] callbacks) {
            for (Callback callback : callbacks) {
                if (callback instanceof OAuthBearerTokenCallback) {
                    ((OAuthBearerTokenCallback) callback).token(new SignedToken(token));
                }
            }
        }

        public void close() {
        }
    }

    /** A token that is not looked into. */
    private static final class SignedToken implements OAuthBearerToken {
        private final String value;
        private final long now = System.currentTimeMillis();

        SignedToken(String value) {
            this.value = value;
        }

        public String value() {
            return value;
        }

        public Set<String> scope() {
            return Set.of();
        }

        public long lifetimeMs() {
            return now + 3_600_000;
        }

        public String principalName() {
            return "alice";
        }

        public Long startTimeMs() {
            return now;
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        List<Thread> threads = new ArrayList<>();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode cell = JSON.readTree(line);
            Thread thread = new Thread(() -> report(cell));
            thread.setContextClassLoader(SecuredClients.class.getClassLoader());
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) thread.join();
        System.exit(0);
    }

    private static void report(JsonNode cell) {
        Map<String, Object> outcome = new HashMap<>();
        outcome.put("name", cell.get("name").asText());
        outcome.put("error", "");
        try {
            outcome.put("found", run(cell));
        } catch (Exception error) {
            error.printStackTrace();
            outcome.put("found", List.of());
            outcome.put("error", String.valueOf(error) + ", " + error.getCause());
        }
        try {
            String line = JSON.writeValueAsString(outcome);
            synchronized (System.out) {
                System.out.println(line);
            }
        } catch (Exception error) {
            error.printStackTrace();
        }
    }

    private static List<String> run(JsonNode cell) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        cell.get("settings").fields().forEachRemaining(
            it -> settings.put(it.getKey(), it.getValue().asText()));
        String token = cell.get("token").asText();
        if (!token.isEmpty()) {
            String module = String.valueOf(settings.get("sasl.jaas.config")).replace(";", "");
            settings.put("sasl.jaas.config", module + " token=\"" + token + "\";");
            settings.put("sasl.login.callback.handler.class", TokenHandler.class);
        }
        String topic = cell.get("topic").asText();
        try (KafkaProducer<String, String> producer = producer(settings, null)) {
            send(producer, topic, "p0", "p1", "p2");
        }
        try (KafkaProducer<String, String> producer = producer(settings, topic)) {
            producer.initTransactions();
            producer.beginTransaction();
            send(producer, topic, "x");
            producer.abortTransaction();
            producer.beginTransaction();
            send(producer, topic, "t0", "t1");
            producer.commitTransaction();
        }
        return read(settings, topic);
    }

    private static KafkaProducer<String, String> producer(
            Map<String, Object> settings, String transactionalId) {
        Map<String, Object> all = new HashMap<>(settings);
        if (transactionalId != null) all.put("transactional.id", transactionalId);
        return new KafkaProducer<>(all, new StringSerializer(), new StringSerializer());
    }

    private static void send(KafkaProducer<String, String> producer, String topic, String... values)
            throws Exception {
        for (String value : values) producer.send(new ProducerRecord<>(topic, value)).get();
    }

    private static List<String> read(Map<String, Object> settings, String topic) {
        Map<String, Object> all = new HashMap<>(settings);
        all.put("group.id", topic);
        all.put("auto.offset.reset", "earliest");
        all.put("isolation.level", "read_committed");
        all.put("enable.auto.commit", "false");
        List<String> found = new ArrayList<>();
        long deadline = System.currentTimeMillis() + LIMIT_MS;
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (found.size() < 5 && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> it : consumer.poll(Duration.ofMillis(100))) {
                    found.add(it.value());
                }
            }
            consumer.commitSync();
        }
        return found;
    }
}
