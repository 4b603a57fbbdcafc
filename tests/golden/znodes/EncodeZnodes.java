import java.nio.charset.StandardCharsets;
import java.util.*;
import kafka.api.*;
import kafka.cluster.*;
import kafka.controller.ReplicaAssignment;
import kafka.zk.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.feature.*;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.*;
import org.apache.kafka.common.security.token.delegation.*;
import org.apache.kafka.common.utils.Sanitizer;
import scala.jdk.javaapi.CollectionConverters;

/** Prints encoded.tsv: what Apache Kafka 2.7.2's own ZkData writes for the cases below. */
@SuppressWarnings({"unchecked", "rawtypes"})
public class EncodeZnodes {
    static void put(String path, byte[] data) {
        System.out.println(path + "\t" + new String(data, StandardCharsets.UTF_8));
    }

    static scala.collection.immutable.Seq seq(Object... items) {
        return CollectionConverters.asScala(Arrays.asList(items)).toSeq();
    }

    static scala.collection.immutable.Map map(Map items) {
        return scala.collection.immutable.Map.from(CollectionConverters.asScala(items));
    }

    static void broker(Object endpoints, String rack, Features features, ApiVersion version) {
        Broker broker = new Broker(7, (scala.collection.immutable.Seq) endpoints, scala.Option.apply(rack), features);
        byte[] data = BrokerInfo$.MODULE$.apply(broker, version, 9999).toJsonBytes();
        System.out.println("/brokers/ids/7\t" + new String(data, StandardCharsets.UTF_8)
            .replaceAll("\"timestamp\":\"\\d+\"", "\"timestamp\":\"1600000000000\""));
    }

    static void topic(int partitions) {
        Map items = new LinkedHashMap();
        for (int p = 0; p < partitions; p++)
            items.put(new TopicPartition("t" + partitions, p),
                new ReplicaAssignment(seq(p % 3), p % 2 == 0 ? seq(p % 3) : seq(), seq()));
        put("/brokers/topics/t" + partitions, TopicZNode.encode(map(items)));
    }

    static void config(int count) {
        Properties properties = new Properties();
        for (String name : kafka.log.LogConfig.configNames().mkString(",").split(","))
            if (properties.size() < count) properties.put(name, "1");
        put("/config/topics/c" + count, ConfigEntityZNode.encode(properties));
    }

    public static void main(String[] args) {
        EndPoint plain = new EndPoint("h1", 9092, new ListenerName("PLAINTEXT"), SecurityProtocol.PLAINTEXT);
        EndPoint sasl = new EndPoint("h2", 9093, new ListenerName("EXTERNAL"), SecurityProtocol.SASL_SSL);
        EndPoint six = new EndPoint("::1", 9094, new ListenerName("SIX"), SecurityProtocol.PLAINTEXT);
        Features none = Features.emptySupportedFeatures();
        Features some = Features.supportedFeatures(Map.of("feature_a", new SupportedVersionRange((short) 1, (short) 3)));
        ApiVersion now = KAFKA_2_7_IV2$.MODULE$, before = KAFKA_2_6_IV0$.MODULE$;
        broker(seq(plain), "r1", none, now);
        broker(seq(plain), null, none, before);
        broker(seq(plain), "r1", none, before);
        broker(seq(sasl, plain), null, some, now);
        broker(seq(sasl), null, none, now);
        broker(seq(six), null, none, now);
        for (int partitions : new int[] {1, 10, 11, 12, 13, 24, 50, 100, 1100}) topic(partitions);
        for (int count : new int[] {1, 5, 11, 12, 13, 25}) config(count);
        Properties odd = new Properties();
        odd.put("k", "tab\t quote\" slash/ back\\ ü € \ud83d\ude00");
        put("/config/topics/odd", ConfigEntityZNode.encode(odd));
        Set partitions = new LinkedHashSet(List.of(new TopicPartition("t", 0), new TopicPartition("u-v", 12)));
        scala.collection.immutable.Set set = scala.collection.immutable.Set.from(CollectionConverters.asScala(partitions));
        put("/isr_change_notification/isr_change_0000000000", IsrChangeNotificationSequenceZNode.encode(set));
        put("/admin/preferred_replica_election", PreferredReplicaElectionZNode.encode(set));
        put("/log_dir_event_notification/log_dir_event_0000000001", LogDirEventNotificationSequenceZNode.encode(3));
        put("/feature", FeatureZNode.encode(new FeatureZNode(FeatureZNodeStatus.Enabled(),
            Features.finalizedFeatures(Map.of("feature_a", new FinalizedVersionRange((short) 1, (short) 2))))));
        put("/feature", FeatureZNode.encode(new FeatureZNode(FeatureZNodeStatus.Disabled(), Features.emptyFinalizedFeatures())));
        put("/delegation_token/tokens/tokid-1", DelegationTokenInfoZNode.encode(new DelegationToken(
            new TokenInformation("tokid-1", new KafkaPrincipal("User", "alice"),
                List.of(new KafkaPrincipal("User", "bob"), new KafkaPrincipal("User", "carol@x")),
                1600000000000L, 1600000001000L, 1600000002000L), new byte[] {1})));
        put(ConsumerOffset.path("g", "t", 3), ConsumerOffset.encode(17));
        for (String name : new String[] {"alice", "a b", "a@x y/ü", "<default>", "a~b", "a*b", "CN=x,OU=y", "50%", "a+b", "a.b_c-d", "(x)!'", "日本"})
            System.out.println("sanitize:" + name + "\t" + Sanitizer.sanitize(name));
    }
}
