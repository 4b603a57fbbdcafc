"""Statistics and selections of Kafka 0.7 files: what of `dump-log`'s options applies to them.

A message has a position and a value: it is selected by offset. Everything else that selects (keys,
headers, producers, times) is refused, as nothing could ever match.
"""

from collections.abc import Iterable, Iterator

from kctl.dump.dump import classify, find_files
from kctl.dump.filters import RecordFilter
from kctl.dump.old_log_dump import dump_old_log
from kctl.dump.stats import CODEC_NAMES, SIZE_BUCKETS, CodecStats, LogStats
from kctl.dump.values import DumpedFile, DumpedOldMessage, DumpItem, FileKind
from kctl.errors import CorruptDataError, UsageError
from kctl.records.message07 import CODEC_MASK, Message07, inner_messages
from kctl.runtime.disk import Disk
from kctl.storage.walk07 import DamagedRange, walk_all
from kctl.verify.old_log_checks import read_message

__all__ = ["add_old_file", "is_old_file", "refuse_old_files", "selected_old_messages"]


def is_old_file(path: str) -> bool:
    """Return whether `path` names a segment of Kafka 0.7."""
    found = classify(path)
    return found is not None and found[0] is FileKind.OLD_LOG


def refuse_old_files(disk: Disk, paths: Iterable[str], what: str) -> None:
    """Raise UsageError if there is a segment of Kafka 0.7 at or below `paths`; `what` is the
    option that does not apply to it."""
    for path in paths:
        for file in find_files(disk, path):
            if is_old_file(file):
                raise UsageError(
                    f"{file}: {what} does not apply to files of Kafka 0.7",
                    hint="their messages have a position and a value; --offset selects positions",
                )


def selected_old_messages(disk: Disk, path: str, wanted: RecordFilter) -> Iterator[DumpItem]:
    """Yield the messages of a segment whose offsets are wanted, and the damage there.

    UsageError if `wanted` selects by anything else.
    """
    if not wanted.is_only_of_offsets:
        refuse_old_files(disk, [path], "a filter other than --offset and --limit")
    found = classify(path)
    base_offset = (found[1] or 0) if found is not None else 0
    size = disk.size(path)
    end = wanted.end_offset
    if base_offset + size <= wanted.start_offset or (end is not None and end <= base_offset):
        return
    yield DumpedFile(path, FileKind.OLD_LOG, base_offset, size)
    for item in dump_old_log(disk, path, base_offset):
        if isinstance(item, DumpedOldMessage):
            if end is not None and item.offset >= end:
                return
            if item.offset < wanted.start_offset:
                continue
        yield item


def add_old_file(stats: LogStats, disk: Disk, path: str, base_offset: int) -> None:
    """Add one `.kafka` file to `stats`: its entries are the batches, what consumers get the
    records; damage is counted, never raised."""
    stats.files += 1
    stats.size += disk.size(path)
    file = disk.open(path, read_only=True)
    try:
        for entry in walk_all(file):
            if isinstance(entry, DamagedRange):
                stats.damaged_places += 1
                continue
            stats.batches += 1
            stats.batch_sizes[min((entry.size - 1).bit_length(), SIZE_BUCKETS - 1)] += 1
            offset = base_offset + entry.position
            stats.add_bounds("offset", offset, offset)
            codec = stats.by_codec.setdefault(
                CODEC_NAMES[entry.attributes & CODEC_MASK], CodecStats()
            )
            codec.batches += 1
            codec.stored_bytes += entry.size
            _add_messages(stats, codec, read_message(file, entry))
    finally:
        file.close()


def _add_messages(stats: LogStats, codec: CodecStats, message: Message07) -> None:
    try:
        inside = inner_messages(message) if message.attributes & CODEC_MASK else iter([message])
        for it in inside:
            size = len(it.payload)
            stats.records += 1
            stats.null_keys += 1
            stats.value_bytes += size
            codec.records += 1
            codec.data_bytes += size
    except CorruptDataError:
        stats.damaged_places += 1
