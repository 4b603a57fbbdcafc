"""What of a produced set is stored, and with how much memory that is found out."""

import gzip
import tracemalloc
import zlib

import pytest

from kctl.broker07 import set_check
from kctl.broker07.set_check import DECOMPRESSED_BYTES_MAX, CheckedSet, checking
from kctl.errors import CorruptDataError
from kctl.records.compression import GZIP, SNAPPY
from kctl.records.message07 import DEPTH_MAX, compressed_set, encode_entry, message_set, messages
from kctl.work import EXCLUSIVE, at_once
from tests.support.golden07 import PAYLOADS07, golden07

PAYLOADS_MAX = 1_000_000
THREE = message_set([b"a", b"", b"ccc"])


def check(data, payload_bytes_max=PAYLOADS_MAX):
    return at_once(checking(data, payload_bytes_max))


def test_a_set_is_stored_up_to_its_last_whole_entry():
    for size in range(len(THREE) + 1):
        whole = [it for it in (11, 21, 34) if it <= size]
        if not whole and size >= 4:
            with pytest.raises(CorruptDataError):
                check(THREE[:size])
        else:
            end = whole[-1] if whole else 0
            assert check(THREE[:size]) == CheckedSet(end, len(whole), 0)


def zipped(data):
    """Gzip without the time, which would be in the name of the test."""
    return gzip.compress(data, mtime=0)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY])
def test_plain_messages_are_counted_at_any_depth(codec):
    nested = compressed_set(THREE + compressed_set(THREE, SNAPPY) + THREE[:21], codec)
    assert check(nested + THREE) == CheckedSet(len(nested) + len(THREE), 11, 0)


@pytest.mark.parametrize("name", sorted(PAYLOADS07))
def test_logs_of_apache_kafka_pass(name):
    for path in sorted((golden07() / "logs-clean" / name).glob("*.kafka")):
        data = path.read_bytes()
        wanted = CheckedSet(len(data), len(list(messages(data))), 0)
        assert check(data) == wanted


def test_every_flipped_bit_of_a_compressed_set_is_found_or_harmless():
    data = compressed_set(THREE + compressed_set(THREE, GZIP), GZIP)
    outside = range(10 * 8, len(data) * 8)
    for bit in outside:
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptDataError):
            check(flipped)


def rewrapped(payload, codec=GZIP):
    """A message whose checksum fits whatever it contains."""
    return encode_entry(payload, codec)


@pytest.mark.parametrize(
    "inside",
    [
        b"", b"no gzip", zipped(THREE)[:-9], zipped(THREE)[:-4] + b"size",
        zipped(THREE[:9]), zipped(b"\0\0\0\4abcd"), zipped(b"\xff" * 40),
        zipped(THREE[:-1] + b"x"), zipped(b"\0\0\0\6\2\0crc!"),
        zipped(b"\0\0\0\5\1\0crc"), zipped(encode_entry(b"x", 3)),
        zipped(rewrapped(b"no gzip")),
    ],
)  # fmt: skip
def test_damage_inside_a_compressed_message_refuses_the_set(inside):
    with pytest.raises(CorruptDataError):
        check(THREE + rewrapped(inside))


@pytest.mark.parametrize(
    ("inside", "count"),
    [
        (zipped(b""), 0), (zipped(b"abc"), 0), (zipped(THREE[:25]), 2),
        (zipped(THREE) + zipped(THREE), 6),
        (zipped(encode_entry(b"x", magic=0)), 1),
        (zipped(encode_entry(b"", magic=0)), 1),
    ],
)  # fmt: skip
def test_what_apache_kafka_takes_inside_a_compressed_message_is_stored(inside, count):
    data = rewrapped(inside)
    assert check(data) == CheckedSet(len(data), count, 0)


def test_a_payload_above_the_limit_drops_the_set():
    assert check(THREE, 2) == CheckedSet(0, 0, 3)
    large_inside = compressed_set(message_set([b"x" * 1_000]), GZIP)
    assert check(large_inside, 100).messages == 1


def nested(depth, data=THREE):
    for _ in range(depth):
        data = compressed_set(data, GZIP)
    return data


def test_the_depth_is_bounded():
    assert check(nested(DEPTH_MAX)).messages == 3
    for depth in (DEPTH_MAX + 1, 12, 1_000):
        with pytest.raises(CorruptDataError, match="nested more than"):
            check(nested(depth))


def bomb(megabytes):
    """A message of a few kilobytes: one message of zeros that is `megabytes` long."""
    size = megabytes << 20
    head = encode_entry(bytes(size))[:10]
    packer = zlib.compressobj(wbits=31, level=9)
    pieces = [packer.compress(head)]
    pieces += [packer.compress(bytes(1 << 20)) for _ in range(megabytes)]
    return rewrapped(b"".join(pieces) + packer.flush())


def test_a_bomb_takes_little_memory_and_is_refused_beyond_the_limit():
    limit = DECOMPRESSED_BYTES_MAX >> 20
    fits, too_much = bomb(limit - 1), bomb(limit + 1)
    tracemalloc.start()
    try:
        assert check(fits).messages == 1
        with pytest.raises(CorruptDataError, match="decompresses to more than"):
            check(too_much)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_bombs_inside_bombs_share_one_limit():
    inner = bomb(20)
    with pytest.raises(CorruptDataError, match="decompresses to more than"):
        check(compressed_set(inner * 8, GZIP))
    assert check(inner * 8).messages == 8, "side by side each has a limit of its own"


@pytest.mark.slow
def test_nothing_is_kept_of_millions_of_messages():
    many = encode_entry(b"") * 300_000
    tracemalloc.start()
    try:
        assert check(many).messages == 300_000
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_long_work_has_many_steps():
    steps = list(checking(bomb(50), PAYLOADS_MAX))
    assert len(steps) >= 20
    many = encode_entry(b"") * 50_000
    assert len(list(checking(many, PAYLOADS_MAX))) >= 50
    many_inside = compressed_set(many, GZIP)
    assert len(list(checking(many_inside, PAYLOADS_MAX))) >= 25


def test_a_large_compressed_message_inside_is_claimed_before_it_is_held(monkeypatch):
    monkeypatch.setattr(set_check, "HELD_BYTES_MAX", 1_000)
    noise = b"".join(zlib.crc32(b"%d" % n).to_bytes(4, "big") for n in range(1_000))
    data = compressed_set(compressed_set(message_set([noise]), GZIP), GZIP)
    assert EXCLUSIVE in [step for step in checking(data, PAYLOADS_MAX) if step is not None]


def steps(data, payload_bytes_max=PAYLOADS_MAX):
    """In how many steps a set is checked; others wait for one of them."""
    return sum(1 for _ in checking(data, payload_bytes_max))


EMPTY_SNAPPY_BLOCKS = bytes.fromhex("82534e41505059000000000100000001") + b"\0\0\0\1\0" * 10_000


@pytest.mark.parametrize(
    ("data", "least"),
    [
        # Streams without contents: nothing of their bytes counts, but each takes its time.
        (encode_entry(zipped(b"") * 10_000 + zipped(THREE), GZIP), 30),
        (encode_entry(EMPTY_SNAPPY_BLOCKS, SNAPPY), 30),
        (compressed_set(encode_entry(EMPTY_SNAPPY_BLOCKS, SNAPPY), GZIP), 30),
        # Compressed messages that are many and small.
        (compressed_set(THREE, GZIP) * 1_000, 60),
        (compressed_set(compressed_set(THREE, GZIP) * 1_000, GZIP), 60),
        # A plain payload as large as a setting may allow.
        (encode_entry(bytes(8 << 20)), 16),
    ],
    ids=["gzip", "snappy", "snappy in gzip", "many", "many in one", "large"],
)
def test_others_wait_for_a_small_part_of_a_check(data, least):
    assert steps(data, 1 << 30) >= least
