"""kctl mirror switch: groups of real clients move to the target and back, and read on exactly."""

import json

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position

from kctl.cli.app import run as kctl
from tests.mirror.test_run import write_mixed


@pytest.fixture
def switch(clusters, capfdbinary):
    def run(*words, expected=0):
        ends = ["--source", clusters.source.bootstrap_servers]
        ends += ["--target", clusters.target.bootstrap_servers, "--name", "m", "-o", "json"]
        status = kctl(["mirror", "switch", *words, *ends])
        captured = capfdbinary.readouterr()
        assert status == expected, captured.err.decode()
        return json.loads(captured.out or b"[]"), captured.err.decode()

    return run


def consume(broker, group, topic, count):
    """Read `count` records as a member of a group, commit, and return them."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers, "group.id": group,
            "auto.offset.reset": "error", "enable.auto.commit": False,
        }
    )  # fmt: skip
    consumer.subscribe([topic])
    found = []
    while len(found) < count:
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None, message.error()
        found.append(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def begin(broker, group, topic, offset=0):
    """Commit an offset for a group without members."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[Position(topic, 0, offset)], asynchronous=False)
    consumer.close()


def mirrored(clusters, topic):
    clusters.source.create_topic(topic)
    write_mixed(clusters, topic)
    assert not clusters.mirror(topic).has_failed
    return [it.value for it in clusters.source.records(topic, 0)]


def test_a_group_reads_on_in_the_target_and_then_again_in_the_source(clusters, switch):
    values = mirrored(clusters, "switched")
    begin(clusters.source, "billing", "switched")
    first = consume(clusters.source, "billing", "switched", 22)
    found, _ = switch("billing", "--dry-run")
    assert [it["status"] for it in found] == ["would move"]
    found, _ = switch("billing", "--yes")
    assert [it["status"] for it in found] == ["moved"]
    second = consume(clusters.target, "billing", "switched", 4)
    found, _ = switch("billing", "--back", "--yes")
    assert [it["status"] for it in found] == ["moved"]
    third = consume(clusters.source, "billing", "switched", len(values) - 26)
    assert first + second + third == values
    # All is read: the group moves to the end, and reads what comes next.
    switch("billing", "--yes")
    clusters.produce("switched", [b"next"])
    assert not clusters.mirror("switched").has_failed
    assert consume(clusters.target, "billing", "switched", 1) == [b"next"]


def test_every_offset_of_a_group_switches_to_the_same_record(clusters, switch):
    values = mirrored(clusters, "every")
    records = clusters.source.records("every", 0)
    for at in range(0, len(records), 6):
        begin(clusters.source, "steps", "every", records[at].offset)
        switch("steps", "--yes")
        assert consume(clusters.target, "steps", "every", 1) == [values[at]]


def test_nothing_is_done_while_the_mirror_is_behind(clusters, switch):
    mirrored(clusters, "behind")
    begin(clusters.source, "late", "behind", 3)
    clusters.produce("behind", [b"new", b"newer"])
    found, err = switch("late", "--yes", expected=1)
    assert [it["status"] for it in found] == ["refused: the mirror is 2 records behind"]
    assert "nothing was changed" in err
    assert not clusters.mirror("behind").has_failed
    found, _ = switch("late", "--yes")
    assert [it["status"] for it in found] == ["moved"]


def add_partition(clusters, topic, values):
    """Add partition 1 to a topic of the source, and write values to it."""

    async def work(source, _target):
        await source.topics.add_partitions({topic: 2})

    clusters.do(work)
    for value in values:
        clusters.source.produce(topic, value, partition=1)


@pytest.mark.parametrize("is_committed", [True, False])
def test_nothing_is_done_while_nothing_of_a_partition_is_copied(clusters, switch, is_committed):
    topic = f"grown-{is_committed}".lower()
    mirrored(clusters, topic)
    begin(clusters.source, topic, topic, 3)
    add_partition(clusters, topic, [b"new", b"newer"])
    if is_committed:
        consumer = Consumer(
            {"bootstrap.servers": clusters.source.bootstrap_servers, "group.id": topic}
        )
        consumer.commit(offsets=[Position(topic, 1, 1)], asynchronous=False)
        consumer.close()
    found, err = switch(topic, "--yes", expected=1)
    assert [(it["offset"], it["status"]) for it in found] == [
        (3, "not moved"),
        (1 if is_committed else None, "refused: the mirror is 2 records behind"),
    ]
    assert "nothing was changed" in err
    assert not clusters.mirror(topic).has_failed
    found, _ = switch(topic, "--yes")
    assert {it["status"] for it in found} == {"moved"}


def test_a_partition_without_records_does_not_hold_up_a_switch(clusters, switch):
    mirrored(clusters, "widened")
    begin(clusters.source, "widened", "widened", 3)
    add_partition(clusters, "widened", [])
    found, _ = switch("widened", "--yes")
    assert [it["status"] for it in found] == ["moved"]


def test_a_group_with_members_is_refused(clusters, switch):
    mirrored(clusters, "busy")
    begin(clusters.source, "readers", "busy")
    consumer = Consumer(
        {"bootstrap.servers": clusters.source.bootstrap_servers, "group.id": "readers"}
    )
    consumer.subscribe(["busy"])
    while consumer.poll(60) is None:
        pass
    _, err = switch("readers", "--yes", expected=1)
    assert "stop its consumers first" in err
    consumer.close()


def test_what_is_not_mirrored_is_left_alone(clusters, switch):
    mirrored(clusters, "copied")
    clusters.source.create_topic("private")
    begin(clusters.source, "both", "copied", 2)
    begin(clusters.source, "both", "private")
    found, _ = switch("both", "--yes")
    assert {it["topic"]: it["status"] for it in found} == {
        "copied": "moved",
        "private": "left alone: not mirrored",
    }
    begin(clusters.source, "other", "private")
    _, err = switch("other", "--yes", expected=1)
    assert "Mirror m copies nothing that other reads" in err


def test_the_way_back_is_refused_for_records_that_the_source_does_not_have(clusters, switch):
    mirrored(clusters, "written")
    begin(clusters.source, "writer", "written", 3)
    switch("writer", "--yes")
    end = clusters.target.produce("written", b"only here", partition=0).offset
    begin(clusters.target, "writer", "written", end + 1)
    found, _ = switch("writer", "--back", "--yes", expected=1)
    assert "refused: the mirror has written up to offset" in found[0]["status"]


def test_a_group_waits_for_topics_of_which_nothing_was_copied(clusters, switch):
    mirrored(clusters, "wait-1")
    assert not clusters.mirror("wait-*").has_failed
    clusters.source.create_topic("wait-2")
    clusters.produce("wait-2", [b"1", b"2"])
    begin(clusters.source, "one", "wait-2", 1)
    begin(clusters.source, "two", "wait-1", 2)
    begin(clusters.source, "two", "wait-2")
    for group, expected in (("one", 1), ("two", 2)):
        found, _ = switch(group, "--yes", expected=1)
        assert len(found) == expected
        assert found[-1]["status"] == "refused: the mirror is 2 records behind"
    assert not clusters.mirror("wait-*").has_failed
    switch("two", "--yes")
    assert consume(clusters.target, "two", "wait-2", 2) == [b"1", b"2"]


@pytest.mark.parametrize("is_carried", [True, False])
def test_a_group_at_the_end_of_an_empty_partition_reads_the_first_record(
    clusters, switch, is_carried
):
    """With auto.offset.reset=latest it would miss what is written before it begins."""
    topic = f"hollow-{is_carried}".lower()
    clusters.source.create_topic(topic)
    begin(clusters.source, topic, topic)
    if is_carried:
        report = clusters.mirror(topic, groups=[topic])
        assert [it.target_offset for it in report.groups.values()] == [0]
    else:
        assert not clusters.mirror(topic).has_failed
        found, _ = switch(topic, "--yes")
        assert [(it["to_offset"], it["status"]) for it in found] == [(0, "moved")]
    clusters.target.produce(topic, b"first", partition=0)
    assert consume(clusters.target, topic, topic, 1) == [b"first"]


def test_a_group_is_not_moved_past_what_others_wrote_to_the_target(clusters, switch):
    clusters.source.create_topic("others")
    begin(clusters.source, "others", "others")
    assert not clusters.mirror("others").has_failed
    clusters.target.produce("others", b"of others", partition=0)
    report = clusters.mirror("others", groups=["others"])
    assert not report.groups
    _, err = switch("others", "--yes", expected=1)
    assert "copies nothing that others reads" in err


def test_a_group_at_the_end_of_the_target_goes_back_to_the_end_of_the_source(clusters, switch):
    """A consumer at the end commits the offset after the marker of the mirror's transaction."""
    values = mirrored(clusters, "read-out")
    begin(clusters.source, "read-out", "read-out", 0)
    switch("read-out", "--yes")
    end = clusters.target.records("read-out", 0)[-1].offset + 1
    begin(clusters.target, "read-out", "read-out", end + 1)
    found, _ = switch("read-out", "--back", "--yes")
    assert [(it["offset"], it["status"]) for it in found] == [(end + 1, "moved")]
    clusters.produce("read-out", [b"next"])
    assert consume(clusters.source, "read-out", "read-out", 1) == [b"next"]
    assert len(values) > 1
    begin(clusters.target, "read-out", "read-out", end + 2)
    found, _ = switch("read-out", "--back", "--yes", expected=1)
    assert found[0]["status"] == f"refused: the mirror has written up to offset {end}"
