"""The logs of Kafka 0.7: offsets are positions, messages lie inside messages."""

import struct
import zlib

import pytest

from kctl.dump.documents import document
from kctl.dump.dump import dump, dump_file
from kctl.dump.text_format import text_lines
from kctl.dump.values import DumpDamage, DumpedOldMessage, DumpOptions
from kctl.records.compression import GZIP, SNAPPY, compress
from kctl.runtime.real.disk import RealDisk

BASE = 1000


def v0(payload):
    body = struct.pack(">bI", 0, zlib.crc32(payload)) + payload
    return struct.pack(">i", len(body)) + body


def v1(payload, codec=0):
    body = struct.pack(">bbI", 1, codec, zlib.crc32(payload)) + payload
    return struct.pack(">i", len(body)) + body


def wrapped(codec, *messages):
    return v1(bytes(compress(codec, b"".join(messages))), codec)


@pytest.fixture
def dumped(tmp_path):
    def dump_data(data):
        path = tmp_path / f"{BASE:020d}.kafka"
        path.write_bytes(data)
        return list(dump_file(RealDisk(), str(path), DumpOptions()))[1:]

    return dump_data


def messages(items):
    return [(it.offset, it.depth, it.payload) for it in items if isinstance(it, DumpedOldMessage)]


def test_an_offset_is_the_files_plus_the_position(dumped):
    first, second = v0(b"one"), v1(b"two")
    found = messages(dumped(first + second + v0(b"")))
    assert found == [
        (BASE, 0, b"one"),
        (BASE + len(first), 0, b"two"),
        (BASE + len(first) + len(second), 0, b""),
    ]


@pytest.mark.parametrize("codec", [GZIP, SNAPPY])
def test_messages_inside_messages_have_the_offset_of_the_outermost(dumped, codec):
    inner = wrapped(codec, v1(b"deep"), v0(b"deeper"))
    found = messages(dumped(v0(b"x") + wrapped(codec, v1(b"a"), inner)))
    offset = BASE + len(v0(b"x"))
    assert [(at, depth) for at, depth, _ in found[1:]] == [
        (offset, 0), (offset, 1), (offset, 1), (offset, 2), (offset, 2),
    ]  # fmt: skip
    assert [payload for _, _, payload in found if len(payload) < 9][-2:] == [b"deep", b"deeper"]


def test_the_dump_continues_after_damage(dumped):
    found = dumped(v0(b"one") + b"\xff\xff nonsense" + v1(b"two") + v0(b"cut")[:-1])
    assert [payload for _, _, payload in messages(found)] == [b"one", b"two"]
    assert len([item for item in found if isinstance(item, DumpDamage)]) == 2


def test_a_wrong_checksum_is_said_and_the_message_shown(dumped):
    data = bytearray(v0(b"one") + v0(b"two"))
    data[len(v0(b"one")) - 1] ^= 1
    found = dumped(bytes(data))
    assert [item.is_valid for item in found if isinstance(item, DumpedOldMessage)] == [False, True]
    assert any(isinstance(item, DumpDamage) for item in found)


def test_it_is_shown_as_text_and_as_documents(dumped):
    found = dumped(v1(b"hello"))
    assert "hello" in "".join(text_lines(found, with_data=True))
    assert document(found[0], with_data=True)["payload"] == "hello"


def test_a_directory_with_an_underscore_and_short_names_of_files_is_dumped(tmp_path):
    directory = tmp_path / "my_topic_1"
    directory.mkdir()
    (directory / "00000000000.kafka").write_bytes(v0(b"one"))
    (directory / "12.kafka").write_bytes(v0(b"two"))
    for path in (directory, tmp_path):
        found = list(dump(RealDisk(), [str(path)], DumpOptions()))
        assert messages(found) == [(0, 0, b"one"), (12, 0, b"two")]


def test_messages_inside_a_damaged_one_are_not_dumped(dumped):
    found = dumped(wrapped(GZIP, v1(b"fine"), v1(b"wrong")[:-1] + b"x", v1(b"after")))
    assert [payload for _, depth, payload in messages(found) if depth] == [b"fine", b"wronx"]
    assert "checksum" in str(found[-1])
