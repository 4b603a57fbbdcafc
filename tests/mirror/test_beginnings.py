"""Where a mirror begins is kept: what the source deletes of a partition of which nothing was copied
is a loss, also while no mirror runs; what it had deleted before is none."""

import json

import pytest

from kctl.mirror import position_commits
from kctl.mirror.formats import group_of
from kctl.mirror.loss import Loss, LossKind, OnLoss
from kctl.mirror.map_topic import read_map, read_positions
from kctl.model import TopicPartition
from tests.mirror.test_commands import kctl  # noqa: F401
from tests.mirror.test_kinds_of_loss import delete_records, losses, recreate, values
from tests.support.builds import needs_sources


def expire(clusters, name):
    """Delete the positions of a mirror, as a target does after `offsets.retention.minutes`."""
    clusters.do(lambda _, target: target.groups.delete([group_of(name)]))


def copies(clusters, topic):
    return [it.value for it in clusters.target.records(topic, 0)]


@pytest.mark.parametrize(("exactly_once", "is_expired"), [(True, False), (False, True)])
def test_what_is_deleted_of_a_partition_of_which_nothing_was_copied_is_a_loss(
    clusters, exactly_once, is_expired
):
    topic = f"uncopied-{is_expired}".lower()
    how = {"name": topic, "exactly_once": exactly_once}
    clusters.source.create_topic(topic)
    assert not clusters.mirror(topic, **how).has_failed
    if is_expired:
        expire(clusters, topic)
    clusters.produce(topic, values(0, 10))
    delete_records(clusters, "source", topic, 5)

    for _ in range(2):
        report = clusters.mirror(topic, **how)
        assert [it.error for it in report.partitions] == [Loss(LossKind.DELETED, 0, 5, 5)]
        assert copies(clusters, topic) == []

    report = clusters.mirror(topic, on_loss=OnLoss.SKIP, **how)
    assert not report.has_failed
    assert [it.losses for it in report.partitions] == [[Loss(LossKind.DELETED, 0, 5, 5)]]
    assert copies(clusters, topic) == values(5, 10)
    assert not clusters.mirror(topic, **how).has_failed


def test_the_status_reports_what_was_deleted_before_anything_was_copied(
    clusters,
    kctl,  # noqa: F811
):
    clusters.source.create_topic("seen-lost")
    assert not clusters.mirror("seen-lost", name="seen-lost").has_failed
    clusters.produce("seen-lost", values(0, 10))
    delete_records(clusters, "source", "seen-lost", 10)

    words = (
        "--source", clusters.source.bootstrap_servers, "--target",
        clusters.target.bootstrap_servers, "--name", "seen-lost", "-o", "json",
    )  # fmt: skip
    status, out, _ = kctl("mirror", "status", *words)

    [row] = json.loads(out)
    assert (status, row["position"]) == (1, 0)
    assert row["state"] == "lost: offsets 0 to 9 were deleted"
    status, _, err = kctl("mirror", "run", *words, "--topics", "seen-lost", "--once")
    assert status == 1
    assert err.endswith(
        "hint: --on-loss skip goes on after the lost records, --on-loss restart copies again what"
        " the source has\n"
    )


def test_what_was_deleted_before_the_first_start_is_no_loss(clusters):
    for topic in ("late-some", "late-none"):
        clusters.source.create_topic(topic)
        clusters.produce(topic, values(0, 10))
    delete_records(clusters, "source", "late-some", 5)
    delete_records(clusters, "source", "late-none", 10)

    for _ in range(2):
        assert not clusters.mirror("late-*", name="late").has_failed
    assert copies(clusters, "late-some") == values(5, 10)
    clusters.produce("late-none", values(10, 12))
    assert not clusters.mirror("late-*", name="late").has_failed
    assert copies(clusters, "late-none") == values(10, 12)


def test_a_topic_that_is_created_again_before_anything_was_copied_is_copied_from_its_start(
    clusters,
):
    clusters.source.create_topic("anew")
    clusters.produce("anew", values(0, 10))
    delete_records(clusters, "source", "anew", 10)
    assert not clusters.mirror("anew", name="anew").has_failed
    recreate(clusters, "source", "anew")
    clusters.produce("anew", values(0, 3, b"new"))

    assert losses(clusters.mirror("anew", name="anew")) == [LossKind.RECREATED]
    assert not clusters.mirror("anew", name="anew", on_loss=OnLoss.SKIP).has_failed
    assert copies(clusters, "anew") == values(0, 3, b"new")


def test_a_mirror_that_began_without_records_keeps_its_names(clusters, kctl):  # noqa: F811
    clusters.source.create_topic("bare")
    words = (
        "mirror", "run", "--source", clusters.source.bootstrap_servers, "--target",
        clusters.target.bootstrap_servers, "--topics", "bare", "--name", "bare", "--once",
    )  # fmt: skip
    assert kctl(*words, "--rename", "a.{topic}")[0] == 0
    status, _, err = kctl(*words, "--rename", "b.{topic}")
    assert status == 2
    assert "Mirror bare copies bare-0 to a.bare, not to b.bare" in err


def test_a_masked_record_is_not_taken_for_another_one_when_the_position_has_expired(
    clusters,
    kctl,  # noqa: F811
):
    clusters.source.create_topic("hidden")
    clusters.produce("hidden", [b'{"card": 1}'])
    words = (
        "mirror", "run", "--source", clusters.source.bootstrap_servers, "--target",
        clusters.target.bootstrap_servers, "--topics", "hidden", "--name", "hidden", "--once",
        "--mask", "value.card",
    )  # fmt: skip
    assert kctl(*words)[0] == 0
    expire(clusters, "hidden")
    clusters.produce("hidden", [b'{"card": 2}'])
    status, _, err = kctl(*words)
    assert (status, err) == (0, "")
    assert copies(clusters, "hidden") == [b'{"card":"***"}'] * 2


@needs_sources
@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_wide_mirror_commits_its_positions_in_several_requests(
    clusters, monkeypatch, exactly_once
):
    monkeypatch.setattr(position_commits, "COMMIT_BYTES_MAX", 1)
    topic = f"parts-{exactly_once}".lower()
    clusters.source.create_topic(topic, partitions=4)
    for number in range(1, 4):
        clusters.source.produce(topic, b"v", partition=number)
    api = "TxnOffsetCommit" if exactly_once else "OffsetCommit"
    before = clusters.target.request_count(api)

    assert not clusters.mirror(topic, name=topic, exactly_once=exactly_once).has_failed

    assert clusters.target.request_count(api) - before >= 4
    positions = clusters.do(lambda _, target: read_positions(target.router, topic))
    assert [positions[TopicPartition(topic, n)].offset for n in range(4)] == [0, 1, 1, 1]
    maps = clusters.do(lambda _, target: read_map(target.router, topic))
    assert maps[TopicPartition(topic, 0)].begin.source_offset == 0
    assert [maps[TopicPartition(topic, n)].source_end for n in range(4)] == [None, 1, 1, 1]
    lasts = clusters.do(lambda _, target: read_map(target.router, topic, only_last=True))
    assert {it: found.runs for it, found in lasts.items()} == {
        it: found.runs[-1:] for it, found in maps.items()
    }
