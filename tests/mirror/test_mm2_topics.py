"""MirrorMaker 2's own topics, and the end of a mirror with several workers."""

import struct

from kctl.client.group_member import GroupMember
from kctl.mirror.cluster_source import ClusterSource
from kctl.mirror.formats import MappedRun, MirrorPosition, group_of, parse_position
from kctl.mirror.mm2_config import parse_flow
from kctl.mirror.mm2_formats import (
    Checkpoint,
    Mm2Settings,
    decode_checkpoint,
    encode_heartbeat,
    encode_sync,
)
from kctl.mirror.renames import parse_rename
from kctl.mirror.run import MirrorRun
from kctl.mirror.settings import MirroredTopics, MirrorSettings
from kctl.mirror.topics import TopicChoice
from kctl.mirror.worker import MirrorWorker
from kctl.model import TopicPartition
from kctl.runtime.future import sleep
from tests.mirror.test_mm2_config import FILE

ORDERS = TopicPartition("orders", 1)


def test_the_bytes_are_those_of_mirrormaker():
    assert encode_sync(MappedRun(ORDERS, "A.orders", 7, 5, 3)) == (
        b"\0\6orders\0\0\0\1", struct.pack(">qq", 7, 5),
    )  # fmt: skip
    assert encode_heartbeat("A", "Bé", 9) == (b"\0\1A\0\3B\xc3\xa9", struct.pack(">hq", 0, 9))
    key, value = b"\0\1g\0\6orders\0\0\0\1", struct.pack(">hqqh", 0, 7, 5, 1) + b"m"
    assert decode_checkpoint(key, value) == Checkpoint("g", ORDERS, 7, 5, "m")


def test_syncs_checkpoints_and_heartbeats_are_kept(clusters):
    topic = "checked"
    clusters.source.create_topic(topic)
    clusters.produce(topic, [b"a", b"b", b"c"], transaction="t")
    clusters.produce(topic, [b"x"], transaction="t", commit=False)
    clusters.produce(topic, [b"d", b"e"])
    at = TopicPartition(topic, 0)
    clusters.do(lambda a, _: a.offsets.commit("readers", {at: 6}, {at: "why"}))
    clusters.source.create_topic("x.checkpoints.internal")
    mm2 = Mm2Settings("A", "B", lambda name: name == "readers")
    choice = TopicChoice((topic, "x*"), (), parse_rename("prefix", "A"), has_mm2_topics=True)
    settings = MirrorSettings("mm2", until_end=True)

    report = clusters.do(
        lambda a, b: MirrorRun(ClusterSource(a), b, choice, settings, None, print, mm2=mm2).run()
    )

    assert [it.target.topic for it in report.partitions] == ["A.checked"]
    [record] = clusters.target.records("A.checkpoints.internal")
    there = TopicPartition("A.checked", 0)
    assert decode_checkpoint(record.key, record.value) == Checkpoint("readers", there, 6, 3, "why")
    syncs = clusters.target.records("mm2-offset-syncs.A.internal")
    assert [struct.unpack(">qq", it.value) for it in syncs] == [(0, 0), (6, 3)]
    beat = clusters.target.records("heartbeats")[-1]
    assert beat.key == b"\0\1A\0\1B"
    assert "readers" not in clusters.do(lambda _, b: _groups(b))


async def _groups(admin):
    return [it.group_id for it in (await admin.groups.list_groups([], [])).groups]


def test_a_file_may_ask_for_them():
    assert parse_flow(FILE).mm2 is None
    asked = FILE | {"emit.checkpoints.enabled": "true", "A->B.groups": "x.*"}
    asked["emit.heartbeats.interval.seconds"] = "7"
    flow = parse_flow(asked)
    assert flow.without_effect == []
    assert (flow.mm2.has_heartbeats, flow.mm2.heartbeat_interval_ms) == (True, 7000)
    assert [flow.mm2.groups(it) for it in ("x1", "y")] == [True, False]
    none = parse_flow(FILE | {"emit.checkpoints.enabled": "false"}, has_mm2_topics=True)
    assert none.mm2.groups is None


def test_a_worker_waits_for_the_partitions_of_others(clusters):
    clusters.source.create_topic("shared", partitions=2)
    clusters.mirror("shared", name="shared")
    for number in range(2):
        clusters.source.produce("shared", b"1", partition=number)

    async def work(source, target, _source, other_target):
        scheduler = source.router.runtime.scheduler
        other = GroupMember(
            other_target.router, group_of("shared"), ["shared"], heartbeat_interval_ms=50
        )
        await other.join()
        settings = MirrorSettings("shared", exactly_once=False, until_end=True)
        await source.router.refresh(["shared"])
        topics = MirroredTopics(
            {"shared": "shared"}, {}, source.router.view.cluster_id, {"shared": 2}
        )
        worker = MirrorWorker(ClusterSource(source), target.router, settings, topics, print)
        joining = scheduler.spawn(worker.turn())
        while not other.must_rejoin:
            await sleep(scheduler, 20)
        [left] = await other.join()
        await joining
        while not worker.reports or not all(it.records for it in worker.reports.values()):
            await worker.turn()
        assert left not in worker.reports
        is_done = [await worker.is_done()]
        position = MirrorPosition(1, source.router.view.cluster_id, left)
        await other.commit({left: 1}, {left: position.metadata()})
        worker._look_ms = 0
        is_done.append(await worker.is_done())
        await worker.close()
        await other.leave()
        return is_done

    assert clusters.do(work, workers=2) == [False, True]


def test_a_position_may_end_with_the_nul_of_a_c_string():
    position = MirrorPosition(3, "c", ORDERS)

    assert parse_position(3, position.metadata() + "\0") == position
