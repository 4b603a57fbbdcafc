import java.util.ArrayList;
import java.util.List;
import kafka.producer.ByteArrayPartitioner;
import kafka.producer.DefaultPartitioner;

/** Prints the partitions that the producer of Apache Kafka 1.1.1 chooses for generated keys, one
 * line for each kind of key: text, integers, bytes. See README.md. */
public final class Partitioners {
    private static final int COUNT = 10_000;
    private static final int PARTITIONS = 31;
    private static long state = 1;

    private static int next() {
        state = (state * 1103515245L + 12345L) & 0x7fffffffL;
        return (int) (state >> 8);
    }

    public static void main(String[] arguments) {
        DefaultPartitioner byHash = new DefaultPartitioner(null);
        ByteArrayPartitioner byContent = new ByteArrayPartitioner(null);
        StringBuilder line = new StringBuilder();
        append(line, byHash.partition("polygenelubricants", PARTITIONS));
        for (int i = 1; i < COUNT; i++) {
            StringBuilder key = new StringBuilder();
            for (int left = next() % 20; left > 0; left--) {
                int unit = next();
                key.appendCodePoint(unit % 50 == 0 ? 0x1f600 + unit % 64 : unit % 0x500);
            }
            append(line, byHash.partition(key.toString(), PARTITIONS));
        }
        System.out.println(line);
        line.setLength(0);
        append(line, byHash.partition(Integer.MIN_VALUE, PARTITIONS));
        for (int i = 1; i < COUNT; i++) {
            append(line, byHash.partition(next() * 65536 + next(), PARTITIONS));
        }
        System.out.println(line);
        line.setLength(0);
        for (int i = 0; i < COUNT; i++) {
            byte[] key = new byte[next() % 20];
            for (int j = 0; j < key.length; j++) {
                key[j] = (byte) next();
            }
            append(line, byContent.partition(key, PARTITIONS));
        }
        System.out.println(line);
    }

    private static void append(StringBuilder line, int partition) {
        line.append(Character.forDigit(partition, 36));
    }
}
