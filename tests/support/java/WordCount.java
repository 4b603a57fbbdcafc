import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Kafka Streams counts words: arguments are a bootstrap address, the topics to read and to write,
 * an application id, a directory for its state and a processing guarantee. Each word that comes in
 * gives a record with its count. Runs until it is killed.
 */
public class WordCount {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[3]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[4]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, arguments[5]);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.CACHE_MAX_BYTES_BUFFERING_CONFIG, 0);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 50);
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", 20);
        // Who comes after a kill takes its predecessor's place in the group at once, and need not
        // wait for its transactions for long.
        settings.put("group.instance.id", "only");
        settings.put("transaction.timeout.ms", 2_000);

        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(arguments[1])
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word)
            .count()
            .toStream()
            .to(arguments[2], Produced.with(Serdes.String(), Serdes.Long()));
        new KafkaStreams(builder.build(), settings).start();
    }
}
