"""OffsetChain: checks that the offsets of a log's batches are consecutive, and finds which is
wrong.

No checksum covers a batch's base offset. So when one does not follow, there are four explanations:
offsets are missing before it, it repeats earlier ones, it is in the wrong place, or its base offset
is damaged. The next batch distinguishes them: a batch whose successor follows from where the batch
*should* have been has a wrong offset, unless the successor is its second copy. The judgement
therefore waits for the next batch. A late batch that fills a gap is in the wrong place. `kctl
repair-log` sees the whole log and may judge the same damage differently.

Missing offsets are not damage in a compacted log; as a log may prove to be compacted only later,
they are reported at the end.
"""

from dataclasses import replace
from typing import NamedTuple

from kctl.counts import are, offset_range
from kctl.verify.findings import Findings
from kctl.verify.rules import Finding, Rule
from kctl.verify.segment_walk import WalkedBatch


class _Doubt(NamedTuple):
    """A batch that did not follow, and what would prove that its offset is wrong."""

    path: str
    batch: WalkedBatch
    expected: int
    # The base offset of the next batch if this one's should have been `expected`.
    next_if_wrong: int


class OffsetChain:
    """The chain of a log's offsets; `next_offset` is the expected start of the next batch."""

    def __init__(self, next_offset: int, findings: Findings) -> None:
        self.next_offset = next_offset
        self._findings = findings
        self._doubt: _Doubt | None = None
        self._missing: list[Finding] = []
        self._missing_count = 0

    def on_batch(self, path: str, batch: WalkedBatch, first_offset: int) -> None:
        """Check the next valid batch; `first_offset` is of its records, as a wrapper does not store
        it."""
        if self._doubt is not None:
            self._judge(first_offset, batch)
        if batch.last_offset < first_offset:
            self._findings.add(
                Finding(
                    path, Rule.OFFSET_RANGE,
                    f"the batch ends with offset {batch.last_offset}, before it begins",
                    batch.position, first_offset, first_offset, batch.size,
                )
            )  # fmt: skip
            return
        expected = self.next_offset
        if first_offset != expected:
            delta = batch.last_offset - first_offset
            self._doubt = _Doubt(path, batch, expected, expected + delta + 1)
        if batch.last_offset >= expected:
            self.next_offset = batch.last_offset + 1

    def jump(self, next_offset: int) -> None:
        """Skip to `next_offset`: the damage before it is reported already."""
        self.settle(None)
        self.next_offset = max(self.next_offset, next_offset)

    def settle(self, next_base_offset: int | None) -> None:
        """Settle the last batch at the end of a segment; `next_base_offset` is None at the end of
        the log."""
        if self._doubt is None:
            return
        if next_base_offset is None:
            self._accept(self._doubt)
        else:
            self._judge(next_base_offset)

    def _judge(self, next_first: int, following: WalkedBatch | None = None) -> None:
        doubt = self._doubt
        assert doubt is not None
        self._doubt = None
        batch = doubt.batch
        jumped_up = batch.base_offset > doubt.expected
        is_proven = next_first == doubt.next_if_wrong and next_first != self.next_offset
        is_below = jumped_up and doubt.next_if_wrong <= next_first < self.next_offset
        is_copied = following is not None and _is_copy(batch, following)
        if (is_proven or is_below) and not is_copied:
            proof = " as the batch after it proves" if is_proven else " or little more"
            # The offset in a wrapper's header is its last.
            is_last = batch.is_wrapper
            should_be = doubt.next_if_wrong - 1 if is_last else doubt.expected
            self._findings.add(
                Finding(
                    doubt.path, Rule.BATCH_OFFSET,
                    f"the offset is {batch.base_offset}, it should be {should_be}{proof}",
                    batch.position, batch.base_offset, batch.last_offset, batch.size, should_be,
                )
            )  # fmt: skip
            self.next_offset = doubt.next_if_wrong if is_proven else next_first
        else:
            self._doubt = doubt
            self._accept(doubt)

    def _accept(self, doubt: _Doubt) -> None:
        """Accept the batch's offset: offsets are missing, or repeated."""
        self._doubt = None
        path, batch, expected, _ = doubt
        first, last = batch.base_offset, batch.last_offset
        if first > expected:
            self.add_missing(
                Finding(
                    path, Rule.MISSING_OFFSETS,
                    f"{offset_range(expected, first - 1)} {are(first - expected)} missing before "
                    "this batch",
                    batch.position, expected, first - 1,
                )
            )  # fmt: skip
        elif batch.is_wrapper and last >= expected:
            return  # Its first offset was not known.
        elif self._fills_gap(first, last):
            comes = "comes" if first == last else "come"
            self._findings.add(
                Finding(
                    path, Rule.OFFSET_ORDER,
                    f"{offset_range(first, last)} {comes} after offset {expected - 1}",
                    batch.position, first, last, batch.size,
                )
            )  # fmt: skip
        elif last < expected:
            self._findings.add(
                Finding(
                    path, Rule.DUPLICATE_OFFSETS,
                    f"offsets {first} to {last} are repeated, {expected} should follow",
                    batch.position, first, last, batch.size,
                )
            )  # fmt: skip
        else:
            self._findings.add(
                Finding(
                    path, Rule.OFFSET_ORDER,
                    f"the batch begins with offset {first}, but {expected - 1} is before it",
                    batch.position, first, last, batch.size, expected,
                )
            )  # fmt: skip

    def _fills_gap(self, first: int, last: int) -> bool:
        """Return whether these offsets were missing so far, and remove them from the
        missing ones."""
        for i, gap in enumerate(self._missing):
            start, end = gap.first_offset, gap.last_offset
            if start is None or end is None or not start <= first <= last <= end:
                continue
            rest = [(start, first - 1), (last + 1, end)]
            self._missing[i : i + 1] = [_missing(gap, *it) for it in rest if it[0] <= it[1]]
            return True
        return False

    def add_missing(self, finding: Finding) -> None:
        """Add missing offsets, to be reported unless the log proves to be compacted."""
        if self._missing_count < 1000:
            self._missing.append(finding)
        self._missing_count += 1

    def report_missing(self) -> None:
        """Report the missing offsets: the log is not compacted."""
        for finding in self._missing:
            self._findings.add(finding)


def _is_copy(batch: WalkedBatch, other: WalkedBatch) -> bool:
    mine = batch.base_offset, batch.last_offset, batch.size, batch.crc
    return mine == (other.base_offset, other.last_offset, other.size, other.crc)


def _missing(gap: Finding, first: int, last: int) -> Finding:
    message = f"offsets {first} to {last} are missing before this batch"
    return replace(gap, message=message, first_offset=first, last_offset=last)
