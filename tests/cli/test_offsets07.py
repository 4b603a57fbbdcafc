"""What kctl shows and commits of the offsets of Kafka 0.7, which are positions in bytes."""

import pytest

from kctl.protocol.kafka07 import ProduceRequest
from kctl.records.message07 import GZIP, message_set
from tests.serve.test_kafka07 import Client07
from tests.support import apache_kafka
from tests.support.kctl_broker07 import write07
from tests.support.kctl_process import KctlBroker
from tests.support.waiting import wait_for
from tests.support.zookeeper_session import zookeeper_session

SET = message_set([b"x" * 90])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The port of a broker with 300 bytes in t-0 and 100 in t-1, and the address of its store."""
    store_port = apache_kafka.free_port()
    directory = tmp_path_factory.mktemp("broker07")
    words = ("--kafka-0.7", "--zookeeper-port", str(store_port), "-c", "num.partitions=2")
    broker = KctlBroker(directory, *words, "-c", "log.file.size=150").start()
    try:
        with Client07(broker.port) as client:
            for partition in (0, 0, 0, 1):
                client.send(ProduceRequest("t", partition, SET))
            assert (client.end("t", 0), client.end("t", 1)) == (300, 100)
        yield broker.port, f"127.0.0.1:{store_port}"
    finally:
        broker.stop()


@pytest.fixture
def store(cluster):
    with zookeeper_session(cluster[1]) as client:
        yield client


def test_the_lag_of_a_group_is_counted_in_bytes(kctl, cluster, store):
    # Of these, broker 0 has two partitions of t, and broker 7 is not registered.
    for partition, offset in {"0-0": 100, "0-1": 100, "0-9": 5, "7-0": 5}.items():
        store.create(f"/consumers/g/offsets/t/{partition}", b"%d" % offset, makepath=True)
    store.create("/consumers/g/offsets/u/0-0", b"0", makepath=True)
    ran = kctl("group", "describe", "g", "--zookeeper", cluster[1], "-o", "json")
    [group] = ran.documents
    shown = {
        f"{it['topic']}-{it['partition']}": (it["end_offset"], it["lag"])
        for it in group["partitions"]
    }
    assert shown == {
        "t-0-0": (300, 200),
        "t-0-1": (100, 0),
        "t-0-9": (None, None),
        "t-7-0": (None, None),
        "u-0-0": (0, 0),
    }
    assert (ran.status, group["total_lag"]) == (0, 200)
    errors = [it["error"] for it in group["partitions"] if it["error"]]
    assert "lost the connection" in errors[0]
    assert errors[1] == "No broker 7 of Kafka 0.7 is registered"


def test_a_broker_that_is_gone_is_an_error_of_its_partitions(kctl, store, cluster):
    port = apache_kafka.free_port()
    store.create("/gone/brokers/ids/3", b"h-1:127.0.0.1:%d" % port, makepath=True)
    for number in range(5):
        path = f"/gone/consumers/g/offsets/t/3-{number}"
        store.create(path, b"1", makepath=True)
    ran = kctl("group", "describe", "g", "--zookeeper", f"{cluster[1]}/gone", "-o", "json")
    [group] = ran.documents
    assert (ran.status, group["total_lag"]) == (0, None)
    assert all(f"127.0.0.1:{port}" in it["error"] for it in group["partitions"])


@pytest.fixture
def offsets(kctl, cluster):
    """Run the command, and return its result."""
    return lambda *words: kctl("topic", "offsets-07", *words, "-b", f"127.0.0.1:{cluster[0]}")


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ((), [300]),
        (("--time", "-1"), [300]),
        (("--time", "-2"), [0]),
        (("--time", "earliest"), [0]),
        (("--max", 9), [300, 200, 0]),
        (("--max", 0), []),
        (("--time", "2100-01-31", "--max", 9), [300, 200, 0]),
        (("--time", "2012-01-31", "--max", 9), []),
    ],
)
def test_offsets_are_listed_for_a_time(offsets, options, found):
    ran = offsets("t:0", *options, "-o", "json")
    assert ran.status == 0
    [shown] = ran.documents
    assert shown == {"topic": "t", "partition": 0, "offsets": found, "error": None}


def test_offsets_of_several_partitions_are_listed_beside_errors(offsets):
    ran = offsets("t:1,5", "new:0")
    assert ran.status == 1
    assert [line.split() for line in ran.out.splitlines()[1:]] == [
        ["t", "1", "100"],
        ["t", "5", "-"],
        ["new", "0", "0"],
    ]
    assert "t-5: lost the connection" in ran.err


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("t",), "t:0"),
        (("t:0", "--time", "soon"), "Not a time: soon"),
        (("t:0", "--expect-cluster", "other"), "not other"),
    ],
)
def test_what_cannot_be_asked_is_refused(offsets, words, names):
    ran = offsets(*words)
    assert ran.status != 0
    assert names in ran.err


def test_one_broker_is_asked(kctl):
    ran = kctl("topic", "offsets-07", "t:0", "-b", "a:1,b:2")
    assert (ran.status, "on one broker" in ran.err) == (2, True)


def test_consume_commits_positions_as_a_member_of_a_group(kctl, cluster, store):
    write07(cluster[0], "printed", message_set([b"one"]))
    end = write07(cluster[0], "printed", message_set([b"two", b"three"], GZIP))
    wait_for(lambda: store.exists("/brokers/topics/printed/0"), lambda: "not registered")
    words = ("consume", "printed", "-g", "prints", "--zookeeper", cluster[1], "-B", "-m", 2)
    first = kctl(*words)
    assert (first.status, first.out.split()) == (0, ["one", "two"]), first.err
    # A compressed set is read again as long as not all of it was printed.
    second = kctl(*words)
    assert (second.status, second.out.split()) == (0, ["two", "three"]), second.err
    assert store.get("/consumers/prints/offsets/printed/0-0")[0] == b"%d" % end


def test_consume_names_the_broker_of_a_partition(kctl, cluster):
    on = ("-g", "named", "--zookeeper", cluster[1], "-B", "-m", 1)
    as_json, as_name = (kctl("consume", "t", *on, "-o", form) for form in ("json", "name"))
    assert [it["partition"] for it in as_json.documents] == ["0-0"]
    assert as_name.out.startswith("t-0-0@")


def test_consume_reads_on_from_segment_to_segment(kctl, cluster, store):
    on = ("-g", "all", "--zookeeper", cluster[1], "-B")
    ran = kctl("consume", "t", *on, "-m", 4, "-f", r"{partition} {offset}\n")
    assert ran.status == 0, ran.err
    assert sorted(ran.out.splitlines()) == ["0-0 0", "0-0 100", "0-0 200", "0-1 0"]
    path = "/consumers/all/offsets/t"
    assert {it: store.get(f"{path}/{it}")[0] for it in store.get_children(path)} == {
        "0-0": b"300",
        "0-1": b"100",
    }
