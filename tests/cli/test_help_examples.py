"""The examples of every command's help: all of them parse, and those that need no more than a
broker and files do what they say."""

import re
import shlex

import pytest

from kctl.cli.app import build_app, insert_default_command
from kctl.cli.declaration import quick
from kctl.cli.declaration.spec import CommandSpec
from kctl.records.builder import build_batch
from kctl.records.record import Record
from kctl.repair.rebuild import Wanted, rebuild
from kctl.runtime.real.disk import RealDisk
from tests.cli import bad_input
from tests.support.golden07 import copy07
from tests.support.kctl_process import KEEPS_OLD_RECORDS_FLAGS, KctlBroker

T0_MS = 1_600_000_000_000
APP = build_app([], everything=True)

# Commands whose examples are run, in this order: those that delete something are the last.
RUN = (
    "topic list", "topic describe", "produce", "consume", "topic alter",
    "config describe", "config alter", "group list", "group describe", "group lag",
    "group reset-offsets",
    "group clone-offsets", "group export-offsets", "group import-offsets", "group delete-offsets",
    "group delete", "txn list", "txn describe", "txn hanging", "txn abort", "user list",
    "user delete", "cluster describe", "cluster health", "broker describe", "throttle show",
    "throttle sweep", "reassign list", "reassign watch", "elect preferred", "dump-log",
    "verify-log", "repair-log", "completion", "topic purge", "topic delete", "topic create",
)  # fmt: skip
# Examples with one of these texts are only parsed.
NOT_RUN = {
    "completion install": "writes to the home directory",
    "topic create orders": "needs three brokers, or a topic that does not exist",
    "broker describe 3": "needs a broker 3",
    "txn abort --topic": "needs a hanging transaction",
    "--window 1m": "takes a minute",
    "kctl quota top": "runs until it is interrupted",
    "kctl top": "runs until it is interrupted, but for --once",
    "--watch": "runs until it is interrupted",
    "--spark": "needs Spark",
    "broker2": "needs a second broker",
    "--zookeeper": "needs ZooKeeper",
    "avro": "needs the extra avro",
    "--type": "needs Kafka 3.8",
    "group delete billing": "its offsets are deleted by then",
    "user delete alice bob": "alice is deleted by then",
    "--cut 1200..1260": "these offsets are truncated by then",
    "config alter logger": "its logger is Apache Kafka's",
}


def examples():
    """Return (command, line) of each example."""
    return [
        (" ".join(spec.path), line.strip())
        for spec in bad_input.specs()
        for line in re.sub(r" \\\\?\n\s*", " ", spec.help).splitlines()
        if re.match(r"\s*(\S.* \| )?kctl ", line) and not line.strip().startswith("(")
    ]


EXAMPLES = examples()


def commands_in(line):
    """Return the words of each `kctl` in a pipeline or list."""
    segments = [shlex.split(part) for part in re.split(r" (?:\||&&) ", line)]
    cut = [words[: words.index(">")] if ">" in words else words for words in segments]
    return [insert_default_command(words[1:]) for words in cut if words[0] == "kctl"]


def spec_of(words):
    found = quick.find_command(APP, words)
    assert isinstance(found, CommandSpec), words
    return found


@pytest.mark.parametrize(("command", "line"), EXAMPLES, ids=lambda it: it[:60])
def test_an_example_parses(command, line):
    for words in commands_in(line):
        spec = spec_of(words)
        assert quick.parse(spec, words[len(spec.path) :]) is not None, command


def test_there_are_examples_of_every_command():
    assert {command for command, _ in EXAMPLES} == {" ".join(it.path) for it in bad_input.specs()}


def test_examples_are_lines_of_their_own():
    """click joins what follows a paragraph without an empty line before the backspace."""
    joined = [
        " ".join(it.path)
        for it in bad_input.specs()
        if re.search(r"\S[ \t]*\n[ \t]*\x08", it.help) or "\x08\n" not in it.help
    ]
    assert joined == []


@pytest.fixture(scope="module")
def kctl_broker(tmp_path_factory):
    """A broker of its own: the examples see, and leave, users, topics and groups."""
    with KctlBroker(tmp_path_factory.mktemp("kctl"), *KEEPS_OLD_RECORDS_FLAGS) as broker:
        yield broker.address


@pytest.fixture
def world(kctl, kctl_broker, monkeypatch, tmp_path):
    """What the examples name: topics, groups, a transactional id, files."""
    monkeypatch.chdir(tmp_path)

    def on(*words):
        return kctl(*words, "-b", kctl_broker)

    (tmp_path / "orders.txt").write_text("".join(f"key-{n}:value-{n}\n" for n in range(9)))
    for name in ("offsets.csv", "groups.csv"):
        group = "billing," if name == "groups.csv" else ""
        (tmp_path / name).write_text(f"{group}orders,0,1\n{group}orders,1,1\n")
    for topic, partitions in (("orders", 12), ("payments", 1), ("users", 1), ("copy", 1)):
        assert on("topic", "create", topic, "-p", partitions, "-r", 1).status == 0
    lines = "".join(f"{number}\n" for number in range(4300))
    (tmp_path / "records").write_text(lines)
    (tmp_path / "password").write_text("secret")
    for user in ("alice", "bob"):
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            words = ("--password-file", "password", "--mechanism", mechanism)
            assert on("user", "create", user, *words).status == 0
    for partition in range(4):
        assert on("produce", "orders", "-p", partition, "-f", "records").status == 0
    for group in ("billing", "prod-billing"):
        assert on("consume", "orders", "-g", group, "--from-beginning", "-m", 5).status == 0
    assert on("produce", "orders", "x", "--transactional-id", "nightly-import").status == 0
    data = tmp_path / "data" / "orders-0"
    data.mkdir(parents=True)
    (tmp_path / "data" / "meta.properties").write_text("version=0\nbroker.id=0\n")
    batches = [
        bytes(build_batch([Record(n, T0_MS + n, b"order-17", b"v")], partition_leader_epoch=0))
        for n in range(2000)
    ]
    (data / f"{0:020d}.log").write_bytes(b"".join(batches))
    rebuild(RealDisk(), str(data), Wanted())
    (tmp_path / "data" / "__consumer_offsets-3").mkdir()
    copy07("logs-clean", tmp_path / "archive" / "kafka-0.7")
    copy07("logs-clean/none-0", tmp_path / "archive" / "clicks-0")
    return tmp_path


def ready(words, spec, root, address):
    """Return `words` with paths below `root`, with the broker's address, and without questions."""
    words = [
        re.sub(r"^/(data|archive|mnt|tmp|tables|nfs)\b", f"{root}/\\1", word) for word in words
    ]
    words = [word.replace("*.log", f"{0:020d}.log") for word in words]
    words = [address if re.fullmatch(r"broker\d:9092", word) else word for word in words]
    options = {name for option in spec.options for name in option.options}
    if "--bootstrap-server" in options and "-b" not in words and str(root) not in " ".join(words):
        words += ["-b", address]
    if "--yes" in options and not {"-y", "--yes", "-n", "--dry-run"} & set(words):
        words.append("-y")
    if spec.path == ("consume",) and not {"-e", "--exit"} & set(words):
        words.append("--exit")
    return words


def to_run():
    """Return the examples that are run, in the order of RUN."""
    lines = [(command, line) for command, line in EXAMPLES if command in RUN]
    return [
        line
        for _, line in sorted(lines, key=lambda it: RUN.index(it[0]))
        if not any(text in line for text in NOT_RUN)
    ]


@pytest.mark.slow
def test_examples_do_what_they_say(world, kctl, kctl_broker):
    wrong = []
    for line in to_run():
        for words in commands_in(line):
            ran = kctl(*ready(words, spec_of(words), world, kctl_broker))
            if ran.status != 0:
                wrong.append(f"{line}: {ran.status} {ran.out} {ran.err}")
    assert not wrong, "\n".join(wrong)
