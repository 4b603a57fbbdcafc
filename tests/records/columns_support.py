"""Buffers of batches for tests of the bulk decoder, and what the record reader makes of them."""

import random  # noqa: TID251 - seeded

from kctl.errors import CorruptDataError
from kctl.records.builder import RecordBatchBuilder
from kctl.records.columnar import RecordColumns
from kctl.records.legacy_builder import MessageSetBuilder
from kctl.records.memory_records import batches
from kctl.records.record import Record
from kctl.records.record_batch import CRC_OFFSET, LOG_APPEND_TIME, UINT32, RecordBatch


def as_records(columns: RecordColumns) -> list[Record]:
    return [
        Record(
            int(columns.offsets[index]), int(columns.timestamps[index]), columns.key(index),
            columns.value(index), tuple(columns.header_pairs(index)),
        )
        for index in range(len(columns))
    ]  # fmt: skip


def read_one_by_one(buffer) -> tuple[list[Record], list[tuple[int, str]]]:
    """Return the records of all batches except markers, and (position, reason) of damaged ones."""
    records: list[Record] = []
    failures = []
    for batch in batches(buffer):
        if batch.is_control:
            continue
        try:
            batch.ensure_valid()
        except CorruptDataError as error:
            failures.append((batch.position, str(error)))
            continue
        records += records_up_to_damage(batch, failures)
    return records, failures


def records_up_to_damage(batch, failures=None) -> list[Record]:
    found: list[Record] = []
    try:
        for record in batch.records():
            found.append(record)  # noqa: PERF402 - what came before an error counts
    except CorruptDataError as error:
        if failures is not None:
            failures.append((batch.position, str(error)))
    return found


def with_right_crc(batch: bytearray) -> bytearray:
    UINT32.pack_into(batch, CRC_OFFSET, RecordBatch(batch).compute_crc())
    return batch


def random_field(rng: random.Random) -> bytes | None:
    kind = rng.randrange(8)
    if kind == 0:
        return None
    if kind == 1:
        return b""
    if kind == 2:
        return bytes(rng.randrange(400))
    if kind == 3:
        return rng.randbytes(rng.choice((60, 70, 8000, 8300, 70_000)))
    return rng.randbytes(rng.randrange(1, 40))


def random_headers(rng: random.Random) -> tuple[tuple[str, bytes | None], ...]:
    if rng.random() < 0.7:
        return ()
    return tuple(
        ("h" * rng.randrange(3) + "ü" * rng.randrange(2), random_field(rng))
        for _ in range(rng.randrange(1, 5))
    )


def random_batch(rng: random.Random, offset: int) -> tuple[bytes, int]:
    """A batch (or a message set) of any format, and the offset after it."""
    magic = rng.choice((0, 1, 2, 2, 2, 2))
    codec = rng.choice((0, 0, 1, 2, 3) if magic < 2 else (0, 0, 1, 2, 3, 4))
    count = rng.choice((1, 2, 5, 30, 300))
    facts = {"base_offset": offset, "compression_type": codec}
    if magic and rng.random() < 0.2:
        facts |= {"timestamp_type": LOG_APPEND_TIME, "append_timestamp": rng.randrange(2**41)}
    builder = RecordBatchBuilder(**facts) if magic == 2 else MessageSetBuilder(magic=magic, **facts)
    time = rng.choice((0, 1_600_000_000_000, 2**62))
    is_small = count > 30
    for _ in range(count):
        offset += rng.choice((0, 0, 0, 1, 100)) if magic == 2 or codec == 0 else 0
        time += rng.choice((0, 1, 1000, 100_000, -50_000, 2**33))
        builder.append(
            timestamp=time,
            key=b"k%d" % rng.randrange(50) if is_small else random_field(rng),
            value=bytes(rng.randrange(90)) if is_small else random_field(rng),
            headers=() if magic < 2 else random_headers(rng),
            offset=offset,
        )
        offset += 1
    return bytes(builder.build()), offset


def random_log(seed: int, count: int = 6) -> bytes:
    rng = random.Random(seed)
    parts = []
    offset = rng.choice((0, 7, 2**40))
    for _ in range(count):
        part, offset = random_batch(rng, offset)
        parts.append(part)
    return b"".join(parts)
