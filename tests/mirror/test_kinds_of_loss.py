"""Twenty ways to lose records between a source and its mirror: each is found by `mirror run` or by
`mirror verify`, never silently passed over."""

from contextlib import suppress

import pytest

from kctl.client.bootstrap_servers import parse_servers
from kctl.errors import KctlError, NotFoundError
from kctl.mirror.formats import MappedRun, encode_run, group_of, map_topic_of
from kctl.mirror.loss import LossKind, OnLoss
from kctl.mirror.places import ClusterPlace, Loop
from kctl.mirror.renames import parse_rename
from kctl.mirror.translation import read_translator
from kctl.mirror.verification import VerifyRequest, plan_verification, verify_partition
from kctl.model import TopicPartition
from kctl.runtime.real import make_runtime
from kctl.runtime.trace import NullTrace
from tests.mirror.conftest import Clusters
from tests.mirror.mirrored_pair import NAME, ORDERS, mirrored_pair
from tests.mirror.proof_support import records_of


def values(first, end, text=b"v"):
    return [b"%s%d" % (text, n) for n in range(first, end)]


def on(admin_of, work):
    """Return a coroutine function for Clusters.do that runs `work` on one side."""
    return lambda source, target: work(source if admin_of == "source" else target)


def delete_records(clusters, side, topic, before):
    clusters.do(
        on(side, lambda admin: admin.offsets.delete_records({TopicPartition(topic, 0): before}))
    )


def delete_topic(clusters, side, topic):
    clusters.do(on(side, lambda admin: admin.topics.delete([topic])))


def recreate(clusters, side, topic, partitions=1):
    delete_topic(clusters, side, topic)
    (clusters.source if side == "source" else clusters.target).create_topic(
        topic, partitions=partitions
    )


def place(broker):
    return ClusterPlace(tuple(parse_servers(broker.bootstrap_servers)), 30_000)


def verified(clusters, topic, name="m", target=None):
    """Return the counts of differences of a topic, by the mirror's map."""
    rename = parse_rename(target or "identity")
    request = VerifyRequest(
        place(clusters.source), place(clusters.target), (topic,), rename, name=name
    )
    with Loop(lambda: make_runtime(NullTrace())) as loop:
        tasks = plan_verification(request, loop)
    counts = {}
    for task in tasks:
        found = verify_partition(task)
        if found.obstacle:
            counts[found.obstacle] = 1
        for kind, count in found.result.differences.counts.items():
            counts[str(kind)] = counts.get(str(kind), 0) + count
    return counts


def begin(clusters, topic, count=20, **options):
    clusters.source.create_topic(topic, **options)
    clusters.produce(topic, values(0, count))
    assert not clusters.mirror(topic).has_failed


def losses(report):
    return [getattr(it.error, "kind", it.error) for it in report.partitions if it.error is not None]


def deleted_before_they_were_copied(clusters, topic):
    clusters.produce(topic, values(20, 40))
    delete_records(clusters, "source", topic, 30)
    return LossKind.DELETED


def all_deleted_before_they_were_copied(clusters, topic):
    clusters.produce(topic, values(20, 40))
    delete_records(clusters, "source", topic, 40)
    return LossKind.DELETED


def recreated_and_empty(clusters, topic):
    recreate(clusters, "source", topic)
    return (LossKind.RECREATED, LossKind.TRUNCATED)


def recreated_with_fewer_records(clusters, topic):
    recreate(clusters, "source", topic)
    clusters.produce(topic, values(0, 5, b"new"))
    return LossKind.REWRITTEN


def recreated_with_as_many_records(clusters, topic):
    recreate(clusters, "source", topic)
    clusters.produce(topic, values(0, 20, b"new"))
    return LossKind.REWRITTEN


def recreated_with_more_records(clusters, topic):
    recreate(clusters, "source", topic)
    clusters.produce(topic, values(0, 50, b"new"))
    return LossKind.REWRITTEN


CASES = [
    deleted_before_they_were_copied, all_deleted_before_they_were_copied, recreated_and_empty,
    recreated_with_fewer_records, recreated_with_as_many_records, recreated_with_more_records,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_loss_at_the_source_stops_the_mirror(clusters, case):
    topic = case.__name__
    begin(clusters, topic)
    expected = case(clusters, topic)
    report = clusters.mirror(topic)
    assert report.has_failed
    (found,) = losses(report)
    assert found in (expected if isinstance(expected, tuple) else (expected,))


@pytest.mark.parametrize("written", [0, 5, 10, 30])
def test_a_source_that_lost_its_tail_stops_the_mirror(clusters, written):
    topic = f"restored-{written}"
    clusters.source.create_topic(topic)
    clusters.produce(topic, values(0, 10))
    snapshot = clusters.source.snapshot()
    clusters.produce(topic, values(10, 20))
    assert not clusters.mirror(topic).has_failed
    clusters.source.restore(snapshot)
    if written:
        clusters.produce(topic, values(100, 100 + written))
    report = clusters.mirror(topic)
    expected = LossKind.REWRITTEN if written else LossKind.TRUNCATED
    assert losses(report) == [expected]


def test_the_target_lost_what_was_copied(clusters):
    begin(clusters, "emptied")
    recreate(clusters, "target", "emptied")
    clusters.produce("emptied", values(20, 25))
    (error,) = losses(clusters.mirror("emptied"))
    assert "the mirror has written up to 20" in str(error)
    assert verified(clusters, "emptied") == {"missing": 20}


def test_the_topic_of_the_target_is_gone(clusters):
    begin(clusters, "gone-there")
    delete_topic(clusters, "target", "gone-there")
    (error,) = losses(clusters.mirror("gone-there"))
    assert "the mirror has written up to 20" in str(error)


def test_the_tail_of_the_target_was_replaced(clusters):
    clusters.source.create_topic("replaced")
    clusters.produce("replaced", values(0, 5))
    assert not clusters.mirror("replaced").has_failed
    recreate(clusters, "target", "replaced")
    for number in range(9):
        clusters.target.produce("replaced", b"other %d" % number, key=b"k", partition=0)
    assert losses(clusters.mirror("replaced")) == [LossKind.REWRITTEN]


def test_the_map_is_gone(clusters):
    begin(clusters, "unmapped")
    delete_topic(clusters, "target", map_topic_of("m"))
    clusters.produce("unmapped", values(20, 25))
    assert not clusters.mirror("unmapped").has_failed
    at = TopicPartition("unmapped", 0)
    translator = clusters.do(lambda _, target: read_translator(target, "m"))
    assert translator.to_target(at, 21).to_offset is not None
    assert translator.to_target(at, 3).to_offset is None
    assert list(verified(clusters, "unmapped")) == [
        "the mirror's map begins at offset 20 of the source, and older records are at the target"
    ]


def test_the_map_is_gone_and_nothing_was_copied_since(clusters):
    begin(clusters, "mapless")
    delete_topic(clusters, "target", map_topic_of("m"))
    assert not clusters.mirror("mapless").has_failed
    obstacle = (
        "the mirror's map has nothing of the partition, although the mirror has copied up to"
        " offset 20 of the source, and the target has had records"
    )
    assert verified(clusters, "mapless") == {obstacle: 1}
    delete_records(clusters, "target", "mapless", 20)
    assert verified(clusters, "mapless") == {obstacle: 1}


def test_what_is_missing_before_the_first_copied_record_is_found():
    """The map says where the mirror began."""
    with mirrored_pair(records_of(20), [(8, 0, 12)], 20) as (source, target):
        # What precedes the beginning was deleted before the mirror began, or is not known.
        assert verified(Clusters(source, target), "orders", NAME) == {}
        key, value = encode_run(MappedRun(ORDERS, "orders", 3, 0, 0))
        target.produce(map_topic_of(NAME), value, key=key, partition=0)
        assert verified(Clusters(source, target), "orders", NAME) == {"missing": 5}


def test_a_position_in_a_partition_of_which_the_target_never_had_a_record():
    with mirrored_pair(records_of(12), [], 10) as (source, target):
        assert verified(Clusters(source, target), "orders", NAME) == {"missing": 10}


def test_a_partition_without_committed_records_has_nothing_to_compare(clusters):
    """Nor has one of which nothing was copied yet."""
    clusters.source.create_topic("aborted")
    assert not clusters.mirror("aborted").has_failed
    clusters.target.produce("aborted", b"of others", partition=0)
    clusters.produce("aborted", values(0, 5), transaction="aborted", commit=False)
    assert not clusters.mirror("aborted").has_failed
    clusters.produce("aborted", values(5, 10))
    assert verified(clusters, "aborted") == {}


def test_the_position_is_gone(clusters):
    begin(clusters, "positionless")
    clusters.do(lambda _, target: target.groups.delete([group_of("m")]))
    clusters.produce("positionless", values(20, 25))
    assert not clusters.mirror("positionless").has_failed
    assert not verified(clusters, "positionless")


def test_another_writer_in_the_target(clusters):
    begin(clusters, "foreign")
    clusters.target.produce("foreign", b"foreign", partition=0)
    clusters.produce("foreign", values(20, 25))
    assert not clusters.mirror("foreign").has_failed
    assert verified(clusters, "foreign") == {"extra": 1}


def test_records_deleted_in_the_target_are_no_loss_of_the_mirror(clusters):
    begin(clusters, "retained")
    delete_records(clusters, "target", "retained", 20)
    clusters.produce("retained", values(20, 25))
    assert not clusters.mirror("retained").has_failed
    assert not verified(clusters, "retained")


def test_a_deleted_topic_cannot_be_mirrored(clusters):
    begin(clusters, "deleted")
    delete_topic(clusters, "source", "deleted")
    with pytest.raises(NotFoundError):
        clusters.mirror("deleted")


def test_fewer_partitions_than_the_target_has(clusters):
    clusters.source.create_topic("shrunk", partitions=2)
    clusters.produce("shrunk", values(0, 5))
    assert not clusters.mirror("shrunk").has_failed
    recreate(clusters, "source", "shrunk")
    with suppress(KctlError):
        assert clusters.mirror("shrunk").has_failed


def test_another_name_for_the_topic_is_not_taken_for_equal(clusters):
    begin(clusters, "named")
    assert verified(clusters, "named", target="west.{topic}") == {
        "the target has no partition west.named-0": 1
    }


def test_a_loss_that_was_passed_over_on_request_is_reported_once(clusters):
    begin(clusters, "skipped")
    recreate(clusters, "source", "skipped")
    clusters.produce("skipped", values(0, 30, b"new"))
    report = clusters.mirror("skipped", on_loss=OnLoss.SKIP)
    assert [it.kind for each in report.partitions for it in each.losses] == [LossKind.REWRITTEN]
    assert not clusters.mirror("skipped").has_failed
    assert not verified(clusters, "skipped")
