"""Apache Kafka's command-line tools, of 2.7.2 and of 3.9.1: run against kctl and against Apache
Kafka 2.7.2, they are to exit and to say the same."""

import json
import re

import pytest

from tests.support import apache_kafka
from tests.support.java_tools import JavaTools
from tests.support.tools_on_both import ToolsOnBoth

pytestmark = pytest.mark.kafka

VERSIONS = ["2.7.2", "3.9.1"]


@pytest.fixture(scope="module", params=VERSIONS)
def tools(request):
    if apache_kafka.libs(request.param) is None:
        pytest.skip(f"no jars: python tests/support/apache_kafka.py {request.param}")
    with JavaTools(request.param) as running:
        yield running


@pytest.fixture
def both(tools, kctl_broker, apache_broker):
    return ToolsOnBoth(tools, kctl_broker.address, apache_broker)


@pytest.fixture
def new_topic(both, topic):
    """A topic on both brokers with the name of the test."""
    both.run("topics", "--create", "--topic", topic, "--partitions", 1, "--replication-factor", 1)
    yield topic
    both.run("topics", "--delete", "--topic", topic)


def produce(both, topic, *lines, options=()):
    both.run("console-producer", "--topic", topic, *options, stdin="\n".join((*lines, "")))


def lines_with(word):
    """Only the lines with a word; in no order, and columns as wide as they may be by the others."""
    return lambda lines: sorted(" ".join(line.split()) for line in lines if word in line)


def without_numbers(lines):
    """How fast it went, and when, is not compared."""
    return [re.sub(r"-?\d+(\.\d+)?(E-?\d+)?|NaN|Infinity", "#", line) for line in lines]


def test_topics_from_their_creation_to_their_end(both, topic):
    new = ("--create", "--topic", topic)
    both.run("topics", *new, "--partitions", 2, "--replication-factor", 1,
             "--config", "retention.ms=1000", "--config", "cleanup.policy=compact")  # fmt: skip
    both.run("topics", *new, status=1)
    both.run("topics", *new, "--if-not-exists")
    assert both.run("topics", "--list", but=lines_with(topic)) == [topic]
    describe = ("topics", "--describe", "--topic", topic)
    assert len(both.run(*describe, but=sorted_settings, until="PartitionCount: 2")) == 3
    both.run("topics", "--describe", "--topics-with-overrides", but=lines_with(topic))
    both.run("topics", "--describe", "--under-replicated-partitions", "--topic", topic)
    both.run("topics", "--alter", "--topic", topic, "--partitions", 4)
    assert len(both.run(*describe, but=sorted_settings, until="PartitionCount: 4")) == 5
    both.run("topics", "--alter", "--topic", topic, "--partitions", 2, status=1)
    both.run("topics", "--delete", "--topic", topic)
    assert both.run("topics", "--list", but=lines_with(topic)) == []
    both.run("topics", "--delete", "--topic", topic, status=1)
    both.run("topics", "--describe", "--topic", topic, status=1)


def sorted_settings(lines):
    """A topic's overrides are in the order of Java's maps."""
    return [
        re.sub(r"(?<=Configs: ).+", lambda found: ",".join(sorted(found[0].split(","))), line)
        for line in lines
    ]


def test_topics_that_cannot_be(both, topic):
    new = ("--create", "--topic")
    both.run("topics", *new, topic, "--partitions", 0, "--replication-factor", 1, status=1)
    both.run("topics", *new, topic, "--partitions", 1, "--replication-factor", 3, status=1)
    both.run("topics", *new, "not a name", status=1)
    both.run("topics", *new, topic, "--config", "retention.ms=long", status=1)
    both.run("topics", *new, topic, "--config", "no.such=1", status=1)


def test_settings_of_topics(both, new_topic):
    name = ("--entity-type", "topics", "--entity-name", new_topic)
    change = ("configs", "--alter", *name, "--add-config")
    both.run(*change, "retention.ms=5000,cleanup.policy=[compact,delete]")
    both.run("configs", "--describe", *name, but=sorted, until="cleanup.policy=compact,delete")
    assert len(both.run("configs", "--describe", "--all", *name, but=sorted)) > 26
    both.run("configs", "--alter", *name, "--delete-config", "retention.ms")
    assert len(both.run("configs", "--describe", *name, until=r"(?s)^(?!.*retention\.ms)")) == 2
    both.run("configs", "--alter", *name, "--delete-config", "retention.ms", status=1)
    both.run(*change, "retention.ms=long", status=1)
    both.run(*change, "no.such.setting=1", status=1)
    both.run(
        "configs", "--describe", "--entity-type", "topics", "--entity-name", "gone", status=None
    )


@pytest.mark.parametrize("broker", [("--entity-default",), ("--entity-name", "0")])
def test_settings_of_brokers(both, broker):
    name = ("--entity-type", "brokers", *broker)
    both.run("configs", "--alter", *name, "--add-config", "log.retention.ms=1000000")
    try:
        changed = "log.retention.ms=1000000"
        both.run("configs", "--describe", *name, but=sorted, until=changed)
        both.run("configs", "--alter", *name, "--add-config", "broker.id=7", status=1)
        both.run("configs", "--alter", *name, "--add-config", "log.cleaner.threads=x", status=1)
    finally:
        both.run("configs", "--alter", *name, "--delete-config", "log.retention.ms")
    if "--entity-name" in broker:
        places = re.compile(r"(listeners|log\.dirs?|port|zookeeper\.connect|[a-z.]*id)=")
        every = both.run(
            "configs", "--describe", "--all", *name,
            but=lambda lines: sorted(line for line in lines if not places.search(line)),
            until="log.retention.ms=null",
        )  # fmt: skip
        assert len(every) > 150


def test_levels_of_loggers(both):
    """KIP-412: the loggers that both brokers have, changed and reset while they run."""
    name = ("--entity-type", "broker-loggers", "--entity-name", "0")
    controller, requests = "kafka.controller.KafkaController", "kafka.request.logger"
    apis = "kafka.server.KafkaApis"
    change = ("configs", "--alter", *name, "--add-config")
    reset = ("configs", "--alter", *name, "--delete-config")
    shown = ("configs", "--describe", *name)
    both.run(*change, f"{controller}=DEBUG,{requests}=ERROR,{apis}=DEBUG")
    try:
        for logger, level in ((controller, "DEBUG"), (requests, "ERROR"), (apis, "DEBUG")):
            (line,) = both.run(*shown, but=lines_with(f"{logger}="))
            assert f"{logger}={level} " in line
        both.run(*change, f"{controller}=LOUD", status=1)
        both.run(*change, "no.such.Logger=DEBUG", status=1)
        both.run("configs", "--alter", "--entity-type", "broker-loggers", "--entity-name", "x",
                 "--add-config", f"{controller}=DEBUG", status=1)  # fmt: skip
    finally:
        both.run(*reset, f"{controller},{requests},{apis}")
    for logger in (controller, requests, apis):
        for address in both.addresses:
            (line,) = lines_with(f"{logger}=")(both.run_on(address, *shown))
            assert "=ERROR " not in line
            assert "=DEBUG " not in line


def test_records_go_in_and_come_out(both, new_topic):
    split = ("--property", "parse.key=true", "--property", "key.separator=:")
    produce(both, new_topic, "a:1", "b:2", options=split)
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        produce(both, new_topic, f"c:{codec}", options=(*split, "--compression-codec", codec))
    safe = ("--producer-property", "enable.idempotence=true", "--request-required-acks", "all")
    produce(both, new_topic, "d:safe", options=(*split, *safe))
    shown = ("--property", "print.key=true", "--property", "print.partition=true")
    read = ("console-consumer", "--topic", new_topic, *shown)
    found = both.run(*read, "--from-beginning", "--max-messages", 7, but=without_partition)
    assert found[:-1] == ["a\t1", "b\t2", "c\tgzip", "c\tsnappy", "c\tlz4", "c\tzstd", "d\tsafe"]
    tail = both.run(
        *read, "--partition", 0, "--offset", 5, "--max-messages", 2, but=without_partition
    )
    assert tail[:-1] == ["c\tzstd", "d\tsafe"]
    both.run(*read, "--from-beginning", "--max-messages", 7, "--isolation-level", "read_committed")
    both.run(*read, "--from-beginning", "--timeout-ms", 1500, status=None)


def without_partition(lines):
    """2.7 and 3.9 print it in their own ways."""
    return [re.sub(r"^Partition:\d+\t|^\d+\t|\tPartition:\d+$|\t0$", "", line) for line in lines]


def test_groups_from_their_first_commit_to_their_end(both, new_topic, topic):
    group = f"group-{topic}"
    produce(both, new_topic, *"abcde")
    read = ("console-consumer", "--topic", new_topic, "--group", group)
    assert both.run(*read, "--from-beginning", "--max-messages", 3)[:3] == ["a", "b", "c"]
    name = ("consumer-groups", "--group", group)
    assert both.run("consumer-groups", "--list", but=lines_with(group)) == [group]
    both.run("consumer-groups", "--list", "--state", but=lines_with(group))
    shown = both.run(*name, "--describe")
    assert any(re.search(rf"{group} +{new_topic} +0 +3 +5 +2 ", line) for line in shown)
    both.run(*name, "--describe", "--members")
    both.run(*name, "--describe", "--state")
    reset = (*name, "--reset-offsets", "--topic", new_topic)
    for how in (
        ("--to-earliest",), ("--to-latest",), ("--to-current",), ("--to-offset", 2),
        ("--to-offset", 99), ("--shift-by", -1), ("--to-datetime", "2020-01-01T00:00:00.000"),
    ):  # fmt: skip
        both.run(*reset, *how, "--dry-run")
        both.run(*reset, *how, "--execute")
    both.run(*name, "--describe")
    assert both.run(*read, "--max-messages", 1)[0] == "a"
    both.run(*name, "--delete-offsets", "--topic", new_topic)
    both.run(*name, "--delete-offsets", "--topic", "no-such-topic", status=None)
    both.run(*name, "--delete")
    both.run(*name, "--delete", status=None)
    both.run(*name, "--describe", status=None)
    assert both.run("consumer-groups", "--list", but=lines_with(group)) == []


def test_records_are_deleted_and_offsets_reported(both, new_topic, tmp_path):
    produce(both, new_topic, *"abcdef")
    asked = ("get-offsets", "--topic", new_topic, "--time")
    assert both.run(*asked, -1) == [f"{new_topic}:0:6"]
    assert both.run(*asked, -2) == [f"{new_topic}:0:0"]
    file = tmp_path / "offsets.json"

    def delete(offset):
        partition = {"topic": new_topic, "partition": 0, "offset": offset}
        file.write_text(json.dumps({"partitions": [partition], "version": 1}))
        both.run("delete-records", "--offset-json-file", file, status=None)

    delete(4)
    assert both.run(*asked, -2) == [f"{new_topic}:0:4"]
    delete(2)
    delete(99)
    delete(-1)
    assert both.run(*asked, -2) == [f"{new_topic}:0:6"]


def test_log_dirs(both, new_topic):
    produce(both, new_topic, *"abc")

    def partitions(lines):
        found = json.loads(lines[-1])
        (directory,) = found["brokers"][0]["logDirs"]
        assert directory["error"] is None
        # The producer's times decide how many bytes the differences between them take.
        assert all(partition.pop("size") > 0 for partition in directory["partitions"])
        return lines[:-1] + directory["partitions"]

    *_, partition = both.run("log-dirs", "--describe", "--topic-list", new_topic, but=partitions)
    assert partition["partition"] == f"{new_topic}-0"


def test_supported_versions_are_reported(both):
    def versions(lines):
        found = (re.match(r"\s*(\w+\(\d+\)): ([^,\[]+)", line) for line in lines)
        return {it[1]: it[2] for it in found if it and it[2] != "UNSUPPORTED"}

    ours, theirs = (versions(both.run_on(address, "api-versions")) for address in both.addresses)
    assert ours.items() <= theirs.items()
    assert len(ours) >= 30
    if both.version > "3":
        both.run("cluster", "cluster-id", but=lambda lines: [re.sub(r": \S+$", "", *lines)])


def test_many_records_at_full_speed(both, new_topic):
    """Measurements are printed under the same labels."""
    sent = both.run(
        "producer-perf", "--topic", new_topic, "--num-records", 5000, "--record-size", 100,
        "--throughput", -1, but=lambda lines: without_numbers(lines[-1:]),
    )  # fmt: skip
    assert "records sent" in sent[0]
    for address in both.addresses:
        read = both.run_on(
            address, "consumer-perf", "--topic", new_topic, "--messages", 5000, "--timeout", 20_000
        )
        header, values = (line.split(", ") for line in read[:2])
        assert values[header.index("data.consumed.in.nMsg")] == "5000"


def test_verifiable_clients(both, new_topic, topic):
    def events(lines):
        """Return the events without their times; a stop may or may not be reported."""
        found = [json.loads(line) for line in lines if line.startswith("{")]
        for event in found:
            event.pop("timestamp", None)
            for key in [key for key in event if "throughput" in key]:
                event.pop(key)
        return found

    sent = both.run(
        "verifiable-producer", "--topic", new_topic, "--max-messages", 20, "--acks", -1, but=events
    )
    assert [event["value"] for event in sent if event["name"] == "producer_send_success"] == [
        str(n) for n in range(20)
    ]
    assert sent[-1]["acked"] == 20

    def summary(lines):
        """How it is cut into polls is chance."""
        found = events(lines)
        consumed = [event["count"] for event in found if event["name"] == "records_consumed"]
        commits = [e["offsets"] for e in found if e["name"] == "offsets_committed"]
        return [sorted({event["name"] for event in found}), sum(consumed), commits[-1]]

    names, consumed, _ = both.run(
        "verifiable-consumer", "--topic", new_topic, "--group-id", f"group-{topic}",
        "--max-messages", 20, "--reset-policy", "earliest", but=summary,
    )  # fmt: skip
    assert consumed == 20
    assert {"partitions_assigned", "offsets_committed", "records_consumed"} <= set(names)


def test_a_topic_that_is_not_there(both, topic):
    both.run("get-offsets", "--topic", topic, status=None)
    both.run("consumer-groups", "--describe", "--group", f"group-{topic}", status=None)
    both.run("consumer-groups", "--delete", "--group", f"group-{topic}", status=None)
    both.run("topics", "--delete", "--topic", topic, status=1)
    both.run("topics", "--alter", "--topic", topic, "--partitions", 3, status=1)
