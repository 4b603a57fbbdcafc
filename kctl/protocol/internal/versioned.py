"""Stored messages carry their version as an int16 in front, keys and values alike.

Whoever reads must choose a class by it, or refuse; a version that is not known raises
CorruptDataError, as such bytes come from a file and not from a peer.
"""

from struct import Struct
from typing import TypeVar

from kctl.errors import CorruptDataError
from kctl.protocol.codec import decode, encode
from kctl.protocol.primitives import Buffer
from kctl.protocol.schema import Message

MessageT = TypeVar("MessageT", bound=Message)

_version = Struct(">h")


def encode_versioned(message: Message, version: int) -> bytes:
    """The version and then the message."""
    return b"".join([_version.pack(version), *encode(message, version)])


def stored_version(data: Buffer) -> int:
    """The version that `data` begins with."""
    if len(data) < _version.size:
        raise CorruptDataError(f"{len(data)} bytes are too few for a version")
    version: int = _version.unpack_from(data)[0]
    return version


def decode_versioned(cls: type[MessageT], data: Buffer) -> MessageT:
    """The message in `data`, whose version must be one of the class's."""
    version = stored_version(data)
    if not cls.min_version <= version <= cls.max_version:
        raise CorruptDataError(f"{cls.__name__} has no version {version}")
    return decode(cls, version, data, _version.size)
