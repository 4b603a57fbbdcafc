"""Plans the repair of the `.kafka` files in a partition's directory. Changes nothing.

Offsets of Kafka 0.7 are positions, and consumers have stored them: so no intact message moves.
Whatever replaces damaged bytes has exactly their length:

1. The size or magic is restored if the checksum proves it; the codec if the payload does.
2. Otherwise a filler takes the place: a compressed message with nothing inside, which consumers
   skip. It has at least FILLER_BYTES_MIN bytes. A shorter place gets a plain message of NULs, which
   consumers see; a place of fewer than 9 bytes has no room for a message and is left as it is.
3. A damaged end of the newest segment is cut, as Kafka 0.7's recovery cuts it.

Kafka 0.7 does not start if segments leave a hole, overlap, or have a name that is no number. A hole
is filled, bytes that the next segment repeats are cut, and such a file is moved aside.

Invariant: after the repair every intact message is where it was.

Kafka 0.7: kafka.log.Log.validateSegments, kafka.message.FileMessageSet.recover; decision 0102
"""

from itertools import pairwise

from kctl.counts import are, counted, offset_range
from kctl.errors import UsageError
from kctl.records.compression import GZIP
from kctl.records.message07 import CODEC_MASK, HEADER_BYTES, SIZE, encode_entry
from kctl.repair.segment_edit import Edit, Piece, Step, edited
from kctl.runtime.disk import Disk, DiskFile
from kctl.storage.segments07 import FileEntry07, Segment07, segments_in, unreadable_names
from kctl.storage.walk07 import DamagedRange, walk_all
from kctl.verify.old_log_checks import OPENED_BYTES_MAX, opens_as, read_message

__all__ = ["FILLER_BYTES_MIN", "OldLogPlan", "filler07", "plan_old_log"]

# gzip's header and trailer around nothing, 20 bytes, in a message of magic 1.
_GZIP_HEAD = b"\x1f\x8b\x08"
_GZIP_BYTES_MIN = 20
_OVERHEAD_V1 = SIZE.size + HEADER_BYTES[1]
FILLER_BYTES_MIN = _OVERHEAD_V1 + _GZIP_BYTES_MIN
# A filler must fit into a fetch of a consumer.
FILLER_BYTES_MAX = 64 * 1024
_MESSAGE_BYTES_MIN = SIZE.size + HEADER_BYTES[0]
HOLE_FILLED_BYTES_MAX = 64 * 1024 * 1024
_COMPARED_BYTES = 1024 * 1024


class OldLogPlan:
    """The changes to the `.kafka` files of a directory, in the terms of RepairPlan."""

    def __init__(self) -> None:
        self.segments: dict[str, list[Piece]] = {}
        self.steps: list[Step] = []
        self.moved_aside: list[str] = []
        self.notes: list[str] = []


def filler07(size: int) -> bytes:
    """Return entries of `size` bytes together, of which consumers get nothing; of fewer than
    FILLER_BYTES_MIN bytes (9 or more) it is a plain message of NULs."""
    parts = []
    while size:
        part = min(size, FILLER_BYTES_MAX)
        if 0 < size - part < FILLER_BYTES_MIN:
            part -= FILLER_BYTES_MIN
        parts.append(_filler(part))
        size -= part
    return b"".join(parts)


def _filler(size: int) -> bytes:
    if size < _OVERHEAD_V1:
        return encode_entry(bytes(size - _MESSAGE_BYTES_MIN), magic=0)
    room = size - _OVERHEAD_V1
    if size < FILLER_BYTES_MIN:
        return encode_entry(bytes(room))
    # The name of the original file, which every reader of gzip skips, takes the bytes left.
    name = room - _GZIP_BYTES_MIN
    head = _GZIP_HEAD + (b"\x08" if name else b"\0") + bytes(5) + b"\xff"
    text = b"-" * (name - 1) + b"\0" if name else b""
    return encode_entry(head + text + b"\x03\0" + bytes(8), GZIP)


def plan_old_log(disk: Disk, directory: str, *, truncate_to: int | None = None) -> OldLogPlan:
    """Return the plan for the `.kafka` files in `directory`: all damage, or only the new end.

    UsageError if `truncate_to` is inside a message or outside the log.
    """
    planner = _Planner(disk, directory)
    if truncate_to is not None:
        planner.truncate(truncate_to)
    else:
        planner.repair()
    return planner.plan


class _Planner:
    def __init__(self, disk: Disk, directory: str) -> None:
        self.plan = OldLogPlan()
        self._disk = disk
        self._directory = directory
        self._segments = segments_in(disk, directory)

    def repair(self) -> None:
        for name in unreadable_names(self._disk, self._directory):
            self.plan.moved_aside.append(f"{self._directory}/{name}")
        following = {a.path: b for a, b in pairwise(self._segments)}
        for segment in self._segments:
            self._repair_segment(segment, following.get(segment.path))

    def _repair_segment(self, segment: Segment07, following: Segment07 | None) -> None:
        end = segment.size
        missing = 0 if following is None else following.base_offset - segment.end_offset
        if following is not None and missing < 0:
            end = self._end_before_repeated(segment, following)
            if not end:
                self.plan.moved_aside.append(segment.path)
                return
        edits = self._edits(segment, is_last=following is None, end=end, missing=missing)
        if end < segment.size:
            count = segment.size - end
            repeated = f"{counted(count, 'byte')} that the next segment repeats"
            reason = f"{repeated} {are(count)} cut"
            edits.append(Edit(end, segment.size, b"", reason))
        if edits:
            self.plan.segments[segment.path] = edited(segment.path, segment.size, edits)
            self.plan.steps += [Step("edit", segment.path, it.reason) for it in edits]

    def _edits(self, segment: Segment07, *, is_last: bool, end: int, missing: int) -> list[Edit]:
        """Return the edits before `end`, and what fills the `missing` bytes after the segment."""
        edits: list[Edit | None] = []
        hole = segment.size
        file = self._disk.open(segment.path, read_only=True)
        try:
            for it in walk_all(file):
                if it.position >= end:
                    break
                if isinstance(it, FileEntry07):
                    edits.append(_edit_of_set(file, it))
                elif missing > 0 and it.is_tail and it.restored_head is None:
                    hole = it.position
                else:
                    clipped = it._replace(end=min(it.end, end))
                    edits.append(self._edit(segment, clipped, is_last=is_last))
        finally:
            file.close()
        if missing > 0:
            edits.append(self._filled_hole(segment, hole, missing))
        return [it for it in edits if it is not None]

    def _filled_hole(self, segment: Segment07, position: int, missing: int) -> Edit | None:
        """Return the filler from `position`, after which nothing is intact, to the next
        segment."""
        size = segment.size - position + missing
        if not _MESSAGE_BYTES_MIN <= size <= HOLE_FILLED_BYTES_MAX:
            self.plan.notes.append(
                f"{segment.path}: {counted(missing, 'byte')} {are(missing)} missing after it and "
                "cannot be filled. Kafka 0.7 does not start with it and the next segment in one "
                "directory"
            )
            return None
        first = segment.base_offset + position
        reason = f"{offset_range(first, first + size - 1)} {are(size)} missing: {_what_fills(size)}"
        return Edit(position, segment.size, filler07(size), reason)

    def _edit(self, segment: Segment07, it: DamagedRange, *, is_last: bool) -> Edit | None:
        position, end = it.position, it.end
        if it.restored_head is not None:
            head = it.restored_head
            return Edit(
                position, position + len(head), head,
                f"the message at {position} gets the size and magic that its checksum proves",
            )  # fmt: skip
        if is_last and it.is_tail:
            count = end - position
            reason = (
                f"the last {counted(count, 'byte')}, from {position}, {are(count)} cut: {it.reason}"
            )
            return Edit(position, end, b"", reason)
        if end - position < _MESSAGE_BYTES_MIN:
            count, offset = end - position, segment.base_offset + position
            self.plan.notes.append(
                f"{segment.path}: {counted(count, 'byte')} at {position} {are(count)} no message, "
                "and too few to be replaced by one. Kafka 0.7's recovery truncates the log there, "
                f"with the messages after it: --truncate-to {offset}; kctl export reads them"
            )
            return None
        return _filling(position, end, it.reason)

    def _end_before_repeated(self, segment: Segment07, following: Segment07) -> int:
        """Return where the bytes begin that `following` repeats; the size if it repeats none."""
        begin = max(0, following.base_offset - segment.base_offset)
        first = self._disk.open(segment.path, read_only=True)
        second = self._disk.open(following.path, read_only=True)
        try:
            at = begin
            while at < segment.size:
                data = first.pread(min(_COMPARED_BYTES, segment.size - at), at)
                if not data or second.pread(len(data), at - begin) != data:
                    self.plan.notes.append(
                        f"{segment.path}: ends at {segment.end_offset}, after the start of the "
                        "next segment, whose bytes differ: move one of the two aside by hand"
                    )
                    return segment.size
                at += len(data)
        finally:
            first.close()
            second.close()
        return begin

    def truncate(self, offset: int) -> None:
        """Plan the cut of everything from `offset` on."""
        last = self._segments[-1] if self._segments else None
        if last is None or not self._segments[0].base_offset <= offset <= last.end_offset:
            raise UsageError(f"{self._directory}: offset {offset} is not in the log")
        for segment in self._segments:
            position = offset - segment.base_offset
            if position <= 0 and segment is not self._segments[0]:
                self.plan.moved_aside.append(segment.path)
            elif position < segment.size:
                self._check_border(segment, position)
                reason = f"everything from offset {offset} on is cut"
                edit = Edit(position, segment.size, b"", reason)
                self.plan.segments[segment.path] = edited(segment.path, segment.size, [edit])
                self.plan.steps.append(Step("truncate", segment.path, reason))

    def _check_border(self, segment: Segment07, position: int) -> None:
        file = self._disk.open(segment.path, read_only=True)
        try:
            for it in walk_all(file):
                if it.position < position < it.end:
                    base = segment.base_offset
                    raise UsageError(
                        f"{self._directory}: offset {base + position} is inside a message",
                        hint=f"the message begins at {base + it.position} and ends at "
                        f"{base + it.end}",
                    )
        finally:
            file.close()


def _edit_of_set(file: DiskFile, entry: FileEntry07) -> Edit | None:
    """Return what makes a compressed message readable or replaces it; None if it is intact."""
    if not entry.attributes & CODEC_MASK:
        return None
    reason, codec = f"a compressed message of {entry.size} bytes cannot be opened", None
    if entry.size <= OPENED_BYTES_MAX:
        message = read_message(file, entry)
        codec, reason = opens_as(message)
        if codec == message.codec:
            return None
    if codec is None:
        return _filling(entry.position, entry.end, reason)
    at = entry.position + SIZE.size + 1
    what = "the codec that opens it" if codec else "no codec, as its payload is not compressed"
    attributes = bytes((entry.attributes & ~CODEC_MASK | codec,))
    return Edit(at, at + 1, attributes, f"the message at {entry.position} gets {what}")


def _filling(position: int, end: int, reason: str) -> Edit:
    size = end - position
    damaged = f"{counted(size, 'byte')} at {position} {are(size)} damaged"
    detail = f"{damaged} ({reason}): {_what_fills(size)}"
    return Edit(position, end, filler07(size), detail)


def _what_fills(size: int) -> str:
    if size >= FILLER_BYTES_MIN:
        return "a compressed message with nothing inside, which consumers skip, takes their place"
    return "a message of NULs, which consumers see, takes their place"
