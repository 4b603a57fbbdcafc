"""A mirror between two brokers: each record once, in order, exact offsets, and loud on loss."""

import json

import pytest

from kctl.admin.configs import ConfigChanges, ConfigResource, ResourceType
from kctl.admin.topics import NewTopic
from kctl.cli import app
from kctl.client.group_member import GroupMember
from kctl.client.producer import NewRecord, Producer
from kctl.errors import NotFoundError, UsageError
from kctl.mirror import run as mirror_run
from kctl.mirror import source_reader, worker
from kctl.mirror.cluster_source import ClusterSource
from kctl.mirror.formats import MirrorPosition
from kctl.mirror.loss import Loss, LossKind, OnLoss
from kctl.mirror.map_topic import read_map, read_positions
from kctl.mirror.renames import Rename, parse_rename
from kctl.mirror.run import MirrorRun
from kctl.mirror.settings import MirrorSettings
from kctl.mirror.source_reader import SourceReader
from kctl.mirror.topics import TopicChoice
from kctl.model import TopicPartition
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ErrorCode
from kctl.records.compression import LZ4
from kctl.runtime.future import CancelledError, gather, sleep
from kctl.testing.kafka_broker import KafkaBroker
from tests.support.builds import needs_sources


def contents(broker, topic):
    return [
        (it.partition, it.timestamp, it.key, it.value, tuple(it.headers))
        for it in broker.records(topic)
    ]


def map_of(clusters, topic, name="m"):
    at = TopicPartition(topic, 0)
    return clusters.do(lambda _, target: read_map(target.router, name))[at]


def assert_exact(clusters, topic):
    """Assert that each record is copied once, and that every offset is translated as the records
    show."""
    assert contents(clusters.target, topic) == contents(clusters.source, topic)
    here = [it.offset for it in clusters.source.records(topic, 0)]
    there = [it.offset for it in clusters.target.records(topic, 0)]
    found = map_of(clusters, topic)
    for offset in range(here[-1] + 1):
        expected = next(to for at, to in zip(here, there, strict=True) if at >= offset)
        assert found.to_target(offset) == expected
    for at, to in zip(here, there, strict=True):
        assert found.to_source(to) == at


def write_mixed(clusters, topic, base=0):
    """Write committed, aborted, compressed and plain records."""
    clusters.produce(topic, [b"a%d" % n for n in range(base, base + 20)], compression_type=LZ4)
    clusters.produce(topic, [b"c%d" % n for n in range(5)], transaction="t")
    clusters.produce(topic, [b"x%d" % n for n in range(5)], transaction="t", commit=False)
    clusters.produce(topic, [b"d%d" % n for n in range(5)], transaction="u")
    clusters.produce(topic, [b"z"])


@pytest.mark.parametrize("exactly_once", [True, False])
def test_each_committed_record_is_copied_once_with_exact_offsets(clusters, exactly_once):
    topic = f"orders-{exactly_once}"
    clusters.source.create_topic(topic, partitions=2)
    write_mixed(clusters, topic)

    report = clusters.mirror(topic, exactly_once=exactly_once)

    assert not report.has_failed
    assert_exact(clusters, topic)
    write_mixed(clusters, topic, 100)
    report = clusters.mirror(topic, exactly_once=exactly_once)
    assert sum(it.records for it in report.partitions) == 31
    # The transactions and the last record, which are small, are one batch in the target.
    assert sum(it.rebuilt_batches for it in report.partitions) == 1
    assert sum(it.raw_batches for it in report.partitions) == 1
    assert_exact(clusters, topic)


@pytest.mark.parametrize(
    ("api", "code"),
    [
        (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.NOT_COORDINATOR),
        (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.UNKNOWN_MEMBER_ID),
        (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.ILLEGAL_GENERATION),
        (ApiKey.END_TXN, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_a_failure_in_the_middle_of_a_transaction_repeats_nothing(clusters, api, code):
    topic = f"faults-{api.name}-{int(code)}".lower()
    clusters.source.create_topic(topic)
    clusters.produce(topic, [b"%d" % n for n in range(30)])
    clusters.target.inject_error(api, code, times=1)

    report = clusters.mirror(topic)

    assert not report.has_failed
    assert_exact(clusters, topic)


def test_a_lost_response_to_the_commit_repeats_nothing(clusters):
    clusters.source.create_topic("lost")
    clusters.produce("lost", [b"%d" % n for n in range(30)])
    clusters.target.inject_disconnect(ApiKey.END_TXN, times=1)
    clusters.target.inject_disconnect(ApiKey.PRODUCE, times=1)

    assert not clusters.mirror("lost").has_failed
    assert_exact(clusters, "lost")


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_topic_that_takes_only_small_batches_gets_those_of_the_source(clusters, exactly_once):
    topic = f"small-{exactly_once}"
    clusters.source.create_topic(topic, configs={"max.message.bytes": "200"})
    for number in range(20):
        clusters.produce(topic, [b"%d" % number * 20])

    report = clusters.mirror(topic, exactly_once=exactly_once)

    assert not report.has_failed
    assert sum(it.rebuilt_batches for it in report.partitions) == 0
    assert_exact(clusters, topic)


@pytest.mark.parametrize("exactly_once", [True, False])
def test_batches_that_are_built_again_fit_into_a_topic_that_takes_only_small_ones(
    clusters, exactly_once
):
    topic = f"small-again-{exactly_once}"
    clusters.source.create_topic(
        topic,
        configs={"max.message.bytes": "200", "message.timestamp.type": "LogAppendTime"},
    )
    for number in range(20):
        clusters.produce(topic, [b"%d" % number * 20])

    report = clusters.mirror(topic, exactly_once=exactly_once)

    assert not report.has_failed
    assert sum(it.rebuilt_batches for it in report.partitions) == 20
    copied = [it.value for it in clusters.target.records(topic)]
    assert copied == [it.value for it in clusters.source.records(topic)]


@needs_sources
def test_partitions_that_are_behind_take_turns(clusters, monkeypatch):
    clusters.source.create_topic("turns", partitions=3)
    partitions = [TopicPartition("turns", number) for number in range(3)]
    for at in partitions:
        for _ in range(20):
            clusters.source.produce(at.topic, b"v" * 400, partition=at.partition)
    monkeypatch.setattr(source_reader, "RESPONSE_BYTES_MAX", 1000)
    monkeypatch.setattr(source_reader, "PARTITION_BYTES_MIN", 1000)

    async def work(source, _target):
        reader = SourceReader(source.router)
        await source.router.refresh(["turns"])
        reader.assign({at: MirrorPosition(0, None, at) for at in partitions}, {})
        found = []
        while len(found) < 9:
            found += (await reader.poll()).ranges
        reader.close()
        return found

    assert clusters.do(work)[:9] == partitions * 3


def test_topics_are_renamed_and_kept_in_step(clusters):
    clusters.source.create_topic("shop", partitions=2, configs={"retention.ms": "1000000"})
    clusters.produce("shop", [b"1"])
    clusters.mirror("shop", rename="dc1.{topic}", name="renamed")

    async def change(source, _target):
        await source.topics.add_partitions({"shop": 4})

    clusters.do(change)
    report = clusters.mirror("shop", rename="dc1.{topic}", name="renamed")

    assert [it.target for it in report.partitions] == [
        TopicPartition("dc1.shop", n) for n in range(4)
    ]
    assert clusters.target.topics["dc1.shop"] == 4
    positions = clusters.do(lambda _, b: read_positions(b.router, "renamed"))
    assert positions[TopicPartition("dc1.shop", 0)].source == TopicPartition("shop", 0)
    clusters.source.create_topic("other", partitions=4)
    taken = TopicChoice(("other",), (), Rename("dc1.shop"))
    settings = MirrorSettings("renamed", until_end=True)
    with pytest.raises(UsageError, match="copies shop-0 of cluster"):
        clusters.do(lambda a, b: MirrorRun(ClusterSource(a), b, taken, settings).run())


def test_records_that_the_source_deleted_first_are_reported_and_skipped_on_request(clusters):
    clusters.source.create_topic("short")
    clusters.produce("short", [b"%d" % n for n in range(10)])
    clusters.mirror("short")
    clusters.produce("short", [b"%d" % n for n in range(10, 20)])
    at = TopicPartition("short", 0)
    clusters.do(lambda a, _: a.offsets.delete_records({at: 15}))
    said = []

    report = clusters.mirror("short", said=said)

    assert report.has_failed
    assert report.partitions[0].error == Loss(LossKind.DELETED, 10, 15, 15)
    assert "short-0" in said[0]
    assert "5 records, 10 to 14, were deleted" in said[0]
    assert len(clusters.target.records("short")) == 10
    report = clusters.mirror("short", on_loss=OnLoss.SKIP)
    assert not report.has_failed
    assert report.partitions[0].losses[0].end == 15
    values = [it.value for it in clusters.target.records("short")]
    assert values == [b"%d" % n for n in [*range(10), *range(15, 20)]]
    assert map_of(clusters, "short").to_target(12) == map_of(clusters, "short").to_target(15)


def test_a_topic_that_was_recreated_stops_or_is_copied_again(clusters):
    clusters.source.create_topic("again")
    clusters.produce("again", [b"%d" % n for n in range(10)])
    clusters.mirror("again")
    clusters.do(lambda a, _: a.topics.delete(["again"]))
    clusters.source.create_topic("again")
    clusters.produce("again", [b"new"])

    assert isinstance(clusters.mirror("again").partitions[0].error, Loss)

    assert not clusters.mirror("again", on_loss=OnLoss.RESTART).has_failed
    assert [it.value for it in clusters.target.records("again")][10:] == [b"new"]
    found = map_of(clusters, "again")
    assert (found.copy, found.to_target(0)) == (1, clusters.target.records("again")[10].offset)


def test_groups_are_carried_over_exactly_and_never_back(clusters):
    clusters.source.create_topic("read")
    write_mixed(clusters, "read")
    at = TopicPartition("read", 0)
    clusters.do(lambda a, _: a.offsets.commit("billing", {at: 27}))

    report = clusters.mirror("read", groups=["bill*"])

    [carried] = report.groups.values()
    assert carried.source_offset == 27
    expected = [it.offset for it in clusters.source.records("read")]
    number = next(n for n, offset in enumerate(expected) if offset >= 27)
    assert carried.target_offset == clusters.target.records("read")[number].offset
    clusters.do(lambda a, _: a.offsets.commit("billing", {at: 3}))
    assert not clusters.mirror("read", groups=["bill*"]).groups


@needs_sources
def test_a_group_with_members_in_the_target_is_named_once_and_keeps_its_offsets(
    clusters, monkeypatch
):
    monkeypatch.setattr(mirror_run, "GROUPS_INTERVAL_MS", 0)
    for broker in (clusters.source, clusters.target):
        broker.create_topic("joined")
    clusters.produce("joined", [b"1", b"2"])
    at = TopicPartition("joined", 0)
    clusters.do(lambda source, _: source.offsets.commit("readers", {at: 1}))
    choice = TopicChoice(("joined",), (), parse_rename("identity"))
    said = []

    async def work(source, target):
        member = GroupMember(target.router, "readers", ["joined"])
        await member.join()
        settings = MirrorSettings("joined")
        it = MirrorRun(ClusterSource(source), target, choice, settings, bool, said.append)
        task = source.router.runtime.scheduler.spawn(it.run())
        turns = []

        def turned():
            turns.append(None)
            if len(turns) == 4:
                task.cancel()

        it.on_turn = turned
        with pytest.raises(CancelledError):
            await task
        committed = await target.offsets.committed("readers", [at])
        await member.leave()
        return committed[at].offset

    assert clusters.do(work) == -1
    text = "the group has members in the target: its offsets stay"
    assert said == [f"warning: group readers: joined-0: {text}"]


def test_workers_share_the_partitions(clusters):
    clusters.source.create_topic("wide", partitions=4)
    for number in range(4):
        for value in range(10):
            clusters.source.produce("wide", f"{number}-{value}", partition=number)
    choice = TopicChoice(("wide",), (), parse_rename("identity"))

    async def both(*clients):
        runs = [
            MirrorRun(
                ClusterSource(source), target, choice, MirrorSettings("w", worker, until_end=True)
            )
            for worker, source, target in (("1", *clients[:2]), ("2", *clients[2:]))
        ]
        return await gather(clients[0].router.runtime.scheduler, [it.run() for it in runs])

    reports = clusters.do(both, workers=2)

    assert sum(it.records for report in reports for it in report.partitions) == 40
    assert contents(clusters.target, "wide") == contents(clusters.source, "wide")


def test_a_position_that_expired_is_found_in_the_map(clusters):
    clusters.source.create_topic("idle")
    clusters.produce("idle", [b"1", b"2"])
    clusters.mirror("idle", name="idle")
    clusters.do(lambda _, b: b.groups.delete(["kctl-mirror.idle"]))
    clusters.produce("idle", [b"3"])

    clusters.mirror("idle", name="idle")

    assert [it.value for it in clusters.target.records("idle")] == [b"1", b"2", b"3"]


def test_a_mirror_of_nothing_is_a_mistake(clusters):
    with pytest.raises(NotFoundError):
        clusters.mirror("no-such-topic")


def test_what_refuses_all_topics_is_said_once(clusters):
    for topic in ("mine-1", "mine-2"):
        clusters.target.create_topic(topic)
    choice = TopicChoice(("mine-*",), (), parse_rename("identity"))
    settings = MirrorSettings("mine", until_end=True)
    with pytest.raises(NotFoundError) as raised:
        clusters.do(lambda _, b: MirrorRun(ClusterSource(b), b, choice, settings).run())
    assert raised.value.hint == "source and target are the same topic of the same cluster"


def test_a_topic_that_the_source_no_longer_has_is_reported(clusters):
    clusters.source.create_topic("gone")
    clusters.produce("gone", [b"1"])
    clusters.mirror("gon*", name="gone")
    clusters.do(lambda a, _: a.topics.delete(["gone"]))
    clusters.source.create_topic("gonzo")
    said = []

    report = clusters.mirror("gon*", name="gone", said=said)

    assert report.has_failed
    assert report.topic_errors == {"gone": "gone no longer exists at the source"}
    assert said == ["error: gone: gone no longer exists at the source"]
    assert not clusters.mirror("gon*", name="gone", on_loss=OnLoss.SKIP).has_failed


def test_partitions_and_topics_that_are_added_meanwhile_are_copied(clusters):
    clusters.source.create_topic("grow-1")
    choice = TopicChoice(("grow-*",), (), parse_rename("identity"))

    async def work(source, target, source2, target2):
        it = MirrorRun(
            ClusterSource(source), target, choice, MirrorSettings("grow"), refresh_interval_ms=100
        )
        scheduler = source.router.runtime.scheduler
        task = scheduler.spawn(it.run())
        await source2.topics.create([NewTopic("grow-2", 1, 1)])
        await source2.topics.add_partitions({"grow-1": 2})
        await source2.router.refresh(["grow-1", "grow-2"])
        for topic, number in (("grow-1", 1), ("grow-2", 0)):
            producer = Producer(source2.router, topic)
            await producer.send([NewRecord(None, b"late", (), number)])
        ends = {}
        for _ in range(300):
            await sleep(scheduler, 50)
            found = await target2.offsets.latest(
                [TopicPartition("grow-1", 1), TopicPartition("grow-2", 0)]
            )
            ends = {at: it.offset for at, it in found.items()}
            if all(end > 0 for end in ends.values()):
                break
        task.cancel()
        with pytest.raises(CancelledError):
            await task
        return ends

    ends = clusters.do(work, workers=2)

    assert all(end > 0 for end in ends.values())
    assert [it.value for it in clusters.target.records("grow-1")] == [b"late"]
    assert [it.value for it in clusters.target.records("grow-2")] == [b"late"]


def test_a_mirror_that_is_stopped_while_it_commits_stops_without_an_error(clusters):
    clusters.source.create_topic("stop")
    clusters.produce("stop", [b"%d" % number for number in range(10)])
    choice = TopicChoice(("stop",), (), parse_rename("identity"))
    before = clusters.target.request_count("EndTxn")
    clusters.target.inject_latency("EndTxn", 300, times=1)

    async def work(source, target):
        it = MirrorRun(ClusterSource(source), target, choice, MirrorSettings("stop"))
        scheduler = source.router.runtime.scheduler
        task = scheduler.spawn(it.run())
        while clusters.target.request_count("EndTxn") == before and not task.done:
            await sleep(scheduler, 5)
        task.cancel()
        with pytest.raises(CancelledError):
            await task

    clusters.do(work)

    # The commit was under way: it is carried out, and an abort after it is refused.
    assert len(clusters.target.records("stop")) == 10


@needs_sources
def test_a_mirror_is_stopped_also_while_its_target_is_away(clusters, monkeypatch):
    monkeypatch.setattr(worker, "CLOSE_TIMEOUT_MS", 10)
    clusters.source.create_topic("away")
    choice = TopicChoice(("away",), (), parse_rename("identity"))

    async def work(source, target):
        it = MirrorRun(ClusterSource(source), target, choice, MirrorSettings("away"))
        task = source.router.runtime.scheduler.spawn(it.run())
        it.on_turn = task.cancel
        clusters.target.inject_disconnect("LeaveGroup", times=None)
        with pytest.raises(CancelledError):
            await task

    clusters.do(work)


def test_a_source_before_transactions_is_copied_to_its_end_and_its_lag_is_known(capfdbinary):
    with (
        KafkaBroker(topics=["old"], kctl_as_version="0.10.2") as source,
        KafkaBroker() as target,
    ):
        for value in "12":
            source.produce("old", value)
        ends = ("--source", source.bootstrap_servers, "--target", target.bootstrap_servers)

        assert (
            app.run(["mirror", "run", *ends, "--topics", "old", "--once", "--timeout", "20"]) == 0
        )
        assert [it.value for it in target.records("old")] == [b"1", b"2"]
        capfdbinary.readouterr()
        assert app.run(["mirror", "status", *ends, "-o", "json"]) == 0
        [row] = json.loads(capfdbinary.readouterr().out)
        assert (row["end"], row["lag_records"]) == (2, 0)


def test_a_leader_of_many_partitions_holds_fetches_longer():
    from types import SimpleNamespace

    from kctl.mirror.formats import MirrorPosition
    from kctl.mirror.source_reader import FETCH_WAIT_MAX_MS, FETCH_WAIT_MS, SourceReader

    router = SimpleNamespace(view=SimpleNamespace(leader_epoch=lambda _: 0))

    def wait_ms(count):
        reader = SourceReader(router)
        partitions = [TopicPartition("t", number) for number in range(count)]
        reader.assign({it: MirrorPosition(0, None, it) for it in partitions}, {})
        return reader._request(partitions).max_wait_ms

    assert (wait_ms(1), wait_ms(1_000)) == (FETCH_WAIT_MS, FETCH_WAIT_MS)
    assert (wait_ms(3_000), wait_ms(10_000)) == (1_500, FETCH_WAIT_MAX_MS)


def test_settings_that_change_meanwhile_are_set(clusters):
    clusters.source.create_topic("tuned", configs={"retention.ms": "5000000"})
    choice = TopicChoice(("tuned",), (), parse_rename("identity"))
    resource = ConfigResource(ResourceType.TOPIC, "tuned")
    wanted = {"retention.ms": "6000000", "cleanup.policy": "compact"}

    async def work(source, target, source2, target2):
        it = MirrorRun(
            ClusterSource(source), target, choice, MirrorSettings("tuned"), refresh_interval_ms=100
        )
        scheduler = source.router.runtime.scheduler
        task = scheduler.spawn(it.run())

        async def wait_for(settings):
            for _ in range(300):
                await sleep(scheduler, 50)
                [found] = await target2.configs.describe([resource])
                own = {it.name: it.value for it in found.entries if it.is_own_of(resource)}
                if own == settings:
                    return
            pytest.fail(f"{own}, not {settings}")

        await wait_for({"retention.ms": "5000000"})
        await source2.configs.alter(
            {resource: ConfigChanges({**wanted, "unclean.leader.election.enable": "true"})}
        )
        await wait_for(wanted)
        # A setting that is removed at the source stays.
        await source2.configs.alter(
            {resource: ConfigChanges({"retention.ms": "7000000"}, ["cleanup.policy"])}
        )
        await wait_for({**wanted, "retention.ms": "7000000"})
        task.cancel()

    clusters.do(work, workers=2)
