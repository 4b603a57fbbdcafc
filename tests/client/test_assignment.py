"""Range assignment and its encoding."""

import pytest

from kctl.client.assignment import assign_by_range, decode_assignment, encode_assignment
from kctl.errors import CorruptDataError
from kctl.model import TopicPartition


def tp(topic, *numbers):
    return [TopicPartition(topic, number) for number in numbers]


def test_partitions_are_assigned_in_ranges_and_the_first_members_get_one_more():
    wishes = {"m2": ["t"], "m1": ["t"], "m3": ["t"]}

    assert assign_by_range(wishes, {"t": 7}) == {
        "m1": tp("t", 0, 1, 2),
        "m2": tp("t", 3, 4),
        "m3": tp("t", 5, 6),
    }


def test_only_subscribed_members_get_a_topic():
    wishes = {"a": ["x", "y"], "b": ["y"]}

    assert assign_by_range(wishes, {"x": 2, "y": 2}) == {
        "a": [*tp("x", 0, 1), *tp("y", 0)],
        "b": tp("y", 1),
    }


def test_more_members_than_partitions_leave_some_idle():
    assert assign_by_range({"a": ["t"], "b": ["t"]}, {"t": 1}) == {"a": tp("t", 0), "b": []}


def test_a_topic_without_partitions_assigns_nothing():
    assert assign_by_range({"a": ["t"]}, {"t": 0}) == {"a": []}


def test_encoded_assignments_are_kafkas():
    blob = encode_assignment(tp("t", 1, 0))

    # version 1, one topic "t", two partitions, no user data
    assert blob.hex() == "000100000001000174000000020000000000000001ffffffff"
    assert decode_assignment(blob) == tp("t", 0, 1)
    assert decode_assignment(b"") == []
    with pytest.raises(CorruptDataError):
        decode_assignment(b"\x00\x01\x00\x00")
