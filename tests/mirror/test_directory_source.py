"""A mirror whose source is a directory of segments: each record once, and loud on loss."""

import json
import shutil
import struct

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("numpy")

from kctl.cli import app
from kctl.client.offsets import CommittedOffset
from kctl.mirror.directory_groups import StoredGroups
from kctl.mirror.directory_source import DirectorySource
from kctl.mirror.formats import MirrorPosition
from kctl.mirror.loss import Loss, LossKind, OnLoss
from kctl.mirror.map_topic import read_map
from kctl.mirror.renames import parse_rename
from kctl.mirror.run import MirrorRun
from kctl.mirror.settings import MirrorSettings
from kctl.mirror.topics import TopicChoice
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.internal.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_key,
)
from kctl.protocol.internal.versioned import encode_versioned
from kctl.records.compression import LZ4
from kctl.records.record import Record
from kctl.runtime.real.disk import RealDisk
from kctl.storage.layout import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
)
from tests.support.golden_logs import unpack


def copied_from(clusters, directory, *topics, name="d", groups=None, said=None, **settings):
    """Mirror a directory until the end, and return the report."""
    choice = TopicChoice(topics, (), parse_rename("identity"))
    it = MirrorSettings(name, until_end=True, **settings)

    async def work(_source, target):
        source = DirectorySource([str(directory)], target.router.runtime)
        say = (lambda _: None) if said is None else said.append
        return await MirrorRun(source, target, choice, it, groups, say).run()

    return clusters.do(work)


def contents(broker, topic):
    return [(it.partition, it.timestamp, it.key, it.value) for it in broker.records(topic)]


def values(broker, topic):
    return [it.value for it in broker.records(topic)]


def segmented(clusters, topic, count, *, partitions=1, configs=None):
    """Write `count` batches of one record to segments of a few batches, and copy the topic."""
    settings = {"segment.bytes": "300"} | (configs or {})
    clusters.source.create_topic(topic, partitions=partitions, configs=settings)
    for number in range(count):
        clusters.source.produce(topic, b"value-%02d" % number, key=b"k", partition=0)


@pytest.fixture
def copy_of(clusters, tmp_path):
    """Copy a partition of the source to a directory of its own."""

    def copy(name):
        shutil.copytree(clusters.source.log_directory / name, tmp_path / "logs" / name)
        return tmp_path / "logs"

    return copy


def segments_of(directory):
    return sorted(directory.glob("*.log"))


@pytest.mark.parametrize("exactly_once", [True, False])
def test_the_directory_of_a_broker_is_copied_once_and_continued(clusters, exactly_once):
    topic = f"live-{exactly_once}"
    directory = clusters.source.log_directory
    clusters.source.create_topic(topic, partitions=2)
    clusters.produce(topic, [b"a%d" % n for n in range(20)], compression_type=LZ4)
    clusters.produce(topic, [b"x%d" % n for n in range(5)], transaction="t", commit=False)
    clusters.produce(topic, [b"d%d" % n for n in range(5)], transaction="t")

    report = copied_from(clusters, directory, topic, exactly_once=exactly_once)

    assert not report.has_failed
    assert contents(clusters.target, topic) == contents(clusters.source, topic)
    clusters.produce(topic, [b"later"])
    report = copied_from(clusters, directory, topic, exactly_once=exactly_once)
    assert sum(it.records for it in report.partitions) == 1
    assert sum(it.rebuilt_batches for it in report.partitions) == 0
    assert contents(clusters.target, topic) == contents(clusters.source, topic)
    at = TopicPartition(topic, 0)
    found = clusters.do(lambda _, target: read_map(target.router, "d"))[at]
    here = [it.offset for it in clusters.source.records(topic, 0)]
    there = [it.offset for it in clusters.target.records(topic, 0)]
    assert [found.to_target(offset) for offset in here] == there


def test_the_directory_of_a_running_broker_is_read_up_to_its_high_watermark(
    clusters, copy_of, monkeypatch
):
    segmented(clusters, "marked", 12)
    directory = copy_of("marked-0")
    checkpoint = directory / HIGH_WATERMARK_CHECKPOINT
    checkpoint.write_text("0\n1\nmarked 0 7\n")
    with monkeypatch.context() as patched:
        patched.setattr(RealDisk, "writers", lambda _disk, _directories: [1])
        for place in (directory / "marked-0", directory):
            assert not copied_from(clusters, place, "marked").has_failed
            assert values(clusters.target, "marked") == values(clusters.source, "marked")[:7]
        # What was copied stays copied where the broker begins with an older checkpoint.
        checkpoint.write_text("0\n0\n")
        assert not copied_from(clusters, directory, "marked").has_failed
    # Of a broker that does not run, the log has more than its last checkpoint.
    assert not copied_from(clusters, directory, "marked").has_failed
    assert values(clusters.target, "marked") == values(clusters.source, "marked")


def test_checkpoints_that_apache_kafka_has_created_and_not_written_are_empty(
    clusters, copy_of, monkeypatch
):
    segmented(clusters, "unwritten", 6)
    directory = copy_of("unwritten-0")
    for name in (CLEANER_OFFSET_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
        (directory / name).touch()
    with monkeypatch.context() as patched:
        patched.setattr(RealDisk, "writers", lambda _disk, _directories: [1])
        assert not copied_from(clusters, directory, "unwritten").has_failed
        assert values(clusters.target, "unwritten") == []
    assert not copied_from(clusters, directory, "unwritten").has_failed
    assert values(clusters.target, "unwritten") == values(clusters.source, "unwritten")


def test_a_failure_in_the_middle_of_a_transaction_repeats_nothing(clusters):
    segmented(clusters, "dfault", 12)
    for api, code in (("Produce", 6), ("TxnOffsetCommit", 16), ("EndTxn", 15)):
        clusters.target.inject_error(api, ErrorCode(code), times=1)

    assert not copied_from(clusters, clusters.source.log_directory, "dfault").has_failed
    assert contents(clusters.target, "dfault") == contents(clusters.source, "dfault")


def test_damage_stops_its_partition_and_what_is_before_it_is_copied(clusters, copy_of):
    clusters.source.create_topic("harmed", partitions=2)
    for number in range(4):
        for partition in (0, 1):
            clusters.source.produce("harmed", b"v%d" % number, partition=partition)
    copy_of("harmed-0")
    directory = copy_of("harmed-1")
    [path] = segments_of(directory / "harmed-0")
    data = bytearray(path.read_bytes())
    data[len(data) * 3 // 4 - 2] ^= 1
    path.write_bytes(data)

    report = copied_from(clusters, directory, "harmed")

    assert report.has_failed
    assert [it.error is not None for it in report.partitions] == [True, False]
    assert str(path) in str(report.partitions[0].error)
    assert report.partitions[0].position == 2
    assert values(clusters.target, "harmed") == [
        b"v0", b"v1", b"v0", b"v1", b"v2", b"v3",
    ]  # fmt: skip


@pytest.mark.parametrize("on_loss", [OnLoss.STOP, OnLoss.SKIP])
def test_a_missing_segment_is_a_loss(clusters, copy_of, on_loss):
    topic = f"hole-{on_loss}"
    segmented(clusters, topic, 12)
    directory = copy_of(f"{topic}-0")
    files = segments_of(directory / f"{topic}-0")
    first, end = int(files[1].stem), int(files[2].stem)
    for path in (directory / f"{topic}-0").glob(f"{files[1].stem}.*"):
        path.unlink()

    report = copied_from(clusters, directory, topic, on_loss=on_loss)

    loss = Loss(LossKind.DELETED, first, end, end)
    kept = [*range(first), *(range(end, 12) if on_loss is OnLoss.SKIP else ())]
    assert values(clusters.target, topic) == [b"value-%02d" % n for n in kept]
    [partition] = report.partitions
    if on_loss is OnLoss.STOP:
        assert partition.error == loss
    else:
        assert partition.error is None
        assert partition.losses == [loss]


@pytest.mark.parametrize("is_merged", [True, False])
def test_segments_that_are_merged_or_deleted_after_they_were_listed(clusters, copy_of, is_merged):
    """As the cleaner of a running broker does, and retention."""
    topic = f"cleaned-{is_merged}".lower()
    segmented(clusters, topic, 12)
    directory = copy_of(f"{topic}-0")
    first, second, third, *_ = segments_of(directory / f"{topic}-0")
    at, kept = TopicPartition(topic, 0), int(third.stem)

    async def read(_source, target):
        source = DirectorySource([str(directory)], target.router.runtime)
        await source.describe(lambda _: True)
        reader = source.reader()
        reader.assign({at: MirrorPosition(0, None, at)}, {})
        await reader.poll()
        assert reader.positions[at].offset == int(second.stem)
        if is_merged:
            first.write_bytes(first.read_bytes() + second.read_bytes())
            removed = (second,)
        else:
            removed = (first, second)
        for segment in removed:
            for path in segment.parent.glob(f"{segment.stem}.*"):
                path.unlink()
        while reader.positions[at].offset < 12:
            found = await reader.poll()
            if found.stopped:
                return found.stopped[at]
        return None

    # What retention deleted is a loss, not an error of the file.
    loss = None if is_merged else Loss(LossKind.DELETED, int(second.stem), kept, kept)
    assert clusters.do(read) == loss


def test_segments_that_were_deleted_before_they_were_copied_are_a_loss(clusters, copy_of):
    segmented(clusters, "older", 4)
    directory = copy_of("older-0")
    assert not copied_from(clusters, directory, "older").has_failed
    for number in range(4, 12):
        clusters.source.produce("older", b"value-%02d" % number, key=b"k", partition=0)
    shutil.rmtree(directory)
    copy_of("older-0")
    files = segments_of(directory / "older-0")
    kept = int(files[-1].stem)
    assert kept > 4
    for path in (directory / "older-0").iterdir():
        if path.stem.isdecimal() and int(path.stem) < kept:
            path.unlink()

    report = copied_from(clusters, directory, "older")

    assert report.partitions[0].error == Loss(LossKind.DELETED, 4, kept, kept)


def test_a_directory_that_ends_before_the_position_is_a_loss(clusters, copy_of):
    segmented(clusters, "shorter", 9)
    directory = copy_of("shorter-0")
    assert not copied_from(clusters, directory, "shorter").has_failed
    last = segments_of(directory / "shorter-0")[-1]
    for path in (directory / "shorter-0").glob(f"{last.stem}.*"):
        path.unlink()

    report = copied_from(clusters, directory, "shorter")

    end = int(last.stem)
    assert report.partitions[0].error == Loss(LossKind.TRUNCATED, end, 9, end)


def test_gaps_of_compaction_are_no_loss(clusters, copy_of):
    segmented(clusters, "compact", 12)
    directory = copy_of("compact-0")
    files = segments_of(directory / "compact-0")
    for path in (directory / "compact-0").glob(f"{files[1].stem}.*"):
        path.unlink()
    (directory / "cleaner-offset-checkpoint").write_text("0\n1\ncompact 0 12\n")

    report = copied_from(clusters, directory, "compact")

    assert not report.has_failed
    missing = range(int(files[1].stem), int(files[2].stem))
    assert values(clusters.target, "compact") == [
        b"value-%02d" % n for n in range(12) if n not in missing
    ]


def committed_in(broker_side, clusters, group):
    async def work(source, target):
        admin = source if broker_side == "source" else target
        return {p: it.offset for p, it in (await admin.offsets.committed(group)).items()}

    return clusters.do(work)


def commit_in_source(clusters, group, topic, offsets):
    at = {TopicPartition(topic, number): offset for number, offset in offsets.items()}
    clusters.do(lambda source, _: source.offsets.commit(group, at, {}))


@pytest.mark.slow
def test_groups_are_carried_over_from_the_offsets_topic_of_the_directory(clusters):
    topic = "dgroups"
    clusters.source.create_topic(topic, partitions=2)
    clusters.produce(topic, [b"x%d" % n for n in range(5)], transaction="g", commit=False)
    clusters.produce(topic, [b"a%d" % n for n in range(10)])
    for group, offsets in (
        ("billing", {0: 3, 1: 0}), ("billing", {0: 9}), ("left-out", {0: 2}), ("gone", {0: 1}),
    ):  # fmt: skip
        commit_in_source(clusters, group, topic, offsets)
    clusters.do(lambda source, _: source.groups.delete(["gone"]))

    report = copied_from(
        clusters, clusters.source.log_directory, topic, groups=lambda name: name != "left-out"
    )

    assert not report.has_failed
    # 5 aborted records and their marker are left out: offset 9 of the source is the fourth record.
    # Partition 1 is empty on both sides.
    at, empty = (TopicPartition(topic, number) for number in range(2))
    carried = {
        (it.group, it.source): (it.source_offset, it.target_offset) for it in report.groups.values()
    }
    assert carried == {("billing", at): (9, 3), ("billing", empty): (0, 0)}
    assert committed_in("target", clusters, "billing") == {at: 3, empty: 0}
    assert committed_in("target", clusters, "left-out") == {}


@pytest.mark.slow
def test_a_damaged_offsets_topic_is_reported_and_its_groups_are_not_carried(clusters, copy_of):
    topic = "dharmed"
    clusters.source.create_topic(topic)
    clusters.produce(topic, [b"a%d" % n for n in range(4)])
    commit_in_source(clusters, "harmed-group", topic, {0: 2})
    copy_of(f"{topic}-0")
    said = []
    directory = clusters.source.log_directory
    partitions = [it.name for it in directory.glob("__consumer_offsets-*")]
    for name in partitions:
        logs = copy_of(name)
    harmed = [
        path for path in logs.glob("__consumer_offsets-*/*.log")
        if b"harmed-group" in path.read_bytes()
    ]  # fmt: skip
    for path in harmed:
        data = bytearray(path.read_bytes())
        data[data.rindex(b"harmed-group")] ^= 1
        path.write_bytes(data)

    report = copied_from(clusters, logs, topic, groups=lambda _: True, said=said)

    assert report.has_failed
    assert [it.error for it in report.partitions] == [None]
    [error] = report.group_errors
    assert error.startswith(harmed[0].parent.name)
    assert [f"error: groups are not carried over: {error}"] == said
    assert committed_in("target", clusters, "harmed-group") == {}
    shutil.rmtree(logs)
    assert copied_from(clusters, copy_of(f"{topic}-0"), topic, groups=lambda _: True).has_failed


def test_logs_of_apache_kafka_are_copied_and_proved_equal(clusters, capfdbinary, tmp_path):
    """Every format, codec and kind of transaction that the golden directory has."""
    directory = str(unpack("clean", tmp_path / "golden"))
    target = clusters.target.bootstrap_servers
    words = ("--from", directory, "--target", target, "--topics", "*", "-o", "json")

    assert app.run(["mirror", "plan", *words]) == 0
    assert {it["step"] for it in json.loads(capfdbinary.readouterr().out)} == {"create"}
    assert app.run(["mirror", "run", *words, "--name", "golden", "--once"]) == 0
    assert sum(it["records"] for it in json.loads(capfdbinary.readouterr().out)) > 500
    assert app.run(["mirror", "verify", *words[:4], "-j", "1", "-o", "json"]) == 0
    found = json.loads(capfdbinary.readouterr().out)
    assert sum(it["equal"] for it in found) > 500


def test_what_a_directory_cannot_do_is_refused(clusters, capfdbinary, tmp_path):
    target = ("--target", clusters.target.bootstrap_servers)
    ends = ("--source", f"{tmp_path}/none", *target)

    assert app.run(["mirror", "run", *ends, "--topics", "x", "--mm2-topics"]) == 2
    assert "--mm2-topics needs a cluster" in capfdbinary.readouterr().err.decode()
    assert app.run(["mirror", "status", *ends]) == 2
    assert "a directory has no brokers" in capfdbinary.readouterr().err.decode()
    assert app.run(["mirror", "run", *ends, "--topics", "x"]) == 2
    assert "no such file or directory" in capfdbinary.readouterr().err.decode()


def test_offsets_of_later_releases_are_read_and_groups_of_connect_are_not():
    """Kafka 4.1 commits with version 4 of the value, which has a topic id as a tagged field."""
    at, stored = TopicPartition("t", 0), StoredGroups()

    def key(group):
        return encode_key(OffsetCommitKey(group=group, topic="t", partition=0))

    # Version, offset, leader epoch, metadata (compact), commit timestamp, no tagged fields.
    later = struct.pack(">hqi", 4, 7, 3) + b"\x05note" + struct.pack(">qb", 1, 0)
    plain = encode_versioned(OffsetCommitValue(offset=1, metadata="", commit_timestamp=1), 3)
    connect = GroupMetadataValue(
        protocol_type="connect", generation=1, protocol=None, leader=None, members=[]
    )
    for number, (name, value) in enumerate(
        [
            (key("new"), later), (key("worker"), plain), (key("left"), plain), (key("left"), None),
            (encode_key(GroupMetadataKey(group="worker")), encode_versioned(connect, 3)),
        ]
    ):  # fmt: skip
        stored.add(Record(number, 0, name, value))

    assert stored.of_consumers() == {"new": {at: CommittedOffset(7, 3, "note")}}
