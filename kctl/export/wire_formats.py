"""Reads the ids that serializers of Apicurio and AWS Glue give to values, and puts Confluent's
bytes in their place, so that the decoders know one form.

    Confluent           NUL, id in 4 bytes, value
    Apicurio            NUL, id in 4 or 8 bytes, value; or the value, and the id in a header
    AWS Glue            3, compression (0: none, 5: zlib), UUID of the version in 16 bytes, value

Apicurio's ids are global (of a version) or of a content. Headers tell which by their names, bytes
do not. Ids of 8 bytes are below 2^32 here, so they begin with four NULs; ids of 4 bytes never do,
because ids begin at 1.

Apicurio: IdHandler and HeadersHandler of its serdes. Glue:
GlueSchemaRegistryDeserializerDataParser.
"""

import zlib
from collections.abc import Iterable
from enum import StrEnum
from typing import Any
from uuid import UUID

from kctl.lazy_dataclass import dataclass

# Ids beyond this have no place in Confluent's bytes.
ID_MAX = 2**32 - 1
# A compressed value is not inflated beyond this.
INFLATED_BYTES_MAX = 64 * 1024 * 1024

_GLUE_VERSION, _GLUE_PLAIN, _GLUE_ZLIB, _GLUE_BYTES = 3, 0, 5, 18
_ENCODING = "apicurio.value.encoding"


class IdKind(StrEnum):
    """What identifies a schema in Apicurio: its version, or its text."""

    GLOBAL = "global"
    CONTENT = "content"


_ID_HEADERS = {
    "apicurio.value.globalId": IdKind.GLOBAL,
    "apicurio.value.contentId": IdKind.CONTENT,
}


class WireKind(StrEnum):
    """Whose serializers wrote the values."""

    APICURIO = "apicurio"
    GLUE = "glue"


@dataclass(frozen=True, slots=True)
class WireFormat:
    """How values name their schemas."""

    kind: WireKind
    # The ids that values may have, as `apicurio_id` and `glue_id` write them, and the numbers of
    # these schemas among the writers of a table.
    numbers: tuple[tuple[str, int], ...]
    # What the bytes before values of Apicurio identify.
    ids: IdKind = IdKind.GLOBAL


def apicurio_id(kind: IdKind, number: int) -> str:
    """Return an id of Apicurio as WireFormat has it."""
    return f"{kind} {number}"


def glue_id(version: str) -> str:
    """Return the UUID of a version in AWS Glue as WireFormat has it."""
    return str(UUID(version))


class WireReader:
    """Gives values of another registry's serializers Confluent's form."""

    def __init__(self, wire: WireFormat) -> None:
        self._wire = wire
        self._numbers = dict(wire.numbers)
        self._read = self._glue if wire.kind is WireKind.GLUE else self._apicurio

    def value(self, data: bytes, headers: Iterable[dict[str, Any]] | None) -> bytes:
        """Return a value with a NUL and its schema's number before it.

        `headers` are those of the record, each with key and value. ValueError, with the reason, if
        the value names no schema, or an unknown one.
        """
        return self._read(data, headers)

    def _apicurio(self, data: bytes, headers: Iterable[dict[str, Any]] | None) -> bytes:
        # As in Kafka's clients, the last of several headers of one name counts.
        named = {pair["key"]: pair["value"] for pair in headers or ()}
        encoding = named.get(_ENCODING)
        if encoding not in (None, b"BINARY"):
            raise ValueError(f"the encoding {encoding!r} of Avro is not read")
        for name, kind in _ID_HEADERS.items():
            number = named.get(name)
            if number is not None:
                if len(number) != 8:
                    raise ValueError(f"the header {name} does not have 8 bytes")
                return self._numbered(apicurio_id(kind, int.from_bytes(number, "big")), data)
        if data[:1] != b"\0" or len(data) < 5:
            raise ValueError("no schema id, neither before the value nor in a header")
        end = 9 if data[1:5] == b"\0\0\0\0" else 5
        number = int.from_bytes(data[1:end], "big")
        return self._numbered(apicurio_id(self._wire.ids, number), data[end:])

    def _glue(self, data: bytes, _headers: Iterable[dict[str, Any]] | None) -> bytes:
        if len(data) < _GLUE_BYTES or data[0] != _GLUE_VERSION:
            raise ValueError("no header of AWS Glue before the value")
        body = data[_GLUE_BYTES:]
        if data[1] == _GLUE_ZLIB:
            body = _inflated(body)
        elif data[1] != _GLUE_PLAIN:
            raise ValueError(f"unknown compression {data[1]} of AWS Glue")
        return self._numbered(str(UUID(bytes=data[2:_GLUE_BYTES])), body)

    def _numbered(self, name: str, body: bytes) -> bytes:
        number = self._numbers.get(name)
        if number is None:
            raise ValueError(f"unknown schema id {name}")
        return b"\0" + number.to_bytes(4, "big") + body


def _inflated(body: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(body, INFLATED_BYTES_MAX)
    except zlib.error as error:
        raise ValueError(f"not compressed by zlib: {error}") from None
    if not inflater.eof or inflater.unused_data:
        raise ValueError(f"not a compressed value of up to {INFLATED_BYTES_MAX} bytes")
    return found
