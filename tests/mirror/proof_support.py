"""Two partitions in memory, and the proof that compares them."""

from collections.abc import Sequence
from random import Random  # noqa: TID251 - seeded

from kctl.mirror.proof.differences import Difference
from kctl.mirror.proof.proof import OffsetMapping, PartitionProof, ProofResult
from kctl.mirror.proof.reading import chunk_of
from kctl.records.builder import build_batch
from kctl.records.record import Record
from kctl.records.record_batch import RecordBatch
from kctl.records.transactions import AbortedRange, CommittedReader

# The longest an honest proof of the tests may ask for more.
READS_MAX = 100_000


class MemoryLog:
    """A partition whose batches are bytes; read some batches at a time."""

    def __init__(
        self,
        batches: Sequence[bytes | bytearray],
        aborted: Sequence[AbortedRange] = (),
        chunk_batches: int = 7,
        ends: Sequence[int] = (),
    ) -> None:
        self.batches = [bytes(each) for each in batches]
        self._ends = list(ends) or [RecordBatch(each).next_offset for each in self.batches]
        self._aborted = aborted
        self._chunk_batches = chunk_batches
        self.end = self._ends[-1] if self._ends else 0

    def read(self, offset: int):
        first = next((at for at, end in enumerate(self._ends) if end > offset), len(self.batches))
        last = first + self._chunk_batches
        view = memoryview(b"".join(self.batches[first:last]))
        chunk, _ = chunk_of(view, CommittedReader(self._aborted), offset, is_complete=True)
        chunk.is_last = last >= len(self.batches)
        return chunk


def proved(
    source: MemoryLog,
    target: MemoryLog,
    mapping: OffsetMapping | None = None,
    *,
    ignores_timestamps: bool = False,
    ends: tuple[int, int] | None = None,
) -> ProofResult:
    """Compare two partitions from 0 to their ends, or to the given ones."""
    source_end, target_end = ends or (source.end, target.end)
    proof = PartitionProof(
        (0, source_end), (0, target_end), mapping, ignores_timestamps=ignores_timestamps
    )
    for _ in range(READS_MAX):
        read = proof.next_read()
        if read is None:
            return proof.result
        proof.add(read, (source if read.is_source else target).read(read.offset))
    raise AssertionError("the proof does not come to an end")


def records_of(count: int, seed: int = 0, first: int = 0) -> list[Record]:
    """Return records with unlike values at consecutive offsets."""
    rng = Random(seed)
    return [
        Record(
            first + n, 1_700_000_000_000 + n * 3, rng.choice((None, b"k%d" % (n % 50))),
            rng.randbytes(rng.randrange(1, 60)) + b"%d" % n,
            (("source", b"%d" % (n % 3)),) if n % 5 == 0 else (),
        )
        for n in range(count)
    ]  # fmt: skip


def batched(records: Sequence[Record], size: int, compression_type: int = 0) -> list[bytearray]:
    """Return the records in batches of `size`, each at its own offset."""
    return [
        build_batch(records[at : at + size], compression_type=compression_type)
        for at in range(0, len(records), size)
    ]


def renumbered(records: Sequence[Record], first: int = 0) -> list[Record]:
    """Return the records at consecutive offsets, as a mirror's target assigns them."""
    return [record._replace(offset=first + n) for n, record in enumerate(records)]


def found(result: ProofResult) -> list[tuple[str, int, int, int]]:
    """Return the differences as (kind, source offset, target offset, count)."""
    return [_row(each) for each in result.differences.listed]


def _row(each: Difference) -> tuple[str, int, int, int]:
    return each.kind.value, each.source_offset, each.target_offset, each.count
