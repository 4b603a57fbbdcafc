"""Apache Kafka's command-line tools, each run against kctl and against Apache Kafka: what they say
of one and of the other is compared."""

import re
import time

from tests.support.java_tools import JavaTools

HEARD_TIMEOUT_S = 120
# 2.7's class, and where another: 3.9's.
CLASSES = {
    "acls": ("kafka.admin.AclCommand",),
    "api-versions": ("kafka.admin.BrokerApiVersionsCommand",),
    "cluster": ("org.apache.kafka.tools.ClusterTool",),
    "configs": ("kafka.admin.ConfigCommand",),
    "console-consumer": (
        "kafka.tools.ConsoleConsumer",
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
    ),
    "console-producer": ("kafka.tools.ConsoleProducer",),
    "consumer-groups": (
        "kafka.admin.ConsumerGroupCommand",
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    ),
    "consumer-perf": (
        "kafka.tools.ConsumerPerformance",
        "org.apache.kafka.tools.ConsumerPerformance",
    ),
    "delete-records": (
        "kafka.admin.DeleteRecordsCommand",
        "org.apache.kafka.tools.DeleteRecordsCommand",
    ),
    "get-offsets": ("kafka.tools.GetOffsetShell", "org.apache.kafka.tools.GetOffsetShell"),
    "leader-election": (
        "kafka.admin.LeaderElectionCommand",
        "org.apache.kafka.tools.LeaderElectionCommand",
    ),
    "log-dirs": ("kafka.admin.LogDirsCommand", "org.apache.kafka.tools.LogDirsCommand"),
    "producer-perf": ("org.apache.kafka.tools.ProducerPerformance",),
    "reassign-partitions": (
        "kafka.admin.ReassignPartitionsCommand",
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    ),
    "topics": ("kafka.admin.TopicCommand", "org.apache.kafka.tools.TopicCommand"),
    "verifiable-consumer": ("org.apache.kafka.tools.VerifiableConsumer",),
    "verifiable-producer": ("org.apache.kafka.tools.VerifiableProducer",),
}
# The option that names the broker, for tools without --bootstrap-server.
BROKER_OPTIONS = {
    ("consumer-perf", "2.7.2"): "--broker-list",
    ("get-offsets", "2.7.2"): "--broker-list",
}
TIME = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\] ")
IN_PASSING = re.compile(r"^\t(at|\.\.\.) |^WARN |InstanceAlreadyExistsException")


class ToolsOnBoth:
    """The tools of one version, each run on both: the addresses of kctl and of Apache Kafka."""

    def __init__(self, tools: JavaTools, kctl: str, apache: str) -> None:
        self.tools = tools
        self.version = tools.version
        self.addresses = (kctl, apache)

    def run(self, tool, *arguments, but=list, until=None, status=0, **options):
        """What kctl makes the tool say, line by line, and Apache Kafka too; `but` changes what may
        differ. Run again until it says `until`, a pattern: of changes brokers hear in their own
        time. With status=None any exit status may be left, which is the first line."""
        answers = []
        for address in self.addresses:
            deadline = time.monotonic() + HEARD_TIMEOUT_S
            while True:
                # A broker that has not heard of a topic makes the tool fail.
                wanted = status if until is None else None
                lines = self.run_on(address, tool, *arguments, status=wanted, **options)
                if until is None or re.search(until, "\n".join(lines)):
                    break
                assert time.monotonic() < deadline, (until, lines)
            if until is not None and status is not None:
                assert lines.pop(0) == f"exit {status}", lines
            answers.append(but(lines))
        assert answers[0] == answers[1], (tool, arguments)
        return answers[0]

    def run_on(self, address, tool, *arguments, status=0, **options):
        """What one broker makes the tool say."""
        classes = CLASSES[tool]
        main_class = classes[-1 if self.version > "3" else 0]
        where = BROKER_OPTIONS.get((tool, self.version), "--bootstrap-server")
        place = (where, address)
        if tool == "producer-perf":
            place = ("--producer-props", f"bootstrap.servers={address}")
        result = self.tools.run(main_class, *arguments, *place, status=status, **options)
        lines = comparable(result, address)
        return lines if status is not None else [f"exit {result.status}", *lines]


def comparable(result, addresses):
    """The lines of stdout and stderr, without times of day, stacks, the brokers' addresses, and
    what is warned of while it lasts."""
    lines = result.lines + [line.rstrip() for line in result.err.splitlines() if line.strip()]
    named = [(re.escape(it), "BROKER") for it in addresses.split(",")]
    ports = [(rf"\b{it.rpartition(':')[2]}\b", "PORT") for it in addresses.split(",")]
    for pattern, replacement in (
        (TIME, ""), *named, *ports, (r"clientId=[\w-]+", "clientId"),
        # Columns are as wide as ports have digits.
        ("  +", "  "),
    ):  # fmt: skip
        lines = [re.sub(pattern, replacement, line) for line in lines]
    return [line for line in lines if not IN_PASSING.search(line)]
