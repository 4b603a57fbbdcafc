"""export_logs: exports segment files to a table. It plans splits, has tasks run and commits their
files.

The caller decides where tasks run: a `Runner` is a function that yields a manifest row for each
finished split, from this process, several processes or a Spark cluster.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from kctl.arrow_files.log_discovery import find_logs
from kctl.arrow_files.partition_log import PartitionLog
from kctl.errors import UsageError
from kctl.export.evolution import SchemaReader, current_options
from kctl.export.in_order import InOrder, check_order
from kctl.export.lake import publish
from kctl.export.live_plan import LiveSplit
from kctl.export.manifest import Manifest, ManifestRow, table_schema
from kctl.export.options import ExportOptions, FieldFormat
from kctl.export.rows import DamagedRange, SplitReader, unreadable_end
from kctl.export.splits import EVERYTHING, Split, plan_log
from kctl.export.values import SAMPLE_VALUES_MAX, infer_json_schema
from kctl.lazy_dataclass import dataclass
from kctl.model import Position

__all__ = [
    "ExportReport",
    "ExportRequest",
    "Plan",
    "Runner",
    "Task",
    "export_logs",
    "run_here",
    "work",
]


@dataclass(slots=True)
class ExportRequest:
    """What to export, and where to."""

    sources: Sequence[str]
    out: str
    options: ExportOptions
    topics: Sequence[str] = ()
    partitions: Sequence[int] = ()
    bounds: tuple[Position, Position | None] = EVERYTHING
    # Prefix of the files that this run writes; unique among runs.
    run: str = "run"
    # Reads the newest schema and the writers' schemas by id from a registry, for values of it.
    schemas: SchemaReader | None = None
    # The age from which days and hours of the table are removed; None: never.
    retention_ms: int | None = None


@dataclass(slots=True)
class ExportReport:
    """The result of a run; `earlier_rows` were in the table before."""

    rows: int = 0
    files: int = 0
    file_bytes: int = 0
    log_bytes: int = 0
    undecodable: int = 0
    dead_letters: int = 0
    splits: int = 0
    partitions: int = 0
    earlier_rows: int = 0
    damages: list[DamagedRange] = field(default_factory=list)
    # Other reasons, found while following, why the table may lack records.
    problems: list[str] = field(default_factory=list)

    def add(self, row: ManifestRow) -> None:
        """Count a committed split."""
        self.rows += row.rows
        self.files += len(row.files)
        self.file_bytes += sum(each.size for each in row.files)
        self.log_bytes += row.log_bytes
        self.undecodable += row.undecodable
        self.dead_letters += row.dead_letters
        self.splits += 1
        self.damages += row.damages


@dataclass(frozen=True, slots=True)
class Task:
    """What every task of a run needs in addition to its split."""

    options: ExportOptions
    out: str
    run: str


@dataclass(slots=True)
class Plan:
    """The splits that a run has to export."""

    # Each has a `size`, in bytes of log.
    splits: Sequence[Split | LiveSplit]
    options: ExportOptions
    out: str
    run: str
    partitions: int = 0
    # Found while planning, in files that no split reads.
    damages: list[DamagedRange] = field(default_factory=list)
    # The first offsets of logs, as far as they are known.
    starts: Mapping[tuple[str, int], int] = field(default_factory=dict)

    def task(self) -> Task:
        """Return the value that each worker receives once."""
        return Task(self.options, self.out, self.run)

    def items(self) -> list[tuple[int, Any]]:
        """Return the numbered splits; the number makes the name of an attempt unique."""
        return list(enumerate(self.splits))

    @property
    def size(self) -> int:
        """Return the bytes of log in all splits."""
        return sum(split.size for split in self.splits)


# Works on the plan's splits in any order; an attempt's name must be unique within the run.
Runner = Callable[[Plan], Iterable[ManifestRow]]


def export_logs(
    request: ExportRequest,
    runner: Runner,
    on_plan: Callable[[Plan], object] | None = None,
    on_row: Callable[[ManifestRow], object] | None = None,
) -> ExportReport:
    """Export to a table; splits that earlier runs have committed are skipped.

    UsageError for sources, topics or options that do not match the table, CorruptDataError for
    damage if the options ask for it, StorageError. After an error, what was committed remains
    valid.
    """
    logs = find_logs(request.sources, request.topics, request.partitions)
    request = with_current_schema(replace(request, options=with_schema(request, logs)))
    manifest = Manifest.open(request.out, request.options, request.run)
    return run_plan(plan_export(request, logs, manifest), manifest, runner, on_plan, on_row)


def run_plan(
    plan: Plan,
    manifest: Manifest,
    runner: Runner,
    on_plan: Callable[[Plan], object] | None,
    on_row: Callable[[ManifestRow], object] | None,
) -> ExportReport:
    """Run the plan's splits with `runner` and commit each row; return the report."""
    if on_plan is not None:
        on_plan(plan)
    report = ExportReport(
        partitions=plan.partitions,
        earlier_rows=sum(row.rows for row in manifest.rows),
        damages=list(plan.damages),
    )
    for row in _in_order(plan, manifest, runner):
        manifest.commit([row], replaces=plan.options.replaces_partitions)
        report.add(row)
        if on_row is not None:
            on_row(row)
    publish(plan.out, plan.options, manifest)
    manifest.close()
    return report


def _in_order(plan: Plan, manifest: Manifest, runner: Runner) -> Iterator[ManifestRow]:
    """Yield the runner's rows, those of a partition in order if their records are merged."""
    if not plan.options.merges_changes:
        yield from runner(plan)
        return
    check_order(plan.splits, manifest.done(), plan.starts)
    order = InOrder()
    order.plan(plan.splits)
    for row in runner(plan):
        yield from order.add(row)


def plan_export(request: ExportRequest, logs: Sequence[PartitionLog], manifest: Manifest) -> Plan:
    """Return the splits that are not committed yet, the largest first."""
    done = manifest.done()
    splits: list[Split] = []
    damages: list[DamagedRange] = []
    for log in logs:
        damages += unreadable_end(log, request.options)
        if request.options.latest_per_key and log.segments[0].is_old:
            raise UsageError(
                f"{log.topic_partition}: messages of Kafka 0.7 have no keys",
                hint="leave --latest-per-key out",
            )
        ranges = done.get(log.topic_partition, [])
        if request.options.replaces_partitions:
            splits += _whole(request, log, ranges)
        else:
            splits += plan_log(log, request.options, request.bounds, ranges)
    splits.sort(key=lambda split: (-split.size, split.name))
    starts: dict[tuple[str, int], int] = {it.topic_partition: it.start_offset for it in logs}
    return Plan(splits, request.options, request.out, request.run, len(logs), damages, starts)


def _whole(request: ExportRequest, log: PartitionLog, done: list[tuple[int, int]]) -> list[Split]:
    """Return the partition as one split, unless it was exported in exactly this state."""
    splits = plan_log(log, request.options, request.bounds)
    return [it for it in splits if (it.first_offset, it.end_offset) not in done]


def with_schema(request: ExportRequest, logs: Sequence[PartitionLog]) -> ExportOptions:
    """Return the options with the schema of JSON values: the given one, the table's or an inferred
    one. UsageError if the logs hold none."""
    options = request.options
    if not needs_sample(options):
        return options
    known = table_schema(request.out)
    if known is None:
        known = inferred_schema(_sample(request, logs))
    return replace(options, value_schema=known)


def with_current_schema(request: ExportRequest) -> ExportRequest:
    """Return the request with the schemas that its registry has now: see `current_options`."""
    if request.schemas is None:
        return request
    options = current_options(request.out, request.options, request.schemas)
    return replace(request, options=options)


def needs_sample(options: ExportOptions) -> bool:
    """Return whether the schema of values must be inferred from a sample."""
    return options.value_format is FieldFormat.JSON and options.value_schema is None


def inferred_schema(values: Iterable[bytes | None]) -> str:
    """Return the schema of sample values; UsageError if they hold no JSON object."""
    schema = infer_json_schema(values)
    if schema == "{}":
        raise UsageError(
            "No JSON objects were found among the values",
            hint="--value string exports them as text, --value raw as bytes",
        )
    return schema


def _sample(request: ExportRequest, logs: Sequence[PartitionLog]) -> Iterator[bytes | None]:
    """Yield values from the start of every partition, the same number from each."""
    share = max(100, SAMPLE_VALUES_MAX // max(1, len(logs)))
    options = replace(request.options, fails_on_damage=False, latest_per_key=False)
    for log in logs[: SAMPLE_VALUES_MAX // 100]:
        left = share
        for split in plan_log(log, options, request.bounds)[:1]:
            for columns in SplitReader(split, options).chunks():
                for number in range(min(left, len(columns))):
                    yield columns.value(number)
                left -= len(columns)
                if left <= 0:
                    break


def run_here(plan: Plan) -> Iterator[ManifestRow]:
    """Run the splits one at a time in this process: the simplest Runner."""
    for item in plan.items():
        yield work(plan.task(), item)


def work(
    task: Task, item: tuple[int, Split], progress: Callable[[int], object] = lambda _bytes: None
) -> ManifestRow:
    """Export one of `plan.items()`; a Runner may call this in any process."""
    from kctl.export.task import write_split

    number, split = item
    return write_split(split, task.options, task.out, f"{task.run}-{number}", progress)
