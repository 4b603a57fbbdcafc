import io.jafka.api.FetchRequest;
import io.jafka.consumer.SimpleConsumer;
import io.jafka.message.MessageAndOffset;
import io.jafka.producer.Producer;
import io.jafka.producer.ProducerConfig;
import io.jafka.producer.StringProducerData;
import io.jafka.utils.Utils;
import java.util.Properties;

/**
 * Arguments: the port of a broker of Kafka 0.7, a count, a codec (0 or 1). Writes `message 0` and so
 * on to jafka-CODEC, reads them back in order, and prints how many there were and the log's end.
 */
public class JafkaClients {
    static final int BATCH = 100;
    static final int FETCH_BYTES = 1 << 20;
    static final long LIMIT_MS = 100_000;

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[0]);
        int count = Integer.parseInt(arguments[1]);
        String topic = "jafka-" + arguments[2];
        write(port, count, arguments[2], topic);
        SimpleConsumer consumer = new SimpleConsumer("127.0.0.1", port);
        System.out.println(read(consumer, count, topic) + " " + consumer.getLatestOffset(topic, 0));
        System.exit(0);
    }

    static void write(int port, int count, String codec, String topic) {
        Properties settings = new Properties();
        settings.put("broker.list", "0:127.0.0.1:" + port);
        settings.put("serializer.class", "io.jafka.producer.serializer.StringEncoder");
        settings.put("compression.codec", codec);
        Producer<String, String> producer = new Producer<>(new ProducerConfig(settings));
        for (int first = 0; first < count; first += BATCH) {
            StringProducerData batch = new StringProducerData(topic);
            for (int number = first; number < first + BATCH; number++) {
                batch.add("message " + number);
            }
            producer.send(batch);
        }
        producer.close();
    }

    static int read(SimpleConsumer consumer, int count, String topic) throws Exception {
        long until = System.currentTimeMillis() + LIMIT_MS;
        long offset = 0;
        int found = 0;
        while (found < count && System.currentTimeMillis() < until) {
            FetchRequest request = new FetchRequest(topic, 0, offset, FETCH_BYTES);
            for (MessageAndOffset item : consumer.fetch(request)) {
                String text = Utils.toString(item.message.payload(), "UTF-8");
                if (!text.equals("message " + found)) {
                    throw new IllegalStateException(text + " instead of message " + found);
                }
                found++;
                offset = item.offset;
            }
        }
        return found;
    }
}
