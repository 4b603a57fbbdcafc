"""The values of a dump as aligned lines for people.

One line per batch, record or entry, streamed: columns have fixed widths and make room for wider
values. Control characters are escaped, so that a record cannot move the reader's cursor.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

from kctl.counts import counted
from kctl.dump.control_records import ControlRecord
from kctl.dump.documents import document
from kctl.dump.kafka_format import CODECS
from kctl.dump.shapes import Shapes, shaped_text
from kctl.dump.values import (
    CheckpointedOffset,
    DumpDamage,
    DumpedBatch,
    DumpedFile,
    DumpedOldMessage,
    DumpedRecord,
    DumpedText,
    DumpItem,
    TrailingBytes,
)
from kctl.records.memory_records import Batch
from kctl.records.record_batch import LOG_APPEND_TIME, RecordBatch
from kctl.storage.offset_index import OffsetPosition
from kctl.storage.time_index import TimestampOffset

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def text_lines(
    items: Iterable[DumpItem], *, with_data: bool, shapes: Shapes | None = None
) -> Iterator[str | bytes | memoryview]:
    """Yield the lines, each with its end; keys, values and headers only `with_data`."""
    is_first = True
    for item in items:
        if isinstance(item, DumpedFile):
            yield ("" if is_first else "\n") + _file(item)
            is_first = False
        elif isinstance(item, DumpedText):
            yield item.text
        elif isinstance(item, DumpedBatch):
            yield batch_line(item)
        elif isinstance(item, DumpedRecord):
            yield record_line(item, with_data=with_data, shapes=shapes)
        elif not isinstance(item, DumpDamage):
            yield f"  {_entry(item)}\n"


def _file(file: DumpedFile) -> str:
    kind = file.kind.value.replace("_", " ")
    base = "" if file.base_offset is None else f", base offset {file.base_offset}"
    return f"{file.path}  ({kind}{base}, {counted(file.size, 'byte')})\n"


def batch_line(item: DumpedBatch) -> str:
    """Return a batch's line."""
    batch = item.batch
    if isinstance(batch, RecordBatch):
        offsets = f"{batch.base_offset}..{batch.last_offset}"
        count = counted(batch.count, "record")
    else:
        offsets = f"{'..' if batch.compression_type else ''}{batch.offset}"
        count = "wrapper" if batch.compression_type else "message"
    line = (
        f"  {offsets:<15} {count:<12} at {item.position:<9} {batch.size:>7} B  v{batch.magic} "
        f"{CODECS[batch.compression_type].lower():<6} {_time(batch, batch.max_timestamp)}"
        f"  {' '.join(_marks(item, batch))}"
    )
    return line.rstrip() + "\n"


def _marks(item: DumpedBatch, batch: Batch) -> Iterator[str]:
    """Yield the properties that not every batch has."""
    if isinstance(batch, RecordBatch):
        if batch.partition_leader_epoch >= 0:
            yield f"epoch {batch.partition_leader_epoch}"
        if batch.has_producer_id:
            yield f"producer {batch.producer_id}/{batch.producer_epoch}"
        if batch.base_sequence >= 0:
            yield f"sequence {batch.base_sequence}..{batch.last_sequence}"
        if batch.is_transactional:
            yield "transactional"
        if batch.is_control:
            yield "control"
    if not item.is_valid:
        yield "CRC IS WRONG"


def record_line(item: DumpedRecord, *, with_data: bool, shapes: Shapes | None = None) -> str:
    """Return a record's line."""
    record = item.record
    head = f"    {record.offset:<13} {_time(item.batch, record.timestamp)}"
    if isinstance(item.decoded, ControlRecord):
        epoch = item.decoded.coordinator_epoch
        suffix = "" if epoch is None else f" by coordinator epoch {epoch}"
        if item.decoded.fields is not None:
            from kctl.dump.later_records import compact_json

            suffix = f"  {_escaped(compact_json(item.decoded.fields))}"
        return f"{head}  {item.decoded.type_name}{suffix}\n"
    if not with_data:
        return f"{head}  key {_size(record.key)}  value {_size(record.value)}\n"
    if item.decoded is not None and (shapes is None or shapes.is_default):
        from kctl.dump.decoded_format import decoded_texts

        texts = [_escaped(text) for text in decoded_texts(item.decoded) if text is not None]
        return f"{'  '.join([head, *texts])}\n"
    names = (f"  {_escaped(name)}={shown(value)}" for name, value in record.headers)
    key, value = shown(record.key), shown(record.value)
    if shapes is not None:
        key = key if shapes.key is None else shaped_text(record.key, shapes.key)
        value = value if shapes.value is None else shaped_text(record.value, shapes.value)
    return f"{head}  {key:<16}  {value}{''.join(names)}\n"


def _entry(item: DumpItem) -> str:
    if isinstance(item, DumpedOldMessage):
        return _old_message(item)
    if isinstance(item, OffsetPosition):
        return f"offset {item.offset:<15} position {item.position}"
    if isinstance(item, TimestampOffset):
        return f"{iso(item.timestamp)}  ({item.timestamp})  offset {item.offset}"
    if isinstance(item, CheckpointedOffset):
        return f"{item.topic_partition!s:<40} {item.offset}"
    if isinstance(item, TrailingBytes):
        what = "padding" if item.is_padding else "not a whole batch"
        return f"at {item.position}: {counted(item.length, 'byte')}, {what}"
    fields = document(item, with_data=True)
    del fields["type"]
    return "  ".join(f"{name.replace('_', ' ')} {value}" for name, value in fields.items())


def _old_message(item: DumpedOldMessage) -> str:
    what = CODECS[item.compression_type].lower() if item.compression_type else shown(item.payload)
    mark = "" if item.is_valid else "  CRC IS WRONG"
    return (
        f"{'  ' * item.depth}{item.offset:<13} at {item.position:<9} {len(item.payload):>7} B  "
        f"magic {item.magic}  {what}{mark}"
    )


def _time(batch: Batch, timestamp: int) -> str:
    mark = " (append)" if batch.timestamp_type == LOG_APPEND_TIME else ""
    return f"{iso(timestamp):<24}{mark}"


def iso(timestamp: int) -> str:
    """Return the time in ISO 8601, UTC; a description if it is not a time."""
    if timestamp < 0:
        return "no timestamp" if timestamp == -1 else str(timestamp)
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp)
    except OverflowError:
        return str(timestamp)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp % 1000:03d}Z"


def _size(data: bytes | None) -> str:
    return "null" if data is None else f"{len(data)} B"


def shown(data: bytes | None) -> str:
    """Return bytes as text that moves no cursor."""
    if data is None:
        return "null"
    try:
        return _escaped(data.decode()) if data else "''"
    except UnicodeDecodeError:
        return repr(data)[2:-1]


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
