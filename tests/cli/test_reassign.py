"""kctl reassign, throttle, elect, cluster, broker on three kctl brokers in three racks, and on two
brokers of Apache Kafka 2.7.2."""

import json
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from tests.support import apache_kafka
from tests.support.kctl_process import KctlBroker
from tests.support.waiting import wait_for
from tests.support.zookeeper import running_zookeeper

PATIENCE_S = 120


@pytest.fixture(scope="module")
def kctl_cluster(tmp_path_factory):
    directory = tmp_path_factory.mktemp("cluster")
    with KctlBroker(directory, "--brokers", "3", "--racks", "a,b,c"):
        yield (directory / "ready").read_text().strip()


@pytest.fixture(scope="module")
def apache_cluster(tmp_path_factory):
    if apache_kafka.libs() is None:
        pytest.skip("no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2")
    with ExitStack() as stack:
        zookeeper = stack.enter_context(running_zookeeper(tmp_path_factory.mktemp("zookeeper")))
        directory = tmp_path_factory.mktemp("apache")
        addresses = []
        for broker_id, rack in ((1, "a"), (2, "b"), (3, "c")):
            home = directory / str(broker_id)
            dirs = f"{home}/logs,{home}/more"
            settings = {"broker.rack": rack, "log.dirs": dirs}
            broker = apache_kafka.apache_broker(
                home, zookeeper.address, broker_id=broker_id, settings=settings
            )
            addresses.append(stack.enter_context(broker))
        yield ",".join(addresses)


@pytest.fixture(params=["kctl", pytest.param("apache", marks=pytest.mark.kafka)], scope="module")
def address(request):
    """Three brokers of kctl's, then of Apache Kafka 2.7.2."""
    return request.getfixturevalue(f"{request.param}_cluster")


@pytest.fixture(autouse=True)
def state(monkeypatch, tmp_path):
    """Records of throttles are the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "kctl" / "throttles"


@pytest.fixture
def topic(kctl, address, topic):
    """The topic of conftest, once each broker knows it: a plan asks any of them."""
    for each in address.split(","):
        wait_for(
            lambda each=each: kctl("topic", "describe", topic, "-b", each).status == 0,
            lambda each=each: f"{each} does not know {topic}",
        )
    return topic


@pytest.fixture
def make_topic(on, tmp_path, name):
    """Creates a topic with these replicas and some bytes in each partition; its name."""

    def make(*assignment, records=200):
        words = ",".join(":".join(map(str, brokers)) for brokers in assignment)
        done = on("topic", "create", name, "--replica-assignment", words)
        assert done.status == 0, done.err
        path = tmp_path / "records"
        path.write_text("".join(f"{'x' * 1000}\n" for _ in range(records)))
        for number in range(len(assignment)):
            until(lambda n=number: on("produce", name, "-p", n, "-f", path).status == 0, "there")
        return name

    return make


def described(on, topic):
    [found] = on("topic", "describe", topic, "-o", "json").documents
    return found["partitions"]


def replicas(on, topic):
    return [tuple(it["replicas"]) for it in described(on, topic)]


def until(condition, what):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def test_a_plan_is_kafkas_json_and_its_rollback_undoes_it(on, make_topic, tmp_path):
    topic = make_topic((1, 2), (2, 1))
    path = tmp_path / "plan.json"
    ran = on("reassign", "plan", "move", topic, 2, 3, "--out", path, "-o", "json")
    assert ran.status == 0
    assert (ran.documents["moves"], ran.documents["bytes_to_move"] > 400_000) == (2, True)
    assert json.loads(path.read_text()) == {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": n, "replicas": brokers, "log_dirs": ["any", "any"]}
            for n, brokers in enumerate([[1, 3], [3, 1]])
        ],
    }
    ran = on("reassign", "execute", path, "--wait", "--yes", "-o", "json")
    assert [it["status"] for it in ran.documents] == ["moved", "moved"]
    assert replicas(on, topic) == [(1, 3), (3, 1)]
    assert on("reassign", "verify", path).status == 0

    undone = on("reassign", "execute", tmp_path / "plan.rollback.json", "--wait", "-y")
    assert undone.status == 0
    assert replicas(on, topic) == [(1, 2), (2, 1)]
    ran = on("reassign", "verify", path, "-o", "json")
    assert ran.status == 1
    assert ran.documents[0]["error"] == "is on 1, 2 and not on the move there"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_plan_is_written_before_it_is_printed(make_topic, without, address, tmp_path, stream):
    """`reassign plan ... --out FILE 2>&1 | head` loses what is printed, and not the file."""
    topic = make_topic((1, 2), records=1)
    path = tmp_path / "plan.json"
    words = ["reassign", "plan", "move", topic, 2, 3, "--out", path, "-b", address]
    assert without(stream, *words).status == 141
    assert json.loads(path.read_text())["partitions"][0]["replicas"] == [1, 3]
    assert path.with_name("plan.rollback.json").exists()


def test_a_dry_run_and_an_unconfirmed_plan_move_nothing(on, address, make_topic, tmp_path):
    topic = make_topic((1,), records=1)
    path = tmp_path / "plan.json"
    planned = on("reassign", "plan", "move", f"{topic}:0", 1, 2, "--out", path)
    assert planned.status == 0
    assert f"Next: kctl reassign execute {path} -b {address}\n" in planned.err
    ran = on("reassign", "execute", path, "-n", "-o", "json")
    assert [it["status"] for it in ran.documents] == ["would move"]
    ran = on("reassign", "execute", path)
    assert ran.status == 2
    assert "Not done without --yes" in ran.err
    assert replicas(on, topic) == [(1,)]


def test_a_throttle_is_in_force_during_the_move_and_gone_after_it(on, make_topic, tmp_path, state):
    topic = make_topic((1, 2), records=3000)
    path = tmp_path / "plan.json"
    setting = "follower.replication.throttled.replicas"
    assert on("config", "alter", "topic", topic, "-c", f"{setting}=7:7").status == 0
    assert on("reassign", "plan", "move", topic, 2, 3, "--out", path).status == 0
    assert on("reassign", "execute", path, "--throttle", "30kB", "-y").status == 0
    assert [it.name for it in state.iterdir()] != []

    # A broker reports its own settings, and may learn of them a moment later.
    shown, limit = {}, ("broker 3", "follower.replication.throttled.rate")
    deadline = time.monotonic() + 120
    while limit not in shown and time.monotonic() < deadline:
        documents = on("throttle", "show", "-o", "json").documents
        shown = {(it["resource"], it["setting"]): it for it in documents}
    rate = shown[limit]
    assert (rate["value"], rate["owner"]) == ("30000", "kctl")
    listed = shown[f"topic {topic}", setting]
    assert (listed["value"], listed["before"], listed["owner"]) == ("7:7,0:3", "7:7", "kctl")
    [moving] = on("reassign", "list", "-o", "json").documents
    assert (moving["adding"], moving["removing"]) == ([3], [2])
    [watched] = on("reassign", "watch", "--once", "-i", "200ms", "-o", "json").documents
    assert 0 <= watched["done_bytes"] < watched["total_bytes"]
    assert watched["total_bytes"] > 3_000_000

    assert on("throttle", "set", "100MB").status == 0
    # At this rate the move may be complete before the watch begins.
    watched = on("reassign", "watch", "-i", "200ms", "-o", "json").documents
    assert {it["share"] for it in watched} <= {"moved"}
    assert on("throttle", "sweep").status == 0

    def left():
        found = on("throttle", "show", "-o", "json").documents
        return [(it["setting"], it["value"]) for it in found]

    until(lambda: left() == [(setting, "7:7")], "as it was before")
    assert list(state.iterdir()) == []
    assert on("config", "alter", "topic", topic, "-d", setting, "-y").status == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_execution_that_is_stopped_keeps_its_throttle_while_replicas_move(
    on, make_topic, tmp_path, state, address, number
):
    """Ctrl-C and kill -9 leave the copy under its limit; a sweep removes it afterwards."""
    topic = make_topic((1,), records=2000)
    path = tmp_path / "plan.json"
    assert on("reassign", "plan", "move", topic, 1, 2, "--out", path).status == 0
    words = ("reassign", "execute", path, "--wait", "--throttle", "10kB", "-y", "-b", address)
    errors = tmp_path / "errors"
    with (
        errors.open("w") as err,
        subprocess.Popen([sys.executable, "-m", "kctl", *map(str, words)], stderr=err) as process,
    ):
        until(lambda: len(on("reassign", "list", "-o", "json").documents) == 1, "on the move")
        assert len(list(state.iterdir())) == 1
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == (130 if number == signal.SIGINT else -number)
    if number == signal.SIGINT:
        assert "kctl throttle sweep" in errors.read_text().splitlines()[-1]
    rates = [it["value"] for it in on("throttle", "show", "-o", "json").documents]
    assert "10000" in rates
    assert len(list(state.iterdir())) == 1

    sweep = ("throttle", "sweep", "-b", address)
    with subprocess.Popen(
        [sys.executable, "-m", "kctl", *sweep], stderr=subprocess.PIPE, text=True
    ) as waiting:
        assert "Waiting for 1 partition" in waiting.stderr.readline()
        assert on("reassign", "cancel", "--all", "-y").status == 0
        assert waiting.wait(PATIENCE_S) == 0
    until(lambda: on("throttle", "show", "-o", "json").documents == [], "throttle off")
    assert list(state.iterdir()) == []


def test_a_throttle_of_nothing_is_refused(on, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}')
    for words in (
        ("reassign", "execute", path, "--throttle", "0", "-y"),
        ("reassign", "--execute", "--reassignment-json-file", path, "--throttle", "0"),
        ("throttle", "set", "0"),
        ("broker", "decommission", "3", "--throttle", "0kB"),
    ):
        ran = on(*words)
        assert (ran.status, "copies nothing" in ran.err) == (2, True), ran.err


def test_a_cancelled_move_leaves_replicas_where_they_were(on, make_topic, tmp_path):
    topic = make_topic((1,), records=2000)
    path = tmp_path / "plan.json"
    assert on("reassign", "plan", "move", topic, 1, 2, "--out", path).status == 0
    assert on("reassign", "execute", path, "--throttle", "10kB", "-y").status == 0
    again = on("reassign", "execute", path, "-y")
    assert (again.status, "already moving" in again.err) == (2, True)
    ran = on("reassign", "cancel", path, "--yes", "-o", "json")
    assert [(it["status"], it["after"]) for it in ran.documents] == [("cancelled", [1])]
    until(lambda: on("reassign", "list", "-o", "json").documents == [], "cancelled")
    assert replicas(on, topic) == [(1,)]
    assert on("throttle", "sweep").status == 0


def test_a_directory_that_a_broker_has_not_is_refused_before_anything_moves(
    on, make_topic, tmp_path
):
    topic = make_topic((1,), records=1)
    path = tmp_path / "plan.json"
    move = {"topic": topic, "partition": 0, "replicas": [2], "log_dirs": ["/nowhere"]}
    path.write_text(json.dumps({"version": 1, "partitions": [move]}))
    ran = on("reassign", "execute", path, "--wait", "--yes")
    assert (ran.status, replicas(on, topic)) == (1, [(1,)])
    assert "Broker 2 has no log directory /nowhere in use\nhint: it has /" in ran.err


def test_directories_of_a_broker_are_evened_out_watched_and_left_alone_again(kctl, tmp_path):
    dirs = [tmp_path / "one", tmp_path / "two"]
    setting = f"log.dirs={dirs[0]},{dirs[1]}"
    plan, records = tmp_path / "plan.json", tmp_path / "records"
    records.write_text("".join(f"{'x' * 1000}\n" for _ in range(100)))
    with KctlBroker(tmp_path / "b", "-c", setting, "-c", "replica.fetch.max.bytes=1000") as broker:

        def run(*words):
            return kctl(*words, "-b", broker.address)

        run("topic", "create", "t", "-p", "3")
        for number in (0, 2):
            run("produce", "t", "-p", number, "-f", records)
            run("produce", "t", "-p", number, "-f", records)
        source = next(path for path in dirs if (path / "t-0").exists())
        assert (source / "t-2").exists()
        [move] = run("reassign", "plan", "log-dirs", "--out", plan, "-o", "json").documents
        [other] = [path for path in dirs if path != source]
        assert (move["from"], move["to"]) == (str(source), str(other))
        ran = run("reassign", "execute", plan, "-y", "--throttle", "1", "-o", "json")
        assert [it["status"] for it in ran.documents] == ["on the move"]
        [seen] = run("reassign", "watch", "--once", "-i", "100ms", "-o", "json").documents
        assert (seen["adding"], seen["removing"]) == ([f"0:{other}"], [f"0:{source}"])
        assert 0 < seen["done_bytes"] < seen["total_bytes"]
        assert run("reassign", "verify", plan).status == 1
        ran = run("reassign", "cancel", plan, "-y", "-o", "json")
        assert [it["status"] for it in ran.documents] == ["cancelled"]
        run("throttle", "sweep", "-y")
        ran = run("reassign", "execute", plan, "-y", "--wait", "-o", "json")
        assert [it["status"] for it in ran.documents] == ["moved"]
        assert run("reassign", "verify", plan).status == 0
        assert (other / f"t-{move['partition']}").exists()
        assert run("reassign", "plan", "log-dirs", "-o", "json").documents == []


def test_the_flags_of_kafka_reassign_partitions_work(on, make_topic, tmp_path):
    topic = make_topic((1,), (1,), (1,), records=5)
    topics, path = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    ran = on("reassign", "--generate", "--topics-to-move-json-file", topics, "--broker-list", "2,3")
    assert ran.status == 0
    assert ran.lines[0] == "Current partition replica assignment"
    assert ran.lines[3] == "Proposed partition reassignment configuration"
    path.write_text(ran.lines[4])
    ran = on("reassign", "--execute", "--reassignment-json-file", path, "--throttle", "90000000")
    assert ran.status == 0, ran.err
    assert ran.lines[-1].startswith(f"Successfully started partition reassignments for {topic}-0,")
    verify = ("reassign", "--verify", "--reassignment-json-file", path)
    until(lambda: on(*verify).status == 0, "moved")
    assert {broker for it in replicas(on, topic) for broker in it} == {2, 3}
    until(lambda: on("throttle", "show", "-o", "json").documents == [], "throttle off")
    assert on("reassign", "--list", "-o", "json").documents == []


def test_preferred_leaders_are_elected_again(on, make_topic, tmp_path):
    topic = make_topic((1, 2), (2, 1), records=1)
    path = tmp_path / "plan.json"
    assert on("reassign", "plan", "swap-leader", f"{topic}:0", "--out", path).status == 0
    assert on("reassign", "execute", path, "--wait", "-y").status == 0
    until(lambda: replicas(on, topic)[0] == (2, 1), "swapped")

    def planned():
        ran = on("elect", "preferred", topic, "-n", "-o", "json")
        return [(it["partition"], it["leader"], it["status"]) for it in ran.documents]

    # Brokers hear of the swap in their own time.
    until(lambda: planned() == [(0, 1, "would elect")], "an election is due")
    ran = on("cluster", "health", "-o", "json")
    assert ("leader not preferred", f"{topic}-0") in {
        (it["check"], it["subject"]) for it in ran.documents
    }
    ran = on("elect", "preferred", topic, "-o", "json")
    assert [(it["new_leader"], it["status"]) for it in ran.documents] == [
        (2, "elected"),
        (None, "not needed"),
    ]
    until(lambda: [it["leader"] for it in described(on, topic)] == [2, 2], "led by 2")
    ran = on("elect", "unclean", f"{topic}:1", "-y", "-o", "json")
    assert [it["status"] for it in ran.documents] == ["not needed"]


def test_replication_factors_are_raised_over_racks_and_brokers_drained(on, make_topic, tmp_path):
    topic = make_topic((1,), records=1)
    path = tmp_path / "plan.json"
    assert on("reassign", "plan", "set-rf", topic, 2, "--out", path).status == 0
    assert on("reassign", "execute", path, "--wait", "-y").status == 0
    [now] = replicas(on, topic)
    assert (len(now), now[0]) == (2, 1)
    gone = now[1]
    ran = on("broker", "decommission", gone, "-y")
    assert ran.status == 0, ran.err
    assert f"Broker {gone} has no replicas" in ran.err
    [broker] = on("broker", "describe", gone, "-o", "json").documents
    assert (broker["alive"], broker["replicas"], broker["leaders"]) == (True, 0, 0)
    by_id = {
        it["broker"]: it for it in on("cluster", "describe", "-o", "json").documents["brokers"]
    }
    assert by_id[gone]["replicas"] == 0
    assert by_id[1]["replicas"] > 0


def test_nagios_gets_one_line_and_its_own_status(on, kctl):
    on("elect", "preferred", "--all")
    lines = []

    def is_settled():
        ran = on("cluster", "health", "--nagios")
        lines[:] = ran.lines
        # Apache's brokers keep replicas of topics that were deleted behind a cancelled move.
        return ran.status == 0 or re.match(r"KAFKA WARNING - \d+ leftover replica \|", ran.out)

    until(is_settled, "healthy")
    assert re.match(r"KAFKA (OK - 3 brokers, |WARNING - )", lines[0])
    assert len(lines) == 1
    unknown = kctl("cluster", "health", "--nagios", "-b", "localhost:1", "--timeout", "1s")
    assert (unknown.status, unknown.out[:16]) == (3, "KAFKA UNKNOWN - ")


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["reassign", "plan", "drain", "9"], 1, "No broker 9"),
        (["reassign", "plan", "flatten"], 2, "Not an intent: flatten"),
        (["reassign", "plan", "set-rf", "no-such", "2"], 1, "No topic no-such"),
        (["reassign", "execute", "/no/such/file"], 2, "Cannot read /no/such/file"),
        (["reassign", "--execute", "--verify"], 2, "Give one of --generate"),
        (["elect", "preferred"], 2, "No partitions given"),
        (["elect", "unclean", "no-such"], 1, "No topic no-such"),
        (["throttle", "set", "5MB"], 2, "No throttle of kctl's is in force"),
        (["throttle", "set", "much"], 2, "Not a size: much"),
        (["broker", "describe", "9"], 1, "No broker 9"),
    ],
)
def test_misuse_is_reported_in_one_line(on, words, status, message):
    ran = on(*words)
    assert ran.status == status
    assert message in ran.err.splitlines()[0]
    assert len(ran.err.splitlines()) <= 2


def test_the_loads_of_brokers_are_drawn_before_and_after(on, topic):
    ran = on("reassign", "plan", "move", topic, 1, 3, "--plot")
    assert ran.status == 0, ran.err
    bars = [line.split()[:2] for line in ran.lines[-6:]]

    assert bars == [[str(broker), when] for broker in (1, 2, 3) for when in ("before", "after")]
