// Feeds produce requests' records to Apache Kafka's own log and down-converter and prints what
// comes of them. Standard input and output are lines of tab-separated columns; see README.md.
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.function.Supplier;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.ConvertedRecords;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.requests.ProduceResponse;
import org.apache.kafka.common.utils.SystemTime;

public class AppendCases {
    static final class FixedTime extends SystemTime {
        final long now;
        FixedTime(long now) { this.now = now; }
        @Override public long milliseconds() { return now; }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        kafka.utils.KafkaScheduler scheduler = new kafka.utils.KafkaScheduler(1, "s-", true);
        scheduler.startup();
        String line;
        while ((line = in.readLine()) != null) {
            String[] c = line.split("\t", -1);
            byte[] data = Base64.getDecoder().decode(c[2]);
            String answer = c[0].equals("append") ? append(c, data, scheduler) : convert(c, data);
            System.out.println(line + "\t" + answer);
        }
        System.out.flush();
        System.exit(0);
    }

    static String append(String[] c, byte[] data, kafka.utils.KafkaScheduler scheduler) throws Exception {
        Path dir = Files.createTempDirectory("append").resolve("t-0");
        Files.createDirectory(dir);
        Map<String, Object> config = new HashMap<>();
        for (String pair : c[3].split(";"))
            if (!pair.isEmpty()) config.put(pair.split("=")[0], pair.split("=")[1]);
        kafka.log.AppendOrigin origin = c[4].equals("client")
            ? kafka.log.AppendOrigin.Client$.MODULE$ : kafka.log.AppendOrigin.Coordinator$.MODULE$;
        long next = Long.parseLong(c[5]);
        int epoch = Integer.parseInt(c[6]);
        FixedTime time = new FixedTime(Long.parseLong(c[7]));
        kafka.log.Log log = kafka.log.Log$.MODULE$.apply(dir.toFile(),
            new kafka.log.LogConfig(config, (scala.collection.immutable.Set<String>) (Object) scala.collection.immutable.Set$.MODULE$.empty()),
            next, next, scheduler, new kafka.server.BrokerTopicStats(), time, 3600000, 3600000,
            new kafka.server.LogDirFailureChannel(1));
        try {
            kafka.log.LogAppendInfo info = log.appendAsLeader(MemoryRecords.readableRecords(ByteBuffer.wrap(data)),
                epoch, origin, kafka.api.ApiVersion$.MODULE$.latestVersion());
            log.close();
            byte[] stored = Files.readAllBytes(dir.resolve(String.format("%020d.log", next)));
            return "ok\t" + Base64.getEncoder().encodeToString(stored) + "\t" + info.lastOffset() + "\t"
                + info.maxTimestamp() + "\t" + info.offsetOfMaxTimestamp();
        } catch (kafka.common.RecordValidationException e) {
            List<String> bad = new ArrayList<>();
            scala.collection.Iterator<ProduceResponse.RecordError> it = e.recordErrors().iterator();
            while (it.hasNext()) bad.add(Integer.toString(it.next().batchIndex));
            return "error\t" + Errors.forException(e.invalidException()).name() + "\t" + String.join(",", bad)
                + "\t" + e.invalidException().getMessage();
        } catch (Throwable e) {
            return "error\t" + Errors.forException(e).name() + "\t\t" + clean(e.toString());
        }
    }

    static String convert(String[] c, byte[] data) {
        try {
            ConvertedRecords<? extends org.apache.kafka.common.record.Records> out =
                MemoryRecords.readableRecords(ByteBuffer.wrap(data)).downConvert(Byte.parseByte(c[3]),
                    Long.parseLong(c[4]), new SystemTime());
            ByteBuffer buffer = ((MemoryRecords) out.records()).buffer();
            byte[] bytes = new byte[buffer.remaining()];
            buffer.get(bytes);
            return "ok\t" + Base64.getEncoder().encodeToString(bytes) + "\t" + out.recordConversionStats().numRecordsConverted();
        } catch (Throwable e) {
            return "error\t" + Errors.forException(e).name();
        }
    }

    static String clean(String text) { return text.replace('\t', ' ').replace('\n', ' '); }
}
