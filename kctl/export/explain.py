"""explain_logs and explain_live: what an export would read, partition by partition, and in how many
tasks. Nothing is written, and no record is decoded.

The plan is that of the export itself (`plan_export`, `plan_ranges`), so it cannot differ from what
the next run does, except for what is added to the logs until then.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kctl.arrow_files.log_discovery import find_logs
from kctl.arrow_files.partition_log import PartitionLog
from kctl.export.export import ExportRequest, Plan, plan_export
from kctl.export.live import requested_ranges
from kctl.export.live_plan import LiveSplit, bytes_per_offset, plan_ranges
from kctl.export.manifest import Manifest
from kctl.export.splits import Split
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient

__all__ = ["ExportPlan", "PartitionPlan", "explain_live", "explain_logs"]


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """What would be read of one partition."""

    partition: TopicPartition
    # Of a directory: all offsets that the log holds. Of brokers: those that the bounds select.
    first_offset: int
    # Exclusive.
    end_offset: int
    # Offsets to read, and those of the range that the table has.
    offsets: int
    exported: int
    tasks: int
    # Bytes of log to read: of brokers an estimate, 0 if they do not report sizes.
    bytes: int
    # Of a directory: bytes of all segments, the segments to read (in part or whole), and all.
    all_bytes: int = 0
    segments: int = 0
    all_segments: int = 0


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """What an export would read."""

    partitions: Sequence[PartitionPlan]

    @property
    def tasks(self) -> int:
        """Return the number of tasks; each commits files of its own."""
        return sum(it.tasks for it in self.partitions)

    @property
    def offsets(self) -> int:
        """Return the number of offsets to read."""
        return sum(it.offsets for it in self.partitions)

    @property
    def bytes(self) -> int:
        """Return the bytes of log to read."""
        return sum(it.bytes for it in self.partitions)


def explain_logs(request: ExportRequest) -> ExportPlan:
    """Return what an export of the request's sources would read now.

    UsageError and NotFoundError as `export_logs` raises them.
    """
    logs = find_logs(request.sources, request.topics, request.partitions)
    manifest = Manifest.look(request.out, request.options)
    plan = plan_export(request, logs, manifest)
    done = manifest.done()
    splits = _by_partition(plan)
    return ExportPlan([
        _of_log(log, splits.get(log.topic_partition, []), done.get(log.topic_partition, []))
        for log in sorted(logs, key=lambda log: log.topic_partition)
    ])  # fmt: skip


async def explain_live(admin: "AdminClient", request: ExportRequest) -> ExportPlan:
    """Return what an export from brokers would read now; raise what `prepare_live` raises."""
    ranges = await requested_ranges(admin, request)
    done = Manifest.look(request.out, request.options).done()
    splits = plan_ranges(ranges, request.options, done, await bytes_per_offset(admin, ranges))
    grouped = _by_partition(Plan(splits, request.options, request.out, request.run))
    return ExportPlan([
        PartitionPlan(
            partition, first, end, _offsets(found), _within(done.get(partition, []), first, end),
            len(found), sum(it.size for it in found),
        )
        for partition, (first, end) in sorted(ranges.items())
        for found in [grouped.get(partition, [])]
    ])  # fmt: skip


def _of_log(
    log: PartitionLog, splits: Sequence[Split | LiveSplit], done: Iterable[tuple[int, int]]
) -> PartitionPlan:
    read = {piece.url for it in splits if isinstance(it, Split) for piece in it.pieces}
    first, end = log.start_offset, log.end_offset
    return PartitionPlan(
        log.topic_partition, first, end, _offsets(splits), _within(done, first, end), len(splits),
        sum(it.size for it in splits), sum(it.size for it in log.segments), len(read),
        len(log.segments),
    )  # fmt: skip


def _by_partition(plan: Plan) -> dict[TopicPartition, list[Split | LiveSplit]]:
    found: dict[TopicPartition, list[Split | LiveSplit]] = {}
    for split in plan.splits:
        found.setdefault(TopicPartition(split.topic, split.partition), []).append(split)
    return found


def _offsets(splits: Iterable[Split | LiveSplit]) -> int:
    return sum(it.end_offset - it.first_offset for it in splits)


def _within(ranges: Iterable[tuple[int, int]], first: int, end: int) -> int:
    """Return the number of offsets of `ranges` in [first, end)."""
    return sum(max(0, min(high, end) - max(low, first)) for low, high in ranges)
