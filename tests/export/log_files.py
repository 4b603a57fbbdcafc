"""Log directories made for tests, and tables read back."""

import pyarrow.dataset as arrow_dataset

from kctl.records.builder import RecordBatchBuilder
from kctl.records.record import Record
from kctl.storage.offset_index import OffsetIndex, OffsetPosition


def rows_of(table, columns=("topic", "partition", "offset", "key", "value")):
    """The rows of a Parquet table in order of partition and offset."""
    dataset = arrow_dataset.dataset(str(table), partitioning="hive")
    found = dataset.to_table(columns=list(columns)).to_pylist()
    rows = [tuple(row[name] for name in columns) for row in found]
    return sorted(rows, key=lambda row: row[:3])


def batch_of(offset, count=10, **facts):
    builder = RecordBatchBuilder(base_offset=offset, **facts)
    for number in range(offset, offset + count):
        builder.append(
            timestamp=1_600_000_000_000 + number * 1000, key=b"k%d" % (number % 7),
            value=b'{"n":%d}' % number,
        )  # fmt: skip
    return bytes(builder.build())


def write_segment(disk, directory, base_offset, batches, *, with_index=True):
    """Write a .log file, and an .index with an entry for each batch but the first."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{base_offset:020d}.log"
    path.write_bytes(b"".join(batches))
    if not with_index:
        return path
    entries = []
    position = 0
    offset = base_offset
    for batch in batches:
        last = offset + int.from_bytes(batch[23:27], "big")
        if position:
            entries.append(OffsetPosition(last, position))
        position += len(batch)
        offset = last + 1
    index = OffsetIndex(disk, str(path.with_suffix(".index")), base_offset)
    index.replace_entries(entries)
    return path


def record_rows(topic, partition, records: list[Record]):
    return [(topic, partition, it.offset, it.key, it.value) for it in records]
