"""A mirror of a server of Kafka 0.7: each message once, byte positions mapped exactly."""

from types import SimpleNamespace

import pytest

from kctl.broker07.broker import Broker07, Places
from kctl.broker07.config import parse_config
from kctl.cli import app
from kctl.errors import CorruptDataError
from kctl.mirror.directory_logs07 import DirectoryLogs07
from kctl.mirror.logs07 import ServerLogs07
from kctl.mirror.loss import Loss, LossKind, OnLoss
from kctl.mirror.map_topic import read_map
from kctl.mirror.messages07 import copy_messages
from kctl.mirror.raw_batches import NOT_MAPPED
from kctl.mirror.renames import parse_rename
from kctl.mirror.run import MirrorRun
from kctl.mirror.settings import MirrorSettings
from kctl.mirror.source07 import Source07
from kctl.mirror.topics import TopicChoice
from kctl.model import Endpoint, TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.records.compression import GZIP, NONE, SNAPPY
from kctl.records.message07 import message_set, messages
from kctl.runtime.real.loop_thread import LoopThread
from kctl.runtime.trace import NullTrace
from tests.support.golden07 import PAYLOADS07, copy07
from tests.support.kctl_broker07 import write07

LIMIT_S = 60


@pytest.fixture(scope="module")
def server07(tmp_path_factory):
    """A broker of Kafka 0.7 in this process, over the golden directory."""
    directory = copy07("logs-clean", tmp_path_factory.mktemp("g07") / "logs")
    given = {
        "brokerid": "0", "log.dir": str(directory), "port": "0", "log.flush.interval": "1",
        "hostname": "127.0.0.1", "enable.zookeeper": "false", "num.partitions": "2",
    }  # fmt: skip
    loop = LoopThread("kafka-0.7", NullTrace())
    broker = Broker07(
        loop.runtime, parse_config(given).config, Places(Endpoint("127.0.0.1", 0), "127.0.0.1")
    )
    loop.call(broker.start, timeout_s=LIMIT_S)
    yield SimpleNamespace(port=broker.endpoint.port, directory=directory)
    loop.call(broker.shutdown, timeout_s=LIMIT_S)
    loop.close(timeout_s=LIMIT_S)


def copied_from(clusters, server, *topics, name="old", **settings):
    choice = TopicChoice(topics, (), parse_rename("old.{topic}"))
    it = MirrorSettings(name, until_end=True, **settings)

    async def work(_source, target):
        logs = ServerLogs07(target.router.runtime, "127.0.0.1", server.port, topics, 30_000)
        try:
            return await MirrorRun(Source07(target.router.runtime, logs), target, choice, it).run()
        finally:
            logs.close()

    return clusters.do(work)


def values(clusters, topic, partition=0):
    return [it.value for it in clusters.target.records(f"old.{topic}", partition)]


def assert_positions_exact(clusters, server, topic, name):
    """Assert that each position that a consumer of 0.7 can be at leads to the record that it would
    read next."""
    path = next((server.directory / f"{topic}-0").glob("*.kafka"))
    data = path.read_bytes()
    found = clusters.do(lambda _, target: read_map(target.router, name))[TopicPartition(topic, 0)]
    there = [it.offset for it in clusters.target.records(f"old.{topic}", 0)]
    read = list(messages(data))
    for number, message in enumerate(read):
        if message.index_in_set == 0:
            assert found.to_target(message.position) == there[number]
    assert found.to_target(len(data)) == there[-1] + 1


def test_messages_of_all_codecs_are_copied_once_and_positions_are_exact(clusters, server07):
    names = ("none", "gzip", "snappy", "mixed", "nested", "rolled-mixed", "large", "empty-inside")

    report = copied_from(clusters, server07, *names)

    assert not report.has_failed
    for name in names:
        assert values(clusters, name) == PAYLOADS07[f"{name}-0"]
    assert values(clusters, "none", 1) == PAYLOADS07["none-1"]
    assert {it.timestamp for it in clusters.target.records("old.none")} == {-1}
    for name in ("none", "gzip", "mixed", "nested"):
        assert_positions_exact(clusters, server07, name, "old")


def test_a_mirror_continues_where_it_stopped_whatever_failed(clusters, server07):
    for codec in (NONE, GZIP):
        write07(server07.port, "more", message_set([b"a", b"b", b"c"], codec))
    assert not copied_from(clusters, server07, "more", name="more").has_failed
    end = write07(server07.port, "more", message_set([b"d", b"e"], SNAPPY))
    for api, code in (("Produce", 6), ("EndTxn", 15)):
        clusters.target.inject_error(api, ErrorCode(code), times=1)

    report = copied_from(clusters, server07, "more", name="more")

    assert [it.position for it in report.partitions if it.records] == [end]
    assert values(clusters, "more") == [b"a", b"b", b"c", b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_a_position_that_expired_is_found_behind_the_last_entry_of_the_map(
    clusters, server07, codec
):
    topic = f"idle-{codec}"
    write07(server07.port, topic, message_set([b"1", b"2"], codec))
    copied_from(clusters, server07, topic, name=topic)
    clusters.do(lambda _, b: b.groups.delete([f"kctl-mirror.{topic}"]))
    write07(server07.port, topic, message_set([b"3"], codec))

    assert not copied_from(clusters, server07, topic, name=topic).has_failed
    assert values(clusters, topic) == [b"1", b"2", b"3"]


def test_a_server_that_has_less_than_was_copied_is_a_loss(clusters, server07):
    write07(server07.port, "less", message_set([b"1"]))
    end = write07(server07.port, "less", message_set([b"2"]))
    copied_from(clusters, server07, "less", name="less")
    target = TopicPartition("old.less", 0)

    async def move(_source, admin):
        [found] = (await admin.offsets.committed("kctl-mirror.less", [target])).values()
        await admin.offsets.commit(
            "kctl-mirror.less", {target: end + 100}, {target: found.metadata}
        )

    clusters.do(move)

    [partition, _] = copied_from(clusters, server07, "less", name="less").partitions
    assert partition.error == Loss(LossKind.TRUNCATED, end, end + 100, end)


def copied_from_files(clusters, directory, *topics, name, **settings):
    """Mirror the files of a directory until the end, and return the report."""
    choice = TopicChoice(topics, (), parse_rename("files.{topic}"))
    it = MirrorSettings(name, until_end=True, **settings)

    async def work(_source, target):
        old = Source07(target.router.runtime, DirectoryLogs07([str(directory)]))
        return await MirrorRun(old, target, choice, it).run()

    return clusters.do(work)


def file_values(clusters, topic, partition=0):
    return [it.value for it in clusters.target.records(f"files.{topic}", partition)]


def write_log(directory, topic, *segments):
    """Write segments, each (base offset, bytes), and return the directory."""
    (directory / f"{topic}-0").mkdir(parents=True, exist_ok=True)
    for base, data in segments:
        (directory / f"{topic}-0" / f"{base:020}.kafka").write_bytes(data)
    return directory


@pytest.mark.slow
def test_files_are_copied_by_patterns_and_positions_are_exact(clusters, tmp_path):
    directory = copy07("logs-clean", tmp_path / "logs")

    report = copied_from_files(clusters, directory, "*ne*", "gzip", "rolled*", name="files")
    assert not report.has_failed
    for name in ("none", "gzip", "nested", "rolled", "rolled-mixed"):
        assert file_values(clusters, name) == PAYLOADS07[f"{name}-0"]
    assert file_values(clusters, "none", 1) == PAYLOADS07["none-1"]
    for name in ("none", "gzip", "nested"):
        path = next((directory / f"{name}-0").glob("*.kafka"))
        found = clusters.do(lambda _, target: read_map(target.router, "files"))
        there = [it.offset for it in clusters.target.records(f"files.{name}", 0)]
        for number, message in enumerate(messages(path.read_bytes())):
            if message.index_in_set == 0:
                at = TopicPartition(name, 0)
                assert found[at].to_target(message.position) == there[number]


@pytest.mark.slow
def test_a_second_run_continues_and_a_torn_end_waits_for_its_rest(clusters, tmp_path):
    first, second = message_set([b"1", b"2"]), message_set([b"3", b"4"], GZIP)
    directory = write_log(tmp_path, "torn", (0, first + second[:-3]))
    assert not copied_from_files(clusters, directory, "torn", name="torn").has_failed
    assert file_values(clusters, "torn") == [b"1", b"2"]
    write_log(directory, "torn", (0, first + second), (len(first + second), message_set([b"5"])))

    report = copied_from_files(clusters, directory, "torn", name="torn")

    assert [it.records for it in report.partitions] == [3]
    assert file_values(clusters, "torn") == [b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize("fault", ["checksum", "cut"])
def test_damage_in_a_file_stops_its_partition_with_the_byte(clusters, tmp_path, fault):
    intact, harmed = message_set([b"a", b"b"]), bytearray(message_set([b"c", b"d"]))
    after = message_set([b"e"])
    topic = f"harmed-{fault}"
    if fault == "checksum":
        harmed[-1] ^= 1
        segments = [(0, bytes(intact + harmed))]
        byte = len(intact) + len(harmed) // 2
    else:
        # The entry is not whole, and a segment follows.
        segments = [(0, bytes(intact + harmed)[:-4])]
        byte = len(intact) + len(harmed) // 2
    size = sum(len(data) for _, data in segments)
    directory = write_log(tmp_path, topic, *segments, (size, after))

    report = copied_from_files(clusters, directory, topic, name=topic)

    [partition] = report.partitions
    assert isinstance(partition.error, CorruptDataError)
    assert f"{0:020}.kafka at byte {byte}: " in str(partition.error)
    assert file_values(clusters, topic) == [b"a", b"b", b"c"]


@pytest.mark.slow
@pytest.mark.parametrize("on_loss", [OnLoss.STOP, OnLoss.SKIP])
def test_a_missing_file_is_a_loss(clusters, tmp_path, on_loss):
    first, lost, last = (message_set([b"%d" % n]) for n in range(3))
    topic = f"hole-{on_loss}"
    begin, end = len(first), len(first + lost)
    directory = write_log(tmp_path, topic, (0, first), (end, last))

    [partition] = copied_from_files(
        clusters, directory, topic, name=topic, on_loss=on_loss
    ).partitions

    loss = Loss(LossKind.DELETED, begin, end, end)
    assert (partition.error, partition.losses) == (
        (loss, []) if on_loss is OnLoss.STOP else (None, [loss])
    )
    kept = [b"0"] if on_loss is OnLoss.STOP else [b"0", b"2"]
    assert file_values(clusters, topic) == kept


def test_damage_ends_what_is_copied():
    intact, harmed = message_set([b"a", b"b"], GZIP), bytearray(message_set([b"c"]))
    harmed[-1] ^= 1

    found = copy_messages(intact + harmed, 100)

    assert found.next_offset == 100 + len(intact)
    assert found.copies[0].pieces == [(100, 1), (99 + len(intact), 1)]
    with pytest.raises(CorruptDataError):
        copy_messages(bytes(harmed), 0)
    [copy] = copy_messages(message_set([b"1", b"2", b"3"], SNAPPY), 0).copies
    assert copy.pieces[1] == (NOT_MAPPED, 1)


def test_entries_are_joined_up_to_what_a_topic_takes_or_not_at_all():
    data = message_set([b"v" * 400_000] * 5)

    assert [copy.count for copy in copy_messages(data, 0).copies] == [2, 2, 1]
    assert [copy.count for copy in copy_messages(data, 0, joins=False).copies] == [1] * 5
    # An entry is converted as a whole.
    packed = message_set([b"a", b"b"], GZIP)
    assert [copy.count for copy in copy_messages(packed * 2, 0, joins=False).copies] == [2, 2]


def test_the_command_names_the_server_and_topics(clusters, server07, capfdbinary):
    ends = ("--target", clusters.target.bootstrap_servers, "--source")
    server = f"kafka-0.7://127.0.0.1:{server07.port}"

    assert app.run(["mirror", "plan", *ends, server, "--topics", "rolled"]) == 0
    assert b"create" in capfdbinary.readouterr().out
    assert app.run(["mirror", "run", *ends, server, "-t", "rolled", "--once", "--name", "c"]) == 0
    assert len(clusters.target.records("rolled")) == 20
    assert app.run(["mirror", "run", *ends, server, "--topics", "*"]) == 2
    assert b"does not list its topics" in capfdbinary.readouterr().err
    assert app.run(["mirror", "status", *ends, server]) == 2
    assert app.run(["mirror", "run", *ends, server, "-t", "no-such-topic", "--once"]) == 1
    files = str(server07.directory)
    assert app.run(["mirror", "plan", *ends, files, "--topics", "rolled*"]) == 0
    words = ("-t", "nested", "--once", "--name", "by-hand", "--groups", "*")
    capfdbinary.readouterr()
    assert app.run(["mirror", "run", *ends, files, *words]) == 1
    assert b"keep their offsets in ZooKeeper" in capfdbinary.readouterr().err
    assert len(clusters.target.records("nested")) == len(PAYLOADS07["nested-0"])
