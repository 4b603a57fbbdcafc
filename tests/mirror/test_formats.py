"""What a mirror keeps in the target: positions in metadata of offsets, runs in a topic."""

import pytest

from kctl.errors import CorruptDataError, UsageError
from kctl.mirror.formats import (
    MappedRun,
    MirrorPosition,
    check_name,
    decode_run,
    encode_run,
    parse_position,
)
from kctl.model import TopicPartition

ORDERS = TopicPartition("orders", 3)


def test_a_run_has_these_bytes():
    key, value = encode_run(MappedRun(ORDERS, "dc1.orders", 7, 1 << 40, 500, 1))

    assert key.hex() == "00000006" + b"orders".hex() + "00000003000000010000000000000007"
    assert value.hex() == ("0000000a" + b"dc1.orders".hex() + "000001000000000000000000000001f4")
    assert decode_run(key, value) == MappedRun(ORDERS, "dc1.orders", 7, 1 << 40, 500, 1)


def test_a_tombstone_is_no_run_and_other_records_are_refused():
    key, value = encode_run(MappedRun(ORDERS, "orders", 7, 8, 9))

    assert decode_run(key, None) is None
    for damaged in ((None, value), (key[:-1], value), (key, b"\0\1" + value[2:])):
        with pytest.raises(CorruptDataError):
            decode_run(*damaged)


def test_a_position_is_read_as_it_was_committed():
    position = MirrorPosition(17, "Zx-1", ORDERS, 4, 2, "topic-id")

    assert parse_position(17, position.metadata()) == position


@pytest.mark.parametrize(
    "metadata", ["", "{}", "[]", "7", '{"kctl-mirror":2}', '{"kctl-mirror":1,"topic":"t"}']
)
def test_offsets_of_other_programs_are_no_positions(metadata):
    with pytest.raises(CorruptDataError):
        parse_position(17, metadata)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 234])
def test_a_mirrors_name_must_fit_into_a_topics(name):
    with pytest.raises(UsageError):
        check_name(name)
