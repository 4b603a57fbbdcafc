import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.ssl.DefaultSslEngineFactory;

/**
 * Apache Kafka's reader of key and trust stores: reads ssl.* settings as JSON a line, and answers
 * with a line each: "loaded", or why not.
 */
public final class StoreOracle {
    private static final List<String> SECRETS =
        List.of("password", "keystore.key", "certificate.chain", "truststore.certificates");

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(load(json.readTree(line)).replace("\n", " "));
        }
    }

    private static String load(JsonNode given) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("ssl.protocol", "TLSv1.2");
        settings.put("ssl.enabled.protocols", List.of("TLSv1.2"));
        settings.put("ssl.keymanager.algorithm", "SunX509");
        settings.put("ssl.trustmanager.algorithm", "PKIX");
        given.fields().forEachRemaining(it -> {
            String value = it.getValue().asText();
            boolean isSecret = SECRETS.stream().anyMatch(it.getKey()::endsWith);
            settings.put(it.getKey(), isSecret ? new Password(value) : value);
        });
        try (DefaultSslEngineFactory factory = new DefaultSslEngineFactory()) {
            factory.configure(settings);
            return "loaded";
        } catch (Exception error) {
            return "refused: " + error;
        }
    }
}
