"""The versioned text checkpoints: offsets per partition, and start offsets per leader epoch.

    0                        the version
    2                        how many entries follow
    topic 0 17               partition checkpoints: topic, partition, offset
    other 3 0

`leader-epoch-checkpoint` has `epoch start_offset` lines instead. A checkpoint is replaced as a
whole, durably; a torn one is therefore damage, never the normal end of a crash, except where a
file system loses a rename: then the caller decides what absence means. Only the file of the
epochs is replaced without waiting for the disk, so a power loss may tear it: a number at its end
counts once the line does.

Kafka 2.7: kafka.server.checkpoints.CheckpointFile, OffsetCheckpointFile,
LeaderEpochCheckpointFile; KIP-101
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kctl.errors import CorruptDataError
from kctl.lines import split_lines
from kctl.model import TopicPartition
from kctl.runtime.disk import Disk
from kctl.work import Work, at_once, parts

_VERSION = "0"
# Lines of a partition checkpoint encoded between two turns of the loop.
LINES_PER_TURN = 1_000


class EpochEntry(NamedTuple):
    """A leader epoch and the offset of its first record."""

    epoch: int
    start_offset: int


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return the text of a partition checkpoint, in the mapping's order."""
    return at_once(offsets_encoding(offsets))


def offsets_encoding(offsets: Mapping[TopicPartition, int]) -> Work[bytes]:
    """Encode as `encode_offsets` does, with a `yield` after every LINES_PER_TURN."""
    texts = [f"{_VERSION}\n{len(offsets)}\n"]
    for part in parts(list(offsets.items()), LINES_PER_TURN):
        if len(texts) > 1:
            yield
        texts.append("".join(f"{tp.topic} {tp.partition} {offset}\n" for tp, offset in part))
    return "".join(texts).encode()


def decode_offsets(data: bytes, path: str) -> dict[TopicPartition, int]:
    """Decode a partition checkpoint; CorruptDataError naming `path` and the line."""
    offsets = {}
    for number, line in _lines(data, path):
        fields = line.split()
        if len(fields) != 3:
            raise _malformed(path, number, line)
        try:
            offsets[TopicPartition(fields[0], int(fields[1]))] = int(fields[2])
        except ValueError:
            raise _malformed(path, number, line) from None
    return offsets


def encode_epochs(entries: Sequence[EpochEntry]) -> bytes:
    """Return the text of a leader epoch checkpoint."""
    return _encode([f"{entry.epoch} {entry.start_offset}" for entry in entries])


def decode_epochs(data: bytes, path: str) -> list[EpochEntry]:
    """Decode a leader epoch checkpoint; CorruptDataError naming `path` and the line."""
    entries = []
    lines = _lines(data, path)
    if not data.endswith(b"\n"):
        raise CorruptDataError(f"{path}: the last line is truncated")
    for number, line in lines:
        fields = line.split()
        try:
            epoch, start_offset = map(int, fields)
        except ValueError:
            raise _malformed(path, number, line) from None
        entries.append(EpochEntry(epoch, start_offset))
    return entries


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Return the checkpoint at `path`; empty if there is none."""
    return decode_offsets(disk.read_file(path), path) if disk.exists(path) else {}


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace the checkpoint durably."""
    disk.write_file(path, encode_offsets(offsets))


def _encode(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in (_VERSION, str(len(lines)), *lines)).encode()


def _lines(data: bytes, path: str) -> list[tuple[int, str]]:
    """Return the numbered entry lines, after checking version and count."""
    try:
        lines = split_lines(data.decode())
    except UnicodeDecodeError:
        raise CorruptDataError(f"{path}: not a text file") from None
    if not lines:
        raise CorruptDataError(f"{path}: the file is empty")
    if lines[0] != _VERSION:
        raise CorruptDataError(
            f"{path}:1: unrecognized version of the checkpoint file: {lines[0][:80]!r}"
        )
    if len(lines) < 2 or not lines[1].isdecimal():
        raise _malformed(path, 2, lines[1] if len(lines) > 1 else "")
    entries = [(number, line) for number, line in enumerate(lines[2:], 3) if line]
    if len(entries) != int(lines[1]):
        raise CorruptDataError(
            f"{path}: expected {lines[1]} entries in the checkpoint file, but found {len(entries)}"
        )
    return entries


def _malformed(path: str, number: int, line: str) -> CorruptDataError:
    return CorruptDataError(f"{path}:{number}: malformed line in checkpoint file: {line[:80]!r}")
