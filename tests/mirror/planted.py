"""A pair of log directories: a source, and a target with faults planted at known offsets."""

from dataclasses import dataclass
from pathlib import Path
from random import Random  # noqa: TID251 - seeded

from kctl.records.builder import build_batch
from kctl.records.record import Record
from kctl.records.record_batch import RecordBatch
from tests.export.log_files import write_segment

BATCH_RECORDS = 100
SEGMENT_BATCHES = 100
KINDS = ("drop", "double", "swap", "key", "value", "header", "timestamp")
EXPECTED = {"drop": "missing", "double": "double", "swap": "out of order"}


@dataclass(frozen=True)
class Fault:
    """A planted fault and the difference that it must be found as."""

    kind: str
    source_offset: int
    target_offset: int

    @property
    def difference(self):
        kind = EXPECTED.get(self.kind, "changed")
        fields = () if self.kind in EXPECTED else (f"{self.kind}s" * (self.kind == "header"),)
        if kind == "changed" and self.kind != "header":
            fields = (self.kind,)
        return kind, self.source_offset, self.target_offset, 1, fields


def record_at(number, first=0):
    """Return a record of about 100 bytes that no other is equal to."""
    text = b"%020d" % number
    headers = (("trace", text),) if number % 3 == 0 else ()
    return Record(
        first + number, 1_600_000_000_000 + number // 7, b"key-%d" % (number % 1_000),
        text + b"x" * (number % 97), headers,
    )  # fmt: skip


def write_planted(disk, root: Path, partition, records, faults, seed, *, compression_type=0):
    """Write `records` records to root/source and, with `faults` faults, to root/target; return the
    faults. With a codec the target's batches have other sizes, too."""
    rng = Random(seed)
    batches = records // BATCH_RECORDS
    with_fault = dict.fromkeys(sorted(rng.sample(range(1, batches - 1), faults)))
    planted = []
    source, target, moved = [], [], []
    shift = 0
    for number in range(batches):
        first = number * BATCH_RECORDS
        mine = [record_at(first + n) for n in range(BATCH_RECORDS)]
        built = build_batch(mine)
        source.append(bytes(built))
        if number in with_fault:
            at = rng.randrange(1, BATCH_RECORDS - 1)
            kind = KINDS[len(planted) % len(KINDS)]
            theirs, offset = _with_fault(kind, mine, at, rng)
            planted.append(Fault(kind, mine[at].offset, mine[at].offset + shift + offset))
        else:
            theirs = mine
        begin = first + shift
        shift += len(theirs) - len(mine)
        if compression_type:
            moved += [it._replace(offset=begin + n) for n, it in enumerate(theirs)]
            while len(moved) >= 333:
                target.append(bytes(build_batch(moved[:333], compression_type=compression_type)))
                del moved[:333]
        elif theirs is mine:
            RecordBatch(built).set_base_offset(begin)
            target.append(bytes(built))
        else:
            renumbered = [it._replace(offset=begin + n) for n, it in enumerate(theirs)]
            target.append(bytes(build_batch(renumbered)))
    if moved:
        target.append(bytes(build_batch(moved, compression_type=compression_type)))
    for name, written in (("source", source), ("target", target)):
        for at in range(0, len(written), SEGMENT_BATCHES):
            part = written[at : at + SEGMENT_BATCHES]
            write_segment(
                disk, root / name / f"t-{partition}", RecordBatch(part[0]).base_offset, part
            )
    return planted


def _with_fault(kind, records, at, rng):
    """Return the records with a fault at index `at`, and where it is found, relative to `at`."""
    record = records[at]
    if kind == "drop":
        return records[:at] + records[at + 1 :], 0
    if kind == "double":
        return records[: at + 1] + records[at:], 1
    if kind == "swap":
        return [*records[:at], records[at + 1], record, *records[at + 2 :]], 1
    if kind == "header":
        changed = record._replace(headers=((("trace", b"other"),)))
    elif kind == "timestamp":
        changed = record._replace(timestamp=record.timestamp ^ 1)
    else:
        data = bytearray(getattr(record, kind))
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        changed = record._replace(**{kind: bytes(data)})
    return [*records[:at], changed, *records[at + 1 :]], 0
