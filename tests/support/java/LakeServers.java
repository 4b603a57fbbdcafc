// A server on loopback until standard input ends: `rest DIR PORT` is a REST catalog of Iceberg,
// `hdfs DIR` a name node with one data node, `yarn DIR` YARN with one node. A line on standard output
// says that it runs, and where.
import java.io.File;
import java.io.FileWriter;
import java.io.Writer;
import java.net.InetSocketAddress;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

public class LakeServers {
    public static void main(String[] words) throws Exception {
        try {
            String ready = switch (words[0]) {
                case "rest" -> rest(words[1], Integer.parseInt(words[2]));
                case "hdfs" -> hdfs(words[1]);
                default -> yarn(words[1]);
            };
            System.out.println("ready " + ready);
            System.out.flush();
            while (System.in.read() >= 0) { }
            Runtime.getRuntime().halt(0);
        } catch (Throwable error) {
            // Threads of the server would keep the process alive.
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    static String rest(String directory, int port) throws Exception {
        Catalog catalog = CatalogUtil.buildIcebergCatalog("backend", Map.of(
            "catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog", "jdbc.schema-version", "V1",
            "uri", "jdbc:sqlite:" + directory + "/catalog.db", "warehouse", directory + "/warehouse"),
            new Configuration());
        ServletContextHandler handler = new ServletContextHandler();
        RESTCatalogServlet servlet = new RESTCatalogServlet(new RESTCatalogAdapter(catalog));
        handler.addServlet(new ServletHolder(servlet), "/*");
        Server server = new Server(new InetSocketAddress("127.0.0.1", port));
        server.setHandler(handler);
        server.start();
        return "http://127.0.0.1:" + port;
    }

    static String hdfs(String directory) throws Exception {
        Configuration conf = new Configuration();
        conf.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, directory);
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(conf).numDataNodes(1).build();
        cluster.waitActive();
        return "hdfs://127.0.0.1:" + cluster.getNameNodePort();
    }

    static String yarn(String directory) throws Exception {
        YarnConfiguration conf = new YarnConfiguration();
        conf.setBoolean(YarnConfiguration.NM_PMEM_CHECK_ENABLED, false);
        conf.setBoolean(YarnConfiguration.NM_VMEM_CHECK_ENABLED, false);
        conf.setFloat(YarnConfiguration.NM_MAX_PER_DISK_UTILIZATION_PERCENTAGE, 100f);
        conf.setInt(YarnConfiguration.RM_SCHEDULER_MINIMUM_ALLOCATION_MB, 128);
        conf.set("yarn.scheduler.capacity.root.queues", "default");
        conf.set("yarn.scheduler.capacity.root.default.capacity", "100");
        conf.set("yarn.scheduler.capacity.maximum-am-resource-percent", "1");
        MiniYARNCluster cluster = new MiniYARNCluster("yarn", 1, 1, 1);
        cluster.init(conf);
        cluster.start();
        // The addresses have their ports when the resource manager has started.
        while (cluster.getConfig().get(YarnConfiguration.RM_ADDRESS).endsWith(":0")) Thread.sleep(50);
        try (Writer out = new FileWriter(new File(directory, "yarn-site.xml"))) {
            cluster.getConfig().writeXml(out);
        }
        return directory;
    }
}
