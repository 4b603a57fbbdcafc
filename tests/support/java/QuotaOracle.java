import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import kafka.server.ControllerMutationQuota;
import kafka.server.PermissiveControllerMutationQuota;
import kafka.server.StrictControllerMutationQuota;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.metrics.MeasurableStat;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.SimpleRate;
import org.apache.kafka.common.metrics.stats.TokenBucket;
import org.apache.kafka.common.utils.Time;

/**
 * Plays quota steps from stdin with Kafka's own classes, and prints the delay after each step.
 *
 * `new rate|simple|bucket|strict|permissive LIMIT WINDOW_MS COUNT` begins a script, `AMOUNT NOW_MS`
 * is a step. A strict quota prints `refused DELAY` if it refuses.
 */
public class QuotaOracle {
    static long now;

    static final class Script {
        private final MetricConfig config;
        private final double limit;
        private final MeasurableStat stat;
        private final ControllerMutationQuota quota;

        Script(String kind, double limit, long windowMs, int count) {
            this.limit = limit;
            config = new MetricConfig().quota(Quota.upperBound(limit))
                .timeWindow(windowMs, TimeUnit.MILLISECONDS).samples(count);
            stat = kind.equals("rate") ? new Rate()
                : kind.equals("simple") ? new SimpleRate() : new TokenBucket();
            Metrics metrics = new Metrics(new Clock());
            Sensor sensor = metrics.sensor("s", config);
            sensor.add(new MetricName("tokens", "", "", java.util.Map.of()), new TokenBucket());
            quota = kind.equals("strict") ? new StrictControllerMutationQuota(new Clock(), sensor)
                : kind.equals("permissive")
                    ? new PermissiveControllerMutationQuota(new Clock(), sensor) : null;
        }

        String step(double amount) {
            if (quota != null) {
                try {
                    quota.record(amount);
                } catch (ThrottlingQuotaExceededException e) {
                    return "refused " + e.throttleTimeMs();
                }
                return "" + quota.throttleTime();
            }
            stat.record(config, amount, now);
            double value = stat.measure(config, now);
            if (stat instanceof TokenBucket) {
                return "" + (value < 0 ? Math.round(-value / limit * 1000) : 0);
            }
            if (value <= limit) return "0";
            return "" + Math.round((value - limit) / limit * ((Rate) stat).windowSize(config, now));
        }
    }

    static final class Clock implements Time {
        public long milliseconds() { return now; }
        public long hiResClockMs() { return now; }
        public long nanoseconds() { return now * 1_000_000; }
        public void sleep(long ms) { now += ms; }
        public void waitObject(Object o, Supplier<Boolean> condition, long deadlineMs) { }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        Script script = null;
        for (String line; (line = in.readLine()) != null;) {
            String[] it = line.split(" ");
            if (it[0].equals("new")) {
                script = new Script(it[1], Double.parseDouble(it[2]), Long.parseLong(it[3]),
                    Integer.parseInt(it[4]));
            } else {
                now = Long.parseLong(it[1]);
                out.append(script.step(Double.parseDouble(it[0]))).append('\n');
            }
        }
        System.out.print(out);
    }
}
