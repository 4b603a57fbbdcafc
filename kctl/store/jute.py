"""Jute: the encoding of ZooKeeper's client protocol, big-endian and without tags. Pure.

A peer's lengths are not trusted: every length is checked against the remaining bytes. A null buffer
or string (length -1) reads as an empty one.

ZooKeeper: org.apache.jute.BinaryInputArchive, BinaryOutputArchive; zookeeper.jute.
"""

from collections.abc import Sequence
from struct import Struct

from kctl.errors import CorruptDataError
from kctl.store.znode import Stat

_INT = Struct(">i")
_LONG = Struct(">q")
# czxid, mzxid, ctime, mtime, version, cversion, aversion, ephemeralOwner, dataLength, numChildren,
# pzxid: the fields of Stat, in its order.
_STAT = Struct(">qqqqiiiqiiq")

# All rights to a znode: create, delete, read, write, administer.
ALL_RIGHTS = 31
ACL = tuple[int, str, str]
WORLD_ANYONE: ACL = (ALL_RIGHTS, "world", "anyone")
NULL_LENGTH = -1
# Booleans.
TRUE = b"\1"
FALSE = b"\0"


class JuteReader:
    """Reads one frame from its start; raises CorruptDataError if it ends too early."""

    __slots__ = ("_data", "_position")

    def __init__(self, frame: bytes | memoryview) -> None:
        self._data = bytes(frame)
        self._position = 0

    @property
    def is_at_end(self) -> bool:
        """Return whether all bytes were read."""
        return self._position >= len(self._data)

    def boolean(self) -> bool:
        """Read a boolean, one byte."""
        return self._take(1) != b"\0"

    def int32(self) -> int:
        """Read an integer of four bytes."""
        value: int = _INT.unpack(self._take(4))[0]
        return value

    def int64(self) -> int:
        """Read an integer of eight bytes."""
        value: int = _LONG.unpack(self._take(8))[0]
        return value

    def buffer(self) -> bytes:
        """Read a length and as many bytes."""
        return self._take(max(self.int32(), 0))

    def string(self) -> str:
        """Read a string in UTF-8."""
        try:
            return self.buffer().decode()
        except UnicodeDecodeError as error:
            raise CorruptDataError(f"a string that is not UTF-8: {error}") from None

    def strings(self) -> list[str]:
        """Read a vector of strings."""
        return [self.string() for _ in range(self._count(4))]

    def acls(self) -> list[ACL]:
        """Read a vector of ACL entries: rights, scheme, id."""
        return [(self.int32(), self.string(), self.string()) for _ in range(self._count(12))]

    def _count(self, bytes_each_min: int) -> int:
        count = max(self.int32(), 0)
        if count * bytes_each_min > len(self._data) - self._position:
            raise CorruptDataError(f"a vector of {count} elements in a frame that cannot hold them")
        return count

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if end > len(self._data):
            raise CorruptDataError(f"a frame of {len(self._data)} bytes ends before byte {end}")
        taken = self._data[self._position : end]
        self._position = end
        return taken


def encode_int(value: int) -> bytes:
    """Encode an integer of four bytes."""
    return _INT.pack(value)


def encode_long(value: int) -> bytes:
    """Encode an integer of eight bytes."""
    return _LONG.pack(value)


def encode_buffer(data: bytes) -> bytes:
    """Encode a length and the bytes."""
    return _INT.pack(len(data)) + data


def encode_data(data: bytes) -> bytes:
    """Encode a znode's data; empty data becomes null.

    Kafka writes null for no data, and treats empty data, unlike null, as a document.
    """
    return encode_buffer(data) if data else _INT.pack(NULL_LENGTH)


def encode_string(text: str) -> bytes:
    """Encode a string in UTF-8."""
    return encode_buffer(text.encode())


def encode_strings(texts: Sequence[str]) -> bytes:
    """Encode a vector of strings."""
    return _INT.pack(len(texts)) + b"".join([encode_string(text) for text in texts])


def encode_acls(acls: Sequence[ACL]) -> bytes:
    """Encode a vector of ACL entries."""
    parts = [_INT.pack(len(acls))]
    for rights, scheme, identity in acls:
        parts += [_INT.pack(rights), encode_string(scheme), encode_string(identity)]
    return b"".join(parts)


def encode_stat(stat: Stat) -> bytes:
    """Encode a Stat."""
    return _STAT.pack(*stat)
