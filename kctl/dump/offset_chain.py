"""OffsetChain: whether the offsets of a log's batches follow one another, and which is wrong.

A batch's base offset is not under its checksum. So when one does not follow, there are three
stories: offsets are missing before it, it repeats what was there, or its base offset is damaged.
What comes next tells them apart: a batch whose successor follows from where the batch *should*
have been has a wrong offset. Judgement therefore waits for the next batch.

Missing offsets are no damage in a compacted log; as a log shows only on the way that it is
compacted, they are told at the end.
"""

from typing import NamedTuple

from kctl.dump.findings import Findings
from kctl.dump.segment_walk import WalkedBatch
from kctl.dump.verify_rules import Finding, Rule


class _Doubt(NamedTuple):
    """A batch that did not follow, and what would prove that its offset is wrong."""

    path: str
    batch: WalkedBatch
    expected: int
    # The base offset of the next batch if this one's should have been `expected`.
    next_if_wrong: int


class OffsetChain:
    """See the module; `next_offset` is what the next batch should begin with."""

    def __init__(self, next_offset: int, findings: Findings) -> None:
        self.next_offset = next_offset
        self._findings = findings
        self._doubt: _Doubt | None = None
        self._missing: list[Finding] = []
        self._missing_count = 0

    def on_batch(self, path: str, batch: WalkedBatch, first_offset: int) -> None:
        """The next valid batch; `first_offset` of its records, which a wrapper does not tell."""
        if self._doubt is not None:
            self._judge(first_offset)
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
        """What lies before `next_offset` is told as damage already."""
        self.settle(None)
        self.next_offset = max(self.next_offset, next_offset)

    def settle(self, next_base_offset: int | None) -> None:
        """A segment ends and the next begins with that offset; None: none does."""
        if self._doubt is None:
            return
        if next_base_offset is None:
            self._accept(self._doubt)
        else:
            self._judge(next_base_offset)

    def _judge(self, next_first: int) -> None:
        doubt = self._doubt
        assert doubt is not None
        self._doubt = None
        batch = doubt.batch
        jumped_up = batch.base_offset > doubt.expected
        is_proven = next_first == doubt.next_if_wrong and next_first != self.next_offset
        if is_proven or (jumped_up and doubt.expected < next_first < self.next_offset):
            proof = " as the batch behind it proves" if is_proven else " or little more"
            # The offset that a wrapper bears is its last.
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
        """The batch's offset is its own: something is missing, or comes twice."""
        self._doubt = None
        path, batch, expected, _ = doubt
        first, last = batch.base_offset, batch.last_offset
        if first > expected:
            self.add_missing(
                Finding(
                    path, Rule.MISSING_OFFSETS,
                    f"offsets {expected} to {first - 1} are missing before this batch",
                    batch.position, expected, first - 1,
                )
            )  # fmt: skip
        elif batch.is_wrapper and last >= expected:
            return  # Its first offset was not known.
        elif last < expected:
            self._findings.add(
                Finding(
                    path, Rule.DUPLICATE_OFFSETS,
                    f"offsets {first} to {last} come again, {expected} should follow",
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

    def add_missing(self, finding: Finding) -> None:
        """Offsets that are missing, unless the log proves to be compacted."""
        if self._missing_count < 1000:
            self._missing.append(finding)
        self._missing_count += 1

    def report_missing(self) -> None:
        """The log is not compacted: tell what is missing."""
        for finding in self._missing:
            self._findings.add(finding)
