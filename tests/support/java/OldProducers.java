import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import kafka.javaapi.producer.Producer;
import kafka.producer.KeyedMessage;
import kafka.producer.ProducerConfig;

/** The producers in Scala of Apache Kafka 0.8 to 1.1, for tests: writes 300 messages with each codec
 * and each acks to the topic PREFIX-CODEC of the broker at ADDRESS, sync with acks=1, else async. */
public final class OldProducers {
    public static void main(String[] arguments) {
        for (String codec : List.of("none", "gzip", "snappy", "lz4")) {
            for (String acks : List.of("0", "1", "-1")) {
                Properties settings = new Properties();
                settings.put("metadata.broker.list", arguments[0]);
                settings.put("serializer.class", "kafka.serializer.StringEncoder");
                settings.put("compression.codec", codec);
                settings.put("request.required.acks", acks);
                settings.put("producer.type", acks.equals("1") ? "sync" : "async");
                settings.put("batch.num.messages", "50");
                Producer<String, String> producer = new Producer<>(new ProducerConfig(settings));
                List<KeyedMessage<String, String>> messages = new ArrayList<>();
                for (int n = 0; n < 300; n++) {
                    String value = acks + ":" + n + ":" + "tea ".repeat(n % 50);
                    messages.add(new KeyedMessage<>(arguments[1] + "-" + codec, "key-" + n, value));
                }
                producer.send(messages);
                producer.close();
            }
        }
    }
}
