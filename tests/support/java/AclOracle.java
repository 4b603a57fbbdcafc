import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import kafka.security.authorizer.AclAuthorizer;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * The AclAuthorizer of Apache Kafka on a ZooKeeper: asked by lines of words between tabs, answered
 * by one line each. Arguments: the ZooKeeper's address, the super users.
 */
public final class AclOracle {
    /** A client's request from an address. */
    private static final class Client implements AuthorizableRequestContext {
        private final KafkaPrincipal principal;
        private final InetAddress address;

        Client(String principal, String host) throws Exception {
            this.principal = SecurityUtils.parseKafkaPrincipal(principal);
            this.address = InetAddress.getByName(host);
        }

        public String listenerName() {
            return "PLAINTEXT";
        }

        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.PLAINTEXT;
        }

        public KafkaPrincipal principal() {
            return principal;
        }

        public InetAddress clientAddress() {
            return address;
        }

        public int requestType() {
            return 0;
        }

        public int requestVersion() {
            return 0;
        }

        public String clientId() {
            return "";
        }

        public int correlationId() {
            return 0;
        }
    }

    private static AclAuthorizer authorizer(String[] args, boolean allowsEveryone) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("zookeeper.connect", args[0]);
        settings.put("super.users", args[1]);
        settings.put("allow.everyone.if.no.acl.found", String.valueOf(allowsEveryone));
        AclAuthorizer made = new AclAuthorizer();
        made.configure(settings);
        return made;
    }

    private static String answer(AclAuthorizer[] both, String[] words) throws Exception {
        switch (words[0]) {
            case "create": {
                AclBinding binding = new AclBinding(
                    new ResourcePattern(ResourceType.valueOf(words[1]), words[2],
                        PatternType.valueOf(words[3])),
                    new AccessControlEntry(words[4], words[5], AclOperation.valueOf(words[6]),
                        AclPermissionType.valueOf(words[7])));
                both[0].createAcls(null, Collections.singletonList(binding)).get(0)
                    .toCompletableFuture().get();
                return "created";
            }
            case "clear":
                both[0].deleteAcls(null, Collections.singletonList(AclBindingFilter.ANY));
                return "cleared";
            case "list": {
                List<String> found = new ArrayList<>();
                for (AclBinding it : both["strict".equals(words[1]) ? 0 : 1].acls(AclBindingFilter.ANY)) {
                    found.add(String.join(" ", it.pattern().resourceType().name(),
                        it.pattern().name(), it.pattern().patternType().name(),
                        it.entry().principal(), it.entry().host(), it.entry().operation().name(),
                        it.entry().permissionType().name()));
                }
                Collections.sort(found);
                return String.join("\t", found);
            }
            default: {
                Action action = new Action(AclOperation.valueOf(words[3]),
                    new ResourcePattern(ResourceType.valueOf(words[4]), words[5],
                        PatternType.LITERAL), 1, true, true);
                AclAuthorizer asked = both["strict".equals(words[0]) ? 0 : 1];
                return asked.authorize(new Client(words[1], words[2]),
                    Collections.singletonList(action)).get(0) == AuthorizationResult.ALLOWED
                    ? "allowed" : "denied";
            }
        }
    }

    public static void main(String[] args) throws Exception {
        AclAuthorizer[] both = {authorizer(args, false), authorizer(args, true)};
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        BufferedReader in = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(answer(both, line.split("\t", -1)));
        }
        System.exit(0);
    }
}
