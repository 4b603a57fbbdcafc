import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import kafka.api.FetchRequestBuilder;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.common.OffsetAndMetadata;
import kafka.common.TopicAndPartition;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetCommitRequest;
import kafka.javaapi.OffsetFetchRequest;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.OffsetResponse;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.message.MessageAndOffset;

/** The simple consumers of Apache Kafka 0.8 to 1.1, for tests: prints what they read from HOST PORT
 * PARTITIONS TOPIC..., a line with tabs each: messages, offsets, errors, committed offsets. */
public final class OldSimpleConsumers {
    private static final String CLIENT = "old";
    private static SimpleConsumer consumer;

    public static void main(String[] arguments) {
        int port = Integer.parseInt(arguments[1]);
        consumer = new SimpleConsumer(arguments[0], port, 30_000, 1 << 20, CLIENT);
        int partitions = Integer.parseInt(arguments[2]);
        Map<String, long[]> positions = new TreeMap<>();
        for (String topic : List.of(arguments).subList(3, arguments.length)) {
            positions.put(topic, new long[partitions]);
        }
        readAll(positions);
        String topic = positions.keySet().iterator().next();
        long end = positions.get(topic)[0];
        print("latest", offsets(topic, 0, -1L));
        print("earliest", offsets(topic, 0, -2L));
        print("unknown", offsets("no-such-topic", 0, -1L));
        for (long offset : new long[] {end, end + 1, -1}) {
            FetchResponse response = fetch(topic, offset, 1 << 20);
            print("fetch", offset - end, response.errorCode(topic, 0));
        }
        int count = 0;
        for (MessageAndOffset message : fetch(topic, 0, 30).messageSet(topic, 0)) {
            count++;
        }
        print("small", count > 0);
        // Version 0 keeps offsets in ZooKeeper, version 1 in Kafka.
        for (short version = 0; version < 2; version++) {
            TopicAndPartition partition = new TopicAndPartition(topic, 0);
            OffsetAndMetadata offset = OffsetAndMetadata.apply(version + 7L, "tea", -1L);
            boolean failed = consumer.commitOffsets(new OffsetCommitRequest(
                    "old", Map.of(partition, offset), 1, CLIENT, version)).hasError();
            print("committed", version, failed, consumer.fetchOffsets(new OffsetFetchRequest(
                    "old", List.of(partition), version, 2, CLIENT)).offsets().get(partition).offset());
        }
        consumer.close();
    }

    private static void readAll(Map<String, long[]> positions) {
        boolean isDone = false;
        while (!isDone) {
            isDone = true;
            FetchRequestBuilder request = new FetchRequestBuilder().clientId(CLIENT);
            positions.forEach((topic, offsets) -> {
                for (int partition = 0; partition < offsets.length; partition++) {
                    request.addFetch(topic, partition, offsets[partition], 20_000);
                }
            });
            FetchResponse response = consumer.fetch(request.build());
            for (String topic : positions.keySet()) {
                long[] offsets = positions.get(topic);
                for (int partition = 0; partition < offsets.length; partition++) {
                    for (MessageAndOffset it : response.messageSet(topic, partition)) {
                        // A compressed message is read from its first one on.
                        if (it.offset() >= offsets[partition]) {
                            print("message", topic, partition, it.offset(),
                                    text(it.message().key()), text(it.message().payload()));
                            offsets[partition] = it.nextOffset();
                        }
                    }
                    isDone &= offsets[partition] >= response.highWatermark(topic, partition);
                }
            }
        }
    }

    private static FetchResponse fetch(String topic, long offset, int size) {
        FetchRequestBuilder request = new FetchRequestBuilder().clientId(CLIENT);
        return consumer.fetch(request.addFetch(topic, 0, offset, size).build());
    }

    private static String offsets(String topic, int partition, long time) {
        OffsetResponse response = consumer.getOffsetsBefore(new OffsetRequest(
                Map.of(new TopicAndPartition(topic, partition),
                        new PartitionOffsetRequestInfo(time, 5)), (short) 0, CLIENT));
        StringBuilder found = new StringBuilder();
        for (long offset : response.offsets(topic, partition)) {
            found.append(offset).append(' ');
        }
        return found.toString().strip() + "/" + response.errorCode(topic, partition);
    }

    private static String text(ByteBuffer buffer) {
        return StandardCharsets.UTF_8.decode(buffer).toString();
    }

    private static void print(Object... fields) {
        StringBuilder line = new StringBuilder();
        for (Object field : fields) {
            line.append(line.length() == 0 ? "" : "\t").append(field);
        }
        System.out.println(line);
    }
}
