import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Apache Kafka's own client through everything that transactions have: arguments are a bootstrap
 * address, a topic of one partition, a transactional id (also the group's). Prints what it finds.
 */
public class TransactionalProducer {
    static String address, topic, id;

    public static void main(String[] arguments) throws Exception {
        address = arguments[0];
        topic = arguments[1];
        id = arguments[2];
        KafkaProducer<String, String> first = producer();
        first.initTransactions();
        transaction(first, true, "a", "b");
        transaction(first, false, "c", "d");
        transaction(first, true, "e");
        System.out.println("committed " + read("read_committed", 3));
        System.out.println("all " + read("read_uncommitted", 5));
        for (int turn = 0; turn < 20; turn++) transaction(first, turn % 2 == 0, "turn" + turn);
        System.out.println("committed " + read("read_committed", 13).size());

        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer("read_committed")) {
            OffsetAndMetadata committed = null;
            for (boolean commits : new boolean[] {true, false}) {
                first.beginTransaction();
                long offset = commits ? 3 : 9;
                first.sendOffsetsToTransaction(
                    Map.of(partition, new OffsetAndMetadata(offset, "m")),
                    consumer.groupMetadata());
                if (commits) first.commitTransaction();
                else first.abortTransaction();
                // A coordinator of Apache Kafka ends a transaction's offsets some time after its
                // response, together with those that the next one has sent until then.
                committed = consumer.committed(Set.of(partition)).get(partition);
            }
            System.out.println("offset " + committed.offset());
        }

        first.beginTransaction();
        first.send(new ProducerRecord<>(topic, "zombie")).get();
        KafkaProducer<String, String> second = producer();
        second.initTransactions();
        try {
            first.commitTransaction();
            System.out.println("not fenced");
        } catch (Exception error) {
            System.out.println("fenced " + error.getClass().getSimpleName());
        }
        first.close(Duration.ZERO);
        transaction(second, true, "last");
        List<String> found = read("read_committed", 14);
        System.out.println(found.size() + " " + found.get(found.size() - 1) + " " + found.contains("zombie"));
        second.close();
        System.exit(0);
    }

    static void transaction(KafkaProducer<String, String> producer, boolean commits, String... values)
            throws Exception {
        producer.beginTransaction();
        for (String value : values) producer.send(new ProducerRecord<>(topic, value)).get();
        if (commits) producer.commitTransaction();
        else producer.abortTransaction();
    }

    static List<String> read(String isolation, int count) {
        List<String> found = new java.util.ArrayList<>();
        long deadline = System.currentTimeMillis() + 20_000;
        try (KafkaConsumer<String, String> consumer = consumer(isolation)) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            consumer.seekToBeginning(consumer.assignment());
            while (found.size() < count && System.currentTimeMillis() < deadline)
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200)))
                    found.add(record.value());
        }
        return found;
    }

    static Properties common() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", address);
        return properties;
    }

    static KafkaProducer<String, String> producer() {
        Properties properties = common();
        properties.put("transactional.id", id);
        properties.put("linger.ms", "0");
        return new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(String isolation) {
        Properties properties = common();
        properties.put("group.id", id);
        properties.put("enable.auto.commit", "false");
        properties.put("isolation.level", isolation);
        return new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    }
}
