import java.time.Duration;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/** Prints what MirrorMaker 2's client library finds: a group's offsets, and hops to a cluster. */
public class MirrorOffsets {
    public static void main(String[] words) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", words[0]);
        Map<TopicPartition, OffsetAndMetadata> found = RemoteClusterUtils.translateOffsets(
            settings, words[1], words[2], Duration.ofSeconds(30));
        var sorted = new TreeMap<String, Long>();
        found.forEach((at, it) -> sorted.put(at.toString(), it.offset()));
        System.out.println(sorted + " " + RemoteClusterUtils.replicationHops(settings, words[1]));
        System.exit(0);
    }
}
