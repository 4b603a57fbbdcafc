"""kctl group."""

import threading

import pytest


@pytest.fixture
def group(on, topic, name):
    """A group without members that has read two of three records of partition 0."""
    on("produce", topic, "a", "b", "c", "-p", 0)
    ran = on("consume", topic, "-g", f"{name}-group", "--from-beginning", "-m", 2)
    assert ran.lines == ["a", "b"], ran.err
    return f"{name}-group"


def test_an_idle_group_is_listed_with_its_state(on, group):
    ran = on("group", "list", group, "-o", "json")

    [document] = ran.documents
    assert document["state"] == "Empty"
    assert document["protocol_type"] == "consumer"
    assert on("group", "list", group, "--state", "Stable", "-o", "name").lines == []
    assert on("group", "list", group, "--state", "empty", "-o", "name").lines == [group]


def test_describe_shows_the_lag(on, group, topic):
    [document] = on("group", "describe", group, "-o", "json").documents

    [partition] = [it for it in document["partitions"] if it["partition"] == 0]
    assert partition["topic"] == topic
    assert (partition["committed_offset"], partition["end_offset"], partition["lag"]) == (2, 3, 1)
    assert document["total_lag"] == 1
    assert document["members"] == []


def test_describe_shows_the_lag_by_topic(on, group, topic, name):
    on("topic", "create", f"{name}-2", "-p", 2, "-r", 1)
    on("produce", f"{name}-2", *"abcd", "-p", 1)
    on("group", "reset-offsets", group, "-t", f"{name}-2", "--to-earliest", "-y")
    [document] = on("group", "describe", group, "-o", "json").documents

    assert [(it["topic"], it["lag"]) for it in document["topics"]] == [(topic, 1), (f"{name}-2", 4)]
    assert document["total_lag"] == 5
    ran = on("group", "describe", group, "--by-topic", "-o", "csv")
    assert ran.lines[0] == "topic,partition_count,assigned_count,lag"
    assert f"{name}-2,2,0,4" in ran.lines
    assert on("group", "describe", group, "--by-topic", "--members").status == 2


@pytest.mark.parametrize(
    "argv", [["-o", "json"], ["-o", "csv"], ["--every", "0s"], ["--every", "soon"]]
)
def test_a_format_that_cannot_be_watched_is_rejected(on, argv):
    assert on("group", "describe", "any", "--watch", *argv).status == 2


def test_an_unknown_group_is_an_error(on, group):
    ran = on("group", "describe", group + "x")

    assert ran.status == 1
    assert f"hint: did you mean {group}?" in ran.err


def test_a_dry_run_of_a_reset_only_shows_the_plan(on, group, topic):
    argv = ("group", "reset-offsets", group, "-t", topic, "--to-earliest")
    ran = on(*argv, "-n", "-o", "json")

    assert ran.status == 0
    [step] = [it for it in ran.documents if it["partition"] == 0]
    assert (step["current_offset"], step["new_offset"], step["status"]) == (2, 0, "would reset")
    assert on("consume", topic, "-g", group, "-e").lines == ["c"]


def test_a_reset_needs_a_yes(on, group, topic):
    ran = on("group", "reset-offsets", group, "-t", topic, "--to-earliest")

    assert ran.status == 2
    assert "--yes" in ran.err


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 3),
        (["--to-offset", "1"], 1),
        (["--shift-by", "-1"], 1),
        (["--shift-by=-9"], 0),
        (["--to-current"], 2),
        (["--by-duration", "1d"], 0),
        (["--to-datetime", "2999-01-01"], 3),
    ],
)
def test_a_reset_moves_the_group(on, group, topic, target, expected):
    ran = on("group", "reset-offsets", group, "-t", f"{topic}:0", *target, "-y", "-o", "json")

    assert ran.status == 0, ran.err
    [step] = ran.documents
    assert (step["new_offset"], step["status"]) == (expected, "reset")
    [document] = on("group", "describe", group, "-o", "json").documents
    committed = {it["partition"]: it["committed_offset"] for it in document["partitions"]}
    assert committed[0] == expected


def test_an_offset_beyond_the_end_is_lowered_and_noted(on, group, topic):
    ran = on("group", "reset-offsets", group, "--all-topics", "--to-offset", 99, "-n", "-o", "json")

    [step] = [it for it in ran.documents if it["partition"] == 0]
    assert step["new_offset"] == 3
    assert step["note"] == "99 is after the end"


def test_a_reset_needs_a_target_and_topics(on, group):
    assert on("group", "reset-offsets", group, "--all-topics", "-y").status == 2
    assert on("group", "reset-offsets", group, "--to-latest", "-y").status == 2
    both = on("group", "reset-offsets", group, "--all-topics", "--to-latest", "--to-earliest", "-y")
    assert both.status == 2


def test_a_group_is_deleted(on, group):
    assert on("group", "delete", group).status == 2
    assert on("group", "delete", group, "-n", "-o", "json").documents[0]["status"] == "would delete"
    assert on("group", "delete", group, "-y", "-o", "name").lines == [group]
    assert on("group", "list", group, "-o", "json").documents == []
    assert on("group", "delete", group, "-y").status == 1


def test_an_active_group_can_neither_be_reset_nor_deleted(on, address, topic, name):
    """The member uses the library, as a command would occupy this process."""
    with member_of(address, name, topic) as member_id:
        [described] = on("group", "describe", name, "-o", "json").documents
        assert described["state"] == "Stable"
        assert [it["member"] for it in described["members"]] == [member_id]
        assert len(described["members"][0]["assignment"]) == 3

        reset = on("group", "reset-offsets", name, "-t", topic, "--to-latest", "-y")
        assert reset.status == 1
        assert "is Stable with 1 member\n" in reset.err
        deleted = on("group", "delete", name, "-y", "-o", "json")
        assert deleted.status == 1
        assert deleted.documents[0]["status"] == "failed"


class member_of:
    """Return a member of group `name` that sends heartbeats on its own thread."""

    def __init__(self, address, name, topic):
        host, _, port = address.partition(":")
        self.address = (host, int(port))
        self.name = name
        self.topic = topic

    def __enter__(self):
        from kctl.admin.admin_client import AdminClient
        from kctl.client.group_member import GroupMember
        from kctl.runtime.real import make_runtime
        from kctl.runtime.trace import NullTrace

        self.runtime = make_runtime(NullTrace())
        self.admin = AdminClient.connect(self.runtime, [self.address], 120_000)
        self.member = GroupMember(
            self.admin.router, self.name, [self.topic], heartbeat_interval_ms=100
        )
        scheduler = self.runtime.scheduler
        scheduler.run_until(scheduler.spawn(self.member.join()))
        self.thread = threading.Thread(target=scheduler.run_forever)
        self.thread.start()
        return self.member.member_id

    def __exit__(self, *_):
        scheduler = self.runtime.scheduler
        scheduler.call_soon_threadsafe(scheduler.stop)
        self.thread.join()
        scheduler.run_until(scheduler.spawn(self.member.leave()))
        self.admin.close()
        scheduler.close()


def test_offsets_of_single_partitions_are_deleted(on, group, topic):
    argv = ("group", "delete-offsets", group, "-t", f"{topic}:0")
    dry = on(*argv, "-n", "-o", "json")
    [document] = dry.documents
    assert (document["committed_offset"], document["status"]) == (2, "would delete")
    assert on(*argv).status == 2, "not without --yes"

    ran = on(*argv, "-y", "-o", "json")

    assert ran.status == 0, ran.err
    [document] = ran.documents
    assert (document["partition"], document["status"]) == (0, "deleted")
    # That was all it had.
    again = on(*argv, "-y")
    assert again.status == 1
    assert f"error: No group {group}" in again.err


def test_all_offsets_of_a_group_are_deleted(on, group, topic):
    on("group", "reset-offsets", group, "-t", topic, "--to-earliest", "-y")
    ran = on("group", "delete-offsets", group, "--all-topics", "-y", "-o", "name")

    assert ran.status == 0, ran.err
    assert f"{topic}-0" in ran.lines
    assert on("group", "delete-offsets", group + "x", "--all-topics", "-y").status == 1


def test_an_invalid_selection_of_topics_is_rejected(on, group, topic):
    assert on("group", "delete-offsets", group, "-y").status == 2
    assert on("group", "delete-offsets", group, "-t", topic, "--all-topics", "-y").status == 2
    ran = on("group", "delete-offsets", group, "-t", topic[:-1], "-y")
    assert ran.status == 1
    assert f"hint: did you mean {topic}?" in ran.err


def test_partitions_without_a_committed_offset_are_not_silently_left_out_of_the_lag():
    from kctl.admin.group_descriptions import GroupDescription, PartitionLag
    from kctl.cli.group.describe import _document, _heading
    from kctl.model import TopicPartition

    group = GroupDescription("g", "Stable", coordinator=1)
    lags = [
        PartitionLag(TopicPartition("t", 0), 3, 0, 5),
        PartitionLag(TopicPartition("t", 1), None, 0, 9),
    ]

    assert _heading(_document(group, lags)).endswith(
        "lag 2, and 9 records in 1 partition without a committed offset"
    )
    assert _heading(_document(group, lags[:1])).endswith("lag 2")
