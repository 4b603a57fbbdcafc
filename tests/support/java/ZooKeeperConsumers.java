import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import kafka.common.OffsetAndMetadata;
import kafka.common.TopicAndPartition;
import kafka.consumer.AssignmentContext;
import kafka.consumer.Blacklist;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerThreadId;
import kafka.consumer.ConsumerTimeoutException;
import kafka.consumer.KafkaStream;
import kafka.consumer.PartitionAssignor;
import kafka.consumer.PartitionAssignor$;
import kafka.consumer.PartitionTopicInfo;
import kafka.consumer.TopicFilter;
import kafka.consumer.Whitelist;
import kafka.javaapi.consumer.ConsumerRebalanceListener;
import kafka.javaapi.consumer.ZookeeperConsumerConnector;
import kafka.message.MessageAndMetadata;
import kafka.utils.ZKStringSerializer$;
import kafka.utils.ZkUtils;
import org.I0Itec.zkclient.InMemoryConnection;
import org.I0Itec.zkclient.ZkClient;
import scala.Tuple2;

/**
 * Consumers of Apache Kafka 1.1.1 that share partitions through ZooKeeper, for tests; JSON a line
 * each way.
 *
 * `assign`: each line is a group as {"strategy", "group", "ids": {consumer: registration},
 * "topics": {topic: partitions}}; the answer has the owner of each partition, as {topic: {partition:
 * thread}}. The assignors read the registrations themselves, from a store in memory.
 *
 * `member`: the first line is {"settings": {...}, "streams": {topic: n}} or {..., "whitelist" or
 * "blacklist": regex, "count": n}; later lines are "commit", {"commit": {topic: {partition: offset}}},
 * "positions" or "shutdown". It prints {"started"}, {"released"}, {"owned"}, {"message"},
 * {"committed"}, {"positions"}, {"stopped"} or {"failed"}.
 */
public final class ZooKeeperConsumers {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final BufferedReader INPUT =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    private static final PrintStream OUTPUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    public static void main(String[] arguments) throws Exception {
        switch (arguments[0]) {
            case "assign" -> assign();
            case "member" -> new ZooKeeperConsumers().run();
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    private static synchronized void say(ObjectNode line) {
        OUTPUT.println(line);
    }

    private static void assign() throws Exception {
        for (String line = INPUT.readLine(); line != null; line = INPUT.readLine()) {
            say(assigned(JSON.readTree(line)));
        }
    }

    private static ObjectNode assigned(JsonNode given) {
        String group = given.get("group").asText();
        ZkClient client = new ZkClient(new InMemoryConnection(), 10000, ZKStringSerializer$.MODULE$);
        given.get("ids").fields().forEachRemaining(it -> {
            String path = "/consumers/" + group + "/ids";
            client.createPersistent(path, true);
            client.createPersistent(path + "/" + it.getKey(), it.getValue().asText());
        });
        given.get("topics").fields().forEachRemaining(it -> {
            ObjectNode partitions = JSON.createObjectNode();
            for (int i = 0; i < it.getValue().asInt(); i++) {
                partitions.putArray(Integer.toString(i)).add(0);
            }
            ObjectNode topic = JSON.createObjectNode().put("version", 1);
            topic.set("partitions", partitions);
            client.createPersistent("/brokers/topics", true);
            client.createPersistent("/brokers/topics/" + it.getKey(), topic.toString());
        });
        PartitionAssignor assignor =
            PartitionAssignor$.MODULE$.createInstance(given.get("strategy").asText());
        ZkUtils store = ZkUtils.apply(client, false);
        ObjectNode found = JSON.createObjectNode();
        given.get("ids").fieldNames().forEachRemaining(consumer -> {
            var context = new AssignmentContext(group, consumer, true, store);
            var owned = assignor.assign(context).get(consumer).iterator();
            while (owned.hasNext()) {
                Tuple2<TopicAndPartition, ConsumerThreadId> it = owned.next();
                found.with(it._1().topic())
                    .put(Integer.toString(it._1().partition()), it._2().toString());
            }
        });
        client.close();
        return found;
    }

    private ZookeeperConsumerConnector connector;

    private void run() throws Exception {
        JsonNode given = JSON.readTree(INPUT.readLine());
        Properties settings = new Properties();
        given.get("settings").fields()
            .forEachRemaining(it -> settings.put(it.getKey(), it.getValue().asText()));
        settings.putIfAbsent("consumer.timeout.ms", "-1");
        connector = new ZookeeperConsumerConnector(new ConsumerConfig(settings));
        connector.setConsumerRebalanceListener(new Listener());
        try {
            for (KafkaStream<byte[], byte[]> stream : streams(given)) {
                Thread reader = new Thread(() -> read(stream));
                reader.setDaemon(true);
                reader.start();
            }
        } catch (RuntimeException error) {
            say(JSON.createObjectNode().put("failed", error.toString()));
            System.exit(1);
        }
        say(JSON.createObjectNode().put("started", underlying().consumerIdString()));
        for (String line = INPUT.readLine(); line != null; line = INPUT.readLine()) {
            if (line.equals("shutdown")) {
                break;
            }
            obey(line);
        }
        connector.shutdown();
        say(JSON.createObjectNode().put("stopped", true));
        System.exit(0);
    }

    private void obey(String line) throws Exception {
        if (line.equals("positions")) {
            ObjectNode answer = JSON.createObjectNode();
            answer.set("positions", positions());
            say(answer);
        } else if (line.equals("commit")) {
            connector.commitOffsets(true);
            say(JSON.createObjectNode().put("committed", true));
        } else {
            Map<TopicAndPartition, OffsetAndMetadata> offsets = new HashMap<>();
            JSON.readTree(line).get("commit").fields().forEachRemaining(topic ->
                topic.getValue().fields().forEachRemaining(it -> offsets.put(
                    new TopicAndPartition(topic.getKey(), Integer.parseInt(it.getKey())),
                    OffsetAndMetadata.apply(it.getValue().asLong()))));
            connector.commitOffsets(offsets, true);
            say(JSON.createObjectNode().put("committed", true));
        }
    }

    private List<KafkaStream<byte[], byte[]>> streams(JsonNode given) {
        for (String kind : List.of("whitelist", "blacklist")) {
            if (given.has(kind)) {
                String regex = given.get(kind).asText();
                TopicFilter filter =
                    kind.equals("whitelist") ? new Whitelist(regex) : new Blacklist(regex);
                return connector.createMessageStreamsByFilter(filter, given.path("count").asInt(1));
            }
        }
        Map<String, Integer> counts = new HashMap<>();
        given.get("streams").fields()
            .forEachRemaining(it -> counts.put(it.getKey(), it.getValue().asInt()));
        List<KafkaStream<byte[], byte[]>> streams = new ArrayList<>();
        connector.createMessageStreams(counts).values().forEach(streams::addAll);
        return streams;
    }

    private void read(KafkaStream<byte[], byte[]> stream) {
        Iterator<MessageAndMetadata<byte[], byte[]>> messages = stream.iterator();
        while (true) {
            try {
                if (!messages.hasNext()) {
                    return;
                }
            } catch (ConsumerTimeoutException error) {
                continue;
            }
            MessageAndMetadata<byte[], byte[]> it = messages.next();
            ObjectNode line = JSON.createObjectNode();
            line.putObject("message").put("topic", it.topic()).put("partition", it.partition())
                .put("offset", it.offset()).put("value", new String(it.message(), StandardCharsets.UTF_8));
            say(line);
        }
    }

    private kafka.consumer.ZookeeperConsumerConnector underlying() throws ReflectiveOperationException {
        Field field = ZookeeperConsumerConnector.class.getDeclaredField("underlying");
        field.setAccessible(true);
        return (kafka.consumer.ZookeeperConsumerConnector) field.get(connector);
    }

    /** The offsets that the fetchers go on from, as they were read at the last rebalance. */
    private ObjectNode positions() throws ReflectiveOperationException {
        ObjectNode found = JSON.createObjectNode();
        var topics = underlying().getTopicRegistry().iterator();
        while (topics.hasNext()) {
            var topic = topics.next();
            ObjectNode partitions = found.putObject(topic._1());
            var infos = topic._2().values().iterator();
            while (infos.hasNext()) {
                PartitionTopicInfo info = infos.next();
                partitions.put(Integer.toString(info.partitionId()), info.getConsumeOffset());
            }
        }
        return found;
    }

    /** Prints what the member lets go of and what it is about to read. */
    private final class Listener implements ConsumerRebalanceListener {
        @Override
        public void beforeReleasingPartitions(Map<String, Set<Integer>> owned) {
            ObjectNode line = JSON.createObjectNode();
            ObjectNode released = line.putObject("released");
            // The values are sets of Scala, whatever their type says.
            for (Map.Entry<?, ?> it : ((Map<?, ?>) owned).entrySet()) {
                var numbers = released.putArray((String) it.getKey());
                var partitions = ((scala.collection.Set<?>) it.getValue()).iterator();
                while (partitions.hasNext()) {
                    numbers.add((Integer) partitions.next());
                }
            }
            say(line);
        }

        @Override
        public void beforeStartingFetchers(
                String consumer, Map<String, Map<Integer, ConsumerThreadId>> assignment) {
            ObjectNode line = JSON.createObjectNode();
            ObjectNode owned = line.putObject("owned");
            assignment.forEach((topic, threads) -> {
                ObjectNode partitions = owned.putObject(topic);
                threads.forEach((partition, thread) -> {
                    if (thread.consumer().equals(consumer)) {
                        partitions.put(partition.toString(), thread.toString());
                    }
                });
            });
            say(line);
        }
    }
}
