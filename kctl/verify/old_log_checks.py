"""Verifies the `.kafka` files in a partition's directory: the chain of segments, every entry, and
what is inside compressed messages.

Memory does not grow with the log: it holds one message and what is inside it.

Kafka 0.7: kafka.log.Log.validateSegments, kafka.message.FileMessageSet.recover,
kafka.message.ByteBufferMessageSet
"""

from collections.abc import Callable
from dataclasses import field
from itertools import pairwise

from kctl.errors import CorruptDataError, StorageError
from kctl.lazy_dataclass import dataclass
from kctl.records.compression import GZIP, NONE, SNAPPY, decompress
from kctl.records.message07 import CODEC_MASK, SIZE, Message07, inner_messages, parse_message
from kctl.runtime.disk import Disk, DiskFile
from kctl.storage.segments07 import (
    FaultKind,
    FileEntry07,
    Segment07,
    segments_in,
    unreadable_names,
)
from kctl.storage.walk07 import DamagedRange, walk_all
from kctl.verify.findings import Findings
from kctl.verify.rules import Finding, Rule

__all__ = ["VerifiedOldLog", "opens_as", "verify_old_log"]

# A larger compressed message is not opened.
OPENED_BYTES_MAX = 256 * 1024 * 1024
_COMPRESSED_HEADS = {GZIP: b"\x1f\x8b", SNAPPY: b"\x82SNAPPY\0"}
_COMPRESSED_STARTS = tuple(_COMPRESSED_HEADS.values())
_RULES = {
    FaultKind.CHECKSUM: Rule.OLD_CRC,
    FaultKind.MAGIC: Rule.OLD_MAGIC,
    FaultKind.SIZE: Rule.OLD_SIZE,
    FaultKind.CUT: Rule.OLD_SIZE,
}
_PROGRESS_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class VerifiedOldLog:
    """The result for the `.kafka` files of a directory."""

    segments: list[Segment07]
    # Outermost messages.
    entries: int = 0
    size: int = 0
    damages: dict[str, list[DamagedRange]] = field(default_factory=dict)


def verify_old_log(
    disk: Disk,
    directory: str,
    findings: Findings,
    *,
    with_records: bool = True,
    progress: Callable[[int], object] = bool,
) -> VerifiedOldLog:
    """Add what is wrong in `directory` to `findings`; `with_records` opens compressed messages."""

    def report_unreadable(path: str, error: StorageError) -> None:
        findings.add(Finding(path, Rule.UNREADABLE, str(error)))

    found = VerifiedOldLog(segments_in(disk, directory, report_unreadable))
    for name in unreadable_names(disk, directory):
        message = "the name of the file is not an offset"
        findings.add(Finding(f"{directory}/{name}", Rule.OLD_FILE_NAME, message))
    for segment in found.segments:
        is_last = segment is found.segments[-1]
        try:
            _verify_segment(
                disk, segment, found, findings, progress, is_last=is_last, is_deep=with_records
            )
        except StorageError as error:
            report_unreadable(segment.path, error)
    for earlier, later in pairwise(found.segments):
        _check_border(earlier, later, findings)
    return found


def _check_border(earlier: Segment07, later: Segment07, findings: Findings) -> None:
    missing = later.base_offset - earlier.end_offset
    if missing > 0:
        message = f"ends at {earlier.end_offset}, the next segment begins at {later.base_offset}"
        findings.add(
            Finding(
                earlier.path, Rule.OLD_HOLE, message, earlier.size,
                earlier.end_offset, later.base_offset - 1, missing,
            )
        )  # fmt: skip
    elif missing < 0:
        message = f"ends at {earlier.end_offset}, the next segment begins at {later.base_offset}"
        findings.add(
            Finding(
                earlier.path, Rule.OLD_OVERLAP, message, max(0, earlier.size + missing),
                later.base_offset, earlier.end_offset - 1, -missing,
            )
        )  # fmt: skip


def _verify_segment(
    disk: Disk,
    segment: Segment07,
    found: VerifiedOldLog,
    findings: Findings,
    progress: Callable[[int], object],
    *,
    is_last: bool,
    is_deep: bool,
) -> None:
    file = disk.open(segment.path, read_only=True)
    reported = 0
    try:
        for it in walk_all(file):
            if isinstance(it, DamagedRange):
                found.damages.setdefault(segment.path, []).append(it)
                findings.add(_damage(segment, it, is_last=is_last))
                end = it.end
            else:
                found.entries += 1
                end = it.end
                if is_deep:
                    _check_inside(file, segment, it, found, findings)
            if end - reported >= _PROGRESS_BYTES:
                progress(end - reported)
                reported = end
        progress(segment.size - reported)
        found.size += segment.size
    finally:
        file.close()


def _damage(segment: Segment07, damaged: DamagedRange, *, is_last: bool) -> Finding:
    is_torn = is_last and damaged.is_tail and damaged.restored_head is None
    rule = Rule.OLD_TORN_TAIL if is_torn else _RULES[damaged.kind]
    return _finding(segment, rule, damaged.reason, damaged.position, damaged.end)


def _finding(segment: Segment07, rule: Rule, reason: str, position: int, end: int) -> Finding:
    base = segment.base_offset
    return Finding(
        segment.path, rule, reason, position, base + position, base + end - 1, end - position
    )


def _check_inside(
    file: DiskFile,
    segment: Segment07,
    entry: FileEntry07,
    found: VerifiedOldLog,
    findings: Findings,
) -> None:
    codec = entry.attributes & CODEC_MASK
    if codec == NONE and not entry.payload_head.startswith(_COMPRESSED_STARTS):
        return
    if entry.size > OPENED_BYTES_MAX:
        reason = f"a compressed message of {entry.size} bytes is not opened"
        findings.add(_finding(segment, Rule.OLD_SET, reason, entry.position, entry.end))
        return
    message = read_message(file, entry)
    opened, reason = opens_as(message)
    if opened == codec or (codec == NONE and opened is None):
        return
    rule = Rule.OLD_CODEC if codec == NONE else Rule.OLD_SET
    if codec == NONE:
        reason = "the payload is a compressed set of messages, and the attributes name no codec"
    else:
        damaged = DamagedRange(
            entry.position, entry.end, FaultKind.CHECKSUM, reason, entry.end == segment.size
        )
        found.damages.setdefault(segment.path, []).append(damaged)
    findings.add(_finding(segment, rule, reason, entry.position, entry.end))


def read_message(file: DiskFile, entry: FileEntry07) -> Message07:
    """Return the message of an intact entry."""
    length = entry.size - SIZE.size
    return parse_message(file.pread(length, entry.position + SIZE.size), 0, length)


def opens_as(message: Message07) -> tuple[int | None, str]:
    """Return the codec under which the payload is a set of intact messages, and why not under its
    own; None if it is compressed and damaged, NONE if it is not compressed.

    A payload that no codec can have written was never compressed.
    """
    payload = bytes(message.payload[:8])
    likely = [codec for codec, head in _COMPRESSED_HEADS.items() if payload.startswith(head)]
    reason = ""
    own = [message.codec] if message.codec else []
    for codec in dict.fromkeys([*own, *likely]):
        try:
            for _ in inner_messages(message._replace(attributes=codec)):
                pass
        except CorruptDataError as error:
            reason = reason or f"inside the compressed message: {error}"
        else:
            return codec, reason
    return (None if likely or _is_snappy_block(message) else NONE), reason


def _is_snappy_block(message: Message07) -> bool:
    """Return whether the message has the codec snappy and a raw block, which has no header."""
    try:
        return message.codec == SNAPPY and bool(decompress(SNAPPY, message.payload))
    except CorruptDataError:
        return False
