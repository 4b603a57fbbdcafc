"""Messages of Kafka 0.7: sets, nested sets, and the offsets that consumers get."""

import gzip
import zlib

import pytest
import snappy

from kctl.errors import CorruptDataError
from kctl.records.compression import GZIP, SNAPPY
from kctl.records.message07 import (
    DEPTH_MAX,
    CutMessageError,
    compressed_set,
    encode_entry,
    message_set,
    messages,
    shallow_entries,
    shallow_messages,
    valid_bytes,
)
from tests.support.golden07 import PAYLOADS07, golden07, golden07_json

HELLO_0 = bytes.fromhex("0000000a003610a68668656c6c6f")
HELLO_1 = bytes.fromhex("0000000b01003610a68668656c6c6f")


def with_offsets(data, base_offset=0):
    return [
        (bytes(it.message.payload), it.offset, it.position, it.index_in_set)
        for it in messages(data, base_offset)
    ]


def payloads(data):
    return [bytes(it.message.payload) for it in messages(data)]


def segments(partition):
    return sorted((golden07() / "logs-clean" / partition).glob("*.kafka"))


def test_messages_are_encoded_as_kafka_encodes_them():
    assert encode_entry(b"hello", magic=0) == HELLO_0
    assert encode_entry(b"hello") == HELLO_1


@pytest.mark.parametrize("partition", PAYLOADS07)
def test_the_golden_logs_hold_the_messages_that_were_produced(partition):
    found = [payload for path in segments(partition) for payload in payloads(path.read_bytes())]
    assert found == PAYLOADS07[partition]


@pytest.mark.parametrize("partition", sorted(golden07_json("offsets-logs-clean.json")))
def test_the_last_offset_is_the_end_that_kafka_reported(partition):
    path = segments(partition)[-1]
    data = path.read_bytes()
    end = golden07_json("offsets-logs-clean.json")[partition][0]
    assert int(path.stem) + valid_bytes(data) == end
    if data:
        assert list(messages(data, int(path.stem)))[-1].offset == end


def test_a_plain_message_has_the_end_of_its_entry():
    assert with_offsets(HELLO_0 + HELLO_1, 100) == [
        (b"hello", 114, 100, 0),
        (b"hello", 129, 114, 0),
    ]


@pytest.mark.parametrize("codec", [GZIP, SNAPPY])
def test_only_the_last_message_of_a_compressed_set_has_its_end(codec):
    nested = message_set([b"a"]) + message_set([b"b", b"c"], SNAPPY) + message_set([], GZIP)
    data = HELLO_1 + compressed_set(nested, codec) + HELLO_1
    end = len(data) - 15
    assert with_offsets(data) == [
        (b"hello", 15, 0, 0),
        (b"a", 15, 15, 0),
        (b"b", 15, 15, 1),
        (b"c", end, 15, 2),
        (b"hello", end + 15, end, 0),
    ]


def test_a_compressed_message_with_nothing_inside_is_skipped():
    data = message_set([], GZIP) + message_set([], SNAPPY) + HELLO_1
    assert with_offsets(data) == [(b"hello", len(data), len(data) - 15, 0)]
    assert valid_bytes(data) == len(data)


def test_shallow_messages_are_handed_out_compressed():
    data = message_set([b"a", b"b"], GZIP) + HELLO_0
    found = list(shallow_messages(data, 7))
    assert [it.message.codec for it in found] == [GZIP, 0]
    assert [it.offset for it in found] == [7 + len(data) - 14, 7 + len(data)]


def test_iteration_ends_at_a_cut_message():
    for cut in range(15):
        data = HELLO_0 + HELLO_1[:cut]
        assert payloads(data) == [b"hello"]
        assert valid_bytes(data) == 14


def test_a_fetch_smaller_than_the_first_message_reports_how_many_bytes_it_needs():
    assert payloads(HELLO_1[:3]) == []
    for cut in range(4, 15):
        with pytest.raises(CutMessageError) as raised:
            valid_bytes(HELLO_1[:cut])
        assert raised.value.bytes_needed == 15


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param("00000004 00000000", id="size 4"),
        pytest.param("ffffffff 0000000000", id="negative size"),
        pytest.param("00000000", id="size 0"),
        pytest.param("00000005 0100000000", id="magic 1, size 5"),
        pytest.param("00000006 0200 00000000", id="magic 2"),
    ],
)
def test_what_cannot_be_an_entry_is_damage_behind_whole_messages_too(bad):
    with pytest.raises(CorruptDataError) as raised:
        valid_bytes(HELLO_0 + bytes.fromhex(bad))
    assert not isinstance(raised.value, CutMessageError)


def test_checksums_are_compared_at_every_depth():
    wrong = HELLO_1[:-1] + b"x"
    shallow = list(shallow_entries(wrong))
    assert not shallow[0].message.is_valid
    for data in (wrong, compressed_set(wrong, GZIP), compressed_set(compressed_set(wrong, 2), 1)):
        with pytest.raises(CorruptDataError, match="checksum"):
            payloads(data)


def test_codec_3_is_refused_though_later_kafkas_have_one():
    with pytest.raises(CorruptDataError, match="codec 3"):
        payloads(encode_entry(b"", 3))


def test_other_attribute_bits_mean_nothing():
    assert payloads(encode_entry(b"x", 0xFC)) == [b"x"]


def test_a_raw_snappy_block_is_opened():
    assert payloads(encode_entry(snappy.compress(HELLO_1), SNAPPY)) == [b"hello"]


def test_gzip_streams_may_follow_one_another():
    data = gzip.compress(HELLO_0) + gzip.compress(HELLO_1)
    assert payloads(encode_entry(data, GZIP)) == [b"hello", b"hello"]


def test_messages_are_nested_to_a_limit():
    data = HELLO_1
    for _ in range(DEPTH_MAX):
        data = compressed_set(data, GZIP)
    assert payloads(data) == [b"hello"]
    with pytest.raises(CorruptDataError, match="nested"):
        payloads(compressed_set(data, GZIP))


def test_the_bytes_of_all_depths_are_bounded_together():
    part = message_set([bytes(1000)], GZIP)
    data = compressed_set(part * 20, GZIP)
    assert len(list(messages(data, bytes_max=22_000))) == 20
    with pytest.raises(CorruptDataError, match="more than"):
        list(messages(data, bytes_max=19_000))


def test_magic_0_has_no_codec():
    with pytest.raises(ValueError, match="magic 0"):
        encode_entry(b"", GZIP, magic=0)
    assert message_set([b"x"], magic=0)[5:9] == zlib.crc32(b"x").to_bytes(4, "big")
