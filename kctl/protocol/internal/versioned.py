"""Stored messages with their version as an int16 prefix, keys and values alike.

The reader chooses a class by the version. An unknown version raises CorruptDataError, as the bytes
come from a file and not from a peer.
"""

from struct import Struct
from typing import TypeVar

from kctl.errors import CorruptDataError
from kctl.protocol.codec import decode, encode, encoding
from kctl.protocol.primitives import Buffer
from kctl.protocol.schema import Message
from kctl.work import Work

MessageT = TypeVar("MessageT", bound=Message)

_version = Struct(">h")


def encode_versioned(message: Message, version: int) -> bytes:
    """Return the version and then the message."""
    return b"".join([_version.pack(version), *encode(message, version)])


def encoding_versioned(message: Message, version: int) -> Work[bytes]:
    """Do what `encode_versioned` does, in parts (see `encoding`)."""
    body = yield from encoding(message, version)
    return b"".join([_version.pack(version), *body])


def stored_version(data: Buffer) -> int:
    """Return the version that `data` begins with."""
    if len(data) < _version.size:
        raise CorruptDataError(f"{len(data)} bytes are too few for a version")
    version: int = _version.unpack_from(data)[0]
    return version


def decode_versioned(cls: type[MessageT], data: Buffer) -> MessageT:
    """Return the message in `data`, whose version must be one of the class's."""
    version = stored_version(data)
    if not cls.min_version <= version <= cls.max_version:
        raise CorruptDataError(f"{cls.__name__} has no version {version}")
    return decode(cls, version, data, _version.size)
