// `DIR PORT`: a Hive Metastore on loopback, with its database in DIR, until standard input ends. A
// line on standard output says that it runs, and where. Its classes are those that come with Spark.
import java.io.File;
import java.io.IOException;
import java.net.Socket;
import java.util.Map;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;
import org.apache.hadoop.hive.shims.ShimLoader;

public class HiveMetastore {
    public static void main(String[] words) throws Exception {
        File database = new File(words[0], "database");
        int port = Integer.parseInt(words[1]);
        Map.of(
            "javax.jdo.option.ConnectionURL", "jdbc:derby:" + database + ";create=true",
            "derby.stream.error.file", words[0] + "/derby.log",
            "datanucleus.schema.autoCreateAll", "true",
            "datanucleus.connectionPoolingType", "NONE",
            "hive.hmshandler.retry.interval", "10ms",
            "hive.metastore.schema.verification", "false",
            "hive.metastore.warehouse.dir", "file://" + words[0] + "/warehouse"
        ).forEach(System::setProperty);
        try {
            HiveConf conf = new HiveConf();
            // The tables of locks are not created automatically, and must not exist.
            if (!database.exists()) TxnDbUtil.prepDb(conf);
            Thread server = new Thread(() -> serve(port, conf));
            server.start();
            while (server.isAlive() && !answers(port)) Thread.sleep(50);
            if (!server.isAlive()) Runtime.getRuntime().halt(1);
            System.out.println("ready thrift://127.0.0.1:" + port);
            System.out.flush();
            while (System.in.read() >= 0) { }
            Runtime.getRuntime().halt(0);
        } catch (Throwable error) {
            // Threads of the server would keep the process alive.
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    static void serve(int port, HiveConf conf) {
        try {
            HiveMetaStore.startMetaStore(port, ShimLoader.getHadoopThriftAuthBridge(), conf);
        } catch (Throwable error) {
            error.printStackTrace();
        }
    }

    static boolean answers(int port) {
        try (Socket socket = new Socket("127.0.0.1", port)) {
            return true;
        } catch (IOException error) {
            return false;
        }
    }
}
