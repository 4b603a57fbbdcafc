"""What consumers must get of a golden partition, worked out from Apache Kafka's own dump of it."""

import re
from dataclasses import dataclass
from pathlib import Path

_BATCH = re.compile(
    rb"baseOffset: (\d+) lastOffset: (\d+) count: \d+ baseSequence: -?\d+ lastSequence: -?\d+ "
    rb"producerId: (-?\d+) .*?isTransactional: (true|false) isControl: (true|false) "
)
_RECORD = re.compile(
    rb"\| offset: (\d+) (?:(\w+): (-?\d+) )?keysize: (-?\d+) valuesize: (-?\d+)"
    rb"(?: sequence: -?\d+ headerKeys: \[(.*?)\])?(?: crc: \d+ isvalid: true)?(.*)\Z",
    re.DOTALL,
)
_MARKER = re.compile(rb" endTxnMarker: (COMMIT|ABORT) ")
# A record or batch begins a line; values may hold line ends.
_LINE = re.compile(rb"\n(?=\| offset: \d|baseOffset: \d|offset: \d)")


@dataclass(frozen=True, slots=True)
class Seen:
    """Return a record as a consumer sees it, with timestamp -1 if it has none. Bytes of a value
    that are not UTF-8 are replaced, as in the dump."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    header_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Dumped:
    # A match of _RECORD.
    line: re.Match[bytes]
    producer_id: int
    is_transactional: bool
    marker: str | None

    @property
    def offset(self):
        return int(self.line[1])


def seen(offset, timestamp, key, value, header_names):
    """Return a consumed record as the dump prints it."""
    text = None if value is None else value.decode(errors="replace").encode()
    return Seen(offset, timestamp, key, text, tuple(header_names))


def visible_records(partition: Path, *, log_start_offset=0, committed=False):
    """The records of a golden partition's directory of dumps that a consumer gets from the start,
    with `committed` under read_committed."""
    dumped = [it for it in _dumped_partition(partition) if it.offset >= log_start_offset]
    return [_seen(it.line) for it in (_committed(dumped) if committed else _data(dumped))]


def committed_texts(partition: Path):
    """Return key and value, as the dump prints them, of each record outside aborted and open
    transactions."""
    return [it.line[7].decode(errors="replace") for it in _committed(_dumped_partition(partition))]


def _data(dumped):
    return [it for it in dumped if it.marker is None]


def _committed(dumped):
    """Up to the first transaction that is still open, without the aborted ones."""
    members, aborted = {}, set()
    for it in dumped:
        if it.marker is not None:
            offsets = members.pop(it.producer_id, ())
            if it.marker == "ABORT":
                aborted.update(offsets)
        elif it.is_transactional:
            members.setdefault(it.producer_id, []).append(it.offset)
    end = min((offsets[0] for offsets in members.values()), default=float("inf"))
    return [it for it in _data(dumped) if it.offset < end and it.offset not in aborted]


def _dumped_partition(partition):
    return [
        it for file in sorted(partition.glob("*[0-9].log.txt")) for it in _dumped(file.read_bytes())
    ]


def _dumped(text):
    producer_id, is_transactional = -1, False
    for line in _LINE.split(text.removesuffix(b"\n")):
        if batch := _BATCH.match(line):
            producer_id, is_transactional = int(batch[3]), batch[4] == b"true"
        elif found := _RECORD.match(line):
            marker = _MARKER.match(found[7])
            words = marker[1].decode() if marker else None
            yield _Dumped(found, producer_id, is_transactional, words)


def _seen(found):
    key_size, value_size, rest = int(found[4]), int(found[5]), found[7]
    key, value = None, None
    if key_size >= 0 and rest.startswith(b" key: "):
        key = rest[6 : 6 + key_size]
        rest = rest[6 + key_size :]
    if value_size >= 0 and rest.startswith(b" payload: "):
        value = rest[10:]
        assert len(value) == value_size or b"\xef\xbf\xbd" in value, found[0][:100]
    timestamp = int(found[3]) if found[3] and found[2] != b"NoTimestampType" else -1
    names = tuple(found[6].decode().split(",")) if found[6] else ()
    return Seen(int(found[1]), timestamp, key, value, names)
