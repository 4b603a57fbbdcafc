"""ConsumerConnector in groups of Kafka 0.7: a broker of kctl's, over its own ZooKeeper port."""

import contextlib
import socket

import pytest

from kctl.errors import CorruptDataError, KctlError, UsageError
from kctl.kafka import ConsumerConnector, ConsumerTimeoutError, Whitelist
from kctl.kafka.claims import Claim
from kctl.kafka.connector_config import ConnectorConfig
from kctl.kafka.feeds import Feed
from kctl.kafka.message_set import FetchRequest, Format07, MessageSet
from kctl.kafka.rebalance import Lease
from kctl.kafka.stream_fetcher07 import StreamFetcher07
from kctl.kafka.streams import StreamQueue
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.records.message07 import GZIP, compressed_set, encode_entry, message_set
from kctl.store.consumer_registry import ConsumerRegistry
from kctl.store.consumer_znodes import BrokerPartition, ConsumedPartition
from kctl.store.database import ZnodeDatabase
from kctl.store.embedded import EmbeddedStore
from tests.support.kctl_broker07 import write07
from tests.support.kctl_consumer import KctlConsumer
from tests.support.kctl_process import KctlBroker
from tests.support.virtual_runtime import virtual_runtime
from tests.support.waiting import wait_for
from tests.support.zookeeper_session import zookeeper_session

kazoo_client = pytest.importorskip("kazoo.client")
PARTITIONS = 4


def broken(entry):
    """An entry whose last byte does not agree with its checksum."""
    return entry[:-1] + bytes([entry[-1] ^ 1])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A broker and the address of its ZooKeeper."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ("--kafka-0.7", "--zookeeper-port", str(port), "-c", f"num.partitions={PARTITIONS}")
    with KctlBroker(tmp_path_factory.mktemp("broker"), *options) as broker:
        yield broker, f"127.0.0.1:{port}"


@pytest.fixture
def store(cluster):
    with zookeeper_session(cluster[1]) as client:
        yield client


@pytest.fixture
def write(cluster, store):
    """Write a message set to a partition, and return the position after it."""

    def write(topic, entries, partition=0):
        end = write07(cluster[0].port, topic, entries, partition)
        wait_for(lambda: store.exists(f"/brokers/topics/{topic}/0"), lambda: "not registered")
        return end

    return write


@pytest.fixture
def connect(cluster):
    """Open members of a group; they are shut down at the end."""
    with contextlib.ExitStack() as members:

        def connect(group, **settings):
            given = {
                "zk.connect": cluster[1],
                "groupid": group,
                "zk.synctime.ms": 50,
                "fetcher.backoff.ms": 20,
                "autocommit.interval.ms": 50,
                "consumer.timeout.ms": 20,
            }
            given |= {name.replace("_", "."): value for name, value in settings.items()}
            return members.enter_context(ConsumerConnector(given))

        yield connect


def stream_of(connector, topic):
    return connector.create_message_streams({topic: 1})[topic][0]


def waiting(stream):
    """The messages that a stream has now."""
    found = []
    with contextlib.suppress(ConsumerTimeoutError):
        found.extend(stream)
    return found


def read(count, *streams):
    """So many messages of streams, and no more than that."""
    found = []

    def is_enough():
        for stream in streams:
            found.extend(waiting(stream))
        return len(found) >= count

    wait_for(is_enough, lambda: f"{len(found)} of {count} messages")
    assert len(found) == count
    return found


def offsets(store, group, topic):
    path = f"/consumers/{group}/offsets/{topic}"
    names = store.get_children(path) if store.exists(path) else []
    return {name: int(store.get(f"{path}/{name}")[0]) for name in sorted(names)}


def owners(store, group, topic):
    path = f"/consumers/{group}/owners/{topic}"
    found = {}
    for name in store.get_children(path) if store.exists(path) else []:
        with contextlib.suppress(kazoo_client.NoNodeError):
            found[name] = store.get(f"{path}/{name}")[0].decode()
    return found


def test_two_members_share_a_topic_and_commit_positions(store, write, connect):
    ends = {
        f"0-{number}": write("shared", message_set([b"%d" % number] * 5), number)
        for number in range(PARTITIONS)
    }
    first, second = connect("two"), connect("two")
    streams = [stream_of(it, "shared") for it in (first, second)]
    wait_for(
        lambda: (
            len(owners(store, "two", "shared")) == PARTITIONS
            and len(set(owners(store, "two", "shared").values())) == 2
        ),
        lambda: str(owners(store, "two", "shared")),
    )
    found = read(5 * PARTITIONS, *streams)
    assert {(it.broker_id, it.partition, int(it.value)) for it in found} == {
        (0, number, number) for number in range(PARTITIONS)
    }
    # As 0.7 registers a member, blanks included.
    members = sorted(store.get_children("/consumers/two/ids"))
    assert [store.get(f"/consumers/two/ids/{it}")[0] for it in members] == [b'{ "shared": 1 }'] * 2
    # By range: the first member in order has the first partitions, in order as texts.
    held = owners(store, "two", "shared")
    assert [held[name] for name in sorted(held)] == [f"{members[n // 2]}-0" for n in range(4)]
    wait_for(lambda: offsets(store, "two", "shared") == ends, lambda: str(ends))
    second.shutdown()
    for number in range(PARTITIONS):
        write("shared", message_set([b"later"]), number)
    assert {it.offset for it in read(PARTITIONS, streams[0])} == set(ends.values())


@pytest.mark.slow
def test_a_killed_members_partitions_go_to_another_with_what_it_did_not_commit(
    cluster, store, write, connect
):
    for number in range(PARTITIONS):
        write("killed", message_set([b"%d" % number]), number)
    survivor = connect("kill")
    with KctlConsumer(cluster[1], "kill", {"killed": 1}, auto_commit_enable="false") as other:
        wait_for(lambda: len(other.said("message")) == PARTITIONS, lambda: str(other.events))
        stream = stream_of(survivor, "killed")
        wait_for(
            lambda: len(set(owners(store, "kill", "killed").values())) == 2,
            lambda: str(owners(store, "kill", "killed")),
        )
        read(PARTITIONS // 2, stream)
        other.process.kill()
        found = read(PARTITIONS // 2, stream)
    assert len({it.partition for it in found}) == PARTITIONS // 2
    assert set(owners(store, "kill", "killed")) == {f"0-{n}" for n in range(PARTITIONS)}


def test_within_a_compressed_set_the_offset_is_that_of_the_set(store, write, connect):
    start = write("packed", message_set([b"plain"]))
    end = write("packed", message_set([b"a", b"b", b"c"], GZIP))
    connector = connect("packed", autocommit_enable="false", consumer_timeout_ms=60_000)
    stream = stream_of(connector, "packed")
    committed = []
    for value in (b"plain", b"a", b"b", b"c"):
        assert next(stream).value == value
        connector.commit_offsets()
        committed.append(offsets(store, "packed", "packed").get("0-0"))
    # Each message counts once the next is asked for.
    assert committed == [0, start, start, start]
    write("packed", message_set([b"d"]))
    assert next(stream).offset == end
    connector.commit_offsets()
    assert offsets(store, "packed", "packed")["0-0"] == end


def test_where_nothing_is_read_the_offset_of_the_start_is_committed(store, write, connect):
    end = write("quiet", message_set([b"old"]))
    stream_of(connect("quiet", autooffset_reset="largest", autocommit_enable=False), "quiet")
    expected = {"0-0": end, "0-1": 0, "0-2": 0, "0-3": 0}
    wait_for(
        lambda: offsets(store, "quiet", "quiet") == expected,
        lambda: str(offsets(store, "quiet", "quiet")),
    )


def test_an_offset_that_the_broker_does_not_have_is_reset(store, write, connect):
    write("reset", message_set([b"x"]))
    store.create("/consumers/reset/offsets/reset/0-0", b"100000", makepath=True)
    stream = stream_of(connect("reset", autocommit_enable=False), "reset")
    assert [it.value for it in read(1, stream)] == [b"x"]
    wait_for(
        lambda: offsets(store, "reset", "reset")["0-0"] == 0,
        lambda: str(offsets(store, "reset", "reset")),
    )


def test_the_fetch_size_doubles_for_a_large_message_up_to_its_limit(write, connect):
    write("large", message_set([b"x" * 1000, b"y" * 5000]))
    limits = {"fetch_size": 100, "fetch_size_max": 2000, "consumer_timeout_ms": 60_000}
    stream = stream_of(connect("large", **limits), "large")
    assert next(stream).value == b"x" * 1000
    with pytest.raises(KctlError, match=r"5010 bytes at offset 1010, .* fetch\.size\.max=2000"):
        next(stream)


def test_a_filter_sees_a_topic_that_comes_later(store, write, connect):
    [stream] = connect("filter").create_message_streams_by_filter(Whitelist("new.*"), 1)
    ids = "/consumers/filter/ids"
    wait_for(lambda: store.exists(ids) and store.get_children(ids), lambda: "no member")
    [member] = store.get_children("/consumers/filter/ids")
    assert store.get(f"/consumers/filter/ids/{member}")[0] == b"*1*new.*"
    write("newer", message_set([b"1"]))
    write("old", message_set([b"2"]))
    assert [(it.topic, it.value) for it in read(1, stream)] == [("newer", b"1")]


def test_a_broker_that_goes_and_comes_back_elsewhere_is_read_on(
    cluster, store, write, connect, tmp_path
):
    options = ("--kafka-0.7", "--zookeeper", cluster[1], "-c", "brokerid=1")
    with KctlBroker(tmp_path, *options) as other:
        write("moves", message_set([b"here"]))
        end = write07(other.port, "moves", message_set([b"there"]))
        stream = stream_of(connect("moves"), "moves")
        found = read(2, stream)
        assert {(it.broker_id, it.value) for it in found} == {(0, b"here"), (1, b"there")}
        expected = {"1-0": end, **{f"0-{it}": 0 for it in range(1, PARTITIONS)}}
        wait_for(
            lambda: expected.items() <= offsets(store, "moves", "moves").items(),
            lambda: str(offsets(store, "moves", "moves")),
        )
        old_port = other.port
        other.stop()
        wait_for(
            lambda: "1-0" not in owners(store, "moves", "moves"),
            lambda: str(owners(store, "moves", "moves")),
        )
        with socket.create_server(("127.0.0.1", 0)) as free:
            other.port = free.getsockname()[1]
        assert other.start().port != old_port
        write07(other.port, "moves", message_set([b"again"]))
        [message] = read(1, stream)
        assert (message.broker_id, message.offset, message.value) == (1, end, b"again")


@pytest.mark.parametrize(
    ("damaged", "values"),
    [
        # The checksum of the second of two messages.
        (message_set([b"first"]) + broken(encode_entry(b"second")), [b"first"]),
        # A compressed set, whose messages have no offsets of their own, is handed out whole or not.
        (
            message_set([b"first"])
            + compressed_set(message_set([b"in"]) + broken(encode_entry(b"second")), GZIP),
            [b"first"],
        ),
    ],
)
def test_what_comes_before_damage_is_handed_out_once_and_then_the_stream_raises(damaged, values):
    runtime = virtual_runtime()
    config = ConnectorConfig({"zk.connect": "zk:2181", "groupid": "g"})
    store = EmbeddedStore(runtime, ZnodeDatabase.in_memory(runtime))
    fetcher = StreamFetcher07(runtime, ConsumerRegistry(store), config, on_reset=lambda *_: None)
    lease = Lease(60_000)
    lease.answered(runtime.clock.monotonic_ms())
    partition = ConsumedPartition("t", BrokerPartition(0, 0))
    queue = StreamQueue(runtime, 0)
    feed = Feed(Claim(partition, 0, lease, 0), queue, 1 << 20)

    def fetch():
        data = damaged[feed.offset :]
        found = MessageSet(FetchRequest("t", 0, feed.offset, 1 << 20), data, Format07)
        return fetcher._take(feed, found)

    def next_chunk():
        task = runtime.scheduler.spawn(queue.next_chunk())
        runtime.scheduler.settle()
        return task.result()

    assert fetch()
    chunk = next_chunk()
    assert [it.value for it in chunk.records] == values
    assert chunk.next_offset == feed.offset == len(message_set([b"first"]))
    assert not fetch()
    with pytest.raises(CorruptDataError):
        next_chunk()
    assert feed.is_stuck


def test_a_partition_that_fails_is_logged_once_while_others_of_its_broker_are_read():
    class Wire:
        async def offsets_before(self, topic, partition, time_ms, count):
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)

        async def fetch(self, requests, max_wait_ms, min_bytes):
            return [MessageSet(it, b"", Format07) for it in requests]

    runtime = virtual_runtime()
    config = ConnectorConfig({"zk.connect": "zk:2181", "groupid": "g"})
    store = EmbeddedStore(runtime, ZnodeDatabase.in_memory(runtime))
    fetcher = StreamFetcher07(runtime, ConsumerRegistry(store), config, on_reset=lambda *_: None)
    fetcher._wires[0] = Wire()
    lease = Lease(60_000)
    lease.answered(runtime.clock.monotonic_ms())
    for number, offset in ((0, 0), (1, None), (2, None)):
        partition = ConsumedPartition("t", BrokerPartition(0, number))
        fetcher.add(Claim(partition, 0, lease, offset), StreamQueue(runtime, 0))
    running = runtime.scheduler.spawn(fetcher.run())
    runtime.scheduler.advance(10_000)
    running.cancel()
    lines = [line for line in runtime.trace.warnings if line.startswith("Broker 0: t-0-")]
    assert sorted(line[: len("Broker 0: t-0-N")] for line in lines) == [
        "Broker 0: t-0-1",
        "Broker 0: t-0-2",
    ]


@pytest.mark.parametrize(
    "setting",
    [
        {"offsets.storage": "kafka"},
        {"security.protocol": "SSL"},
        {"partition.assignment.strategy": "roundrobin"},
    ],
)
def test_settings_that_kafka_07_does_not_have_are_refused(cluster, setting):
    with pytest.raises(UsageError, match=r"are of Kafka 0\.7, which has no"):
        ConsumerConnector({"zookeeper.connect": cluster[1], "group.id": "g"} | setting)
