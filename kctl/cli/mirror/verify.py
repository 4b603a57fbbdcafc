"""kctl mirror verify: compares source and target, record by record."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.command import COUNT
from kctl.cli.declaration.declarations import Option
from kctl.cli.failures import DONE, FAILED
from kctl.cli.items import positive
from kctl.cli.mirror.change_options import loops_of
from kctl.cli.mirror.ends import EndOptions
from kctl.cli.mirror.topic_options import ExcludeOption, RenameOption, SourceAliasOption
from kctl.cli.output import Output, Table
from kctl.cli.tables.spark import SparkOptions
from kctl.counts import counted
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass
from kctl.mirror.comparison import Comparison
from kctl.records.bulk import require_bulk
from kctl.runtime.real.paths import absolute

if TYPE_CHECKING:
    from kctl.mirror.places import Loop, Place
    from kctl.mirror.proof.differences import Difference
    from kctl.mirror.proof_state import ProofStates
    from kctl.mirror.record_changes import Loops
    from kctl.mirror.verification import VerifiedPartition, VerifyRequest, VerifyTask

COLUMNS = (
    "topic", "partition", "target", "equal", "missing", "extra", "double", "out_of_order",
    "changed", "unreadable", "result",
)  # fmt: skip
DIFFERENCE_COLUMNS = (
    "topic", "partition", "difference", "source_offset", "target_offset", "records", "fields",
)  # fmt: skip
# Differences that a table shows of each partition; the other formats show all that are listed.
_SHOWN_MAX = 20


@dataclass(frozen=True)
class VerifyOptions:
    """What kctl mirror verify compares."""

    topics: Annotated[
        list[str] | None,
        Option(
            "--topics",
            "-t",
            metavar="PATTERN",
            help="Names or globs; may be repeated. [default: all but internal topics]",
        ),
    ] = None
    exclude: ExcludeOption = None
    rename: RenameOption = "identity"
    source_alias: SourceAliasOption = None
    name: Annotated[
        str | None,
        Option(
            "--name",
            metavar="NAME",
            help="Compare the topics of this mirror by its map. [default: in order]",
        ),
    ] = None
    offset: Annotated[
        str | None,
        Option(
            "--offset",
            "-O",
            metavar="START[..END]",
            help="Only these records of each side: @TIME (UTC without a zone), @-1h.",
        ),
    ] = None
    ignore_timestamps: Annotated[
        bool,
        Option("--ignore-timestamps", help="For targets that set their own (LogAppendTime)."),
    ] = False
    compare: Annotated[
        Comparison,
        Option(
            "--compare",
            help="Every record, or the last of each key, by which compacted topics are equal."
            " auto: the latter where cleanup.policy is compact on either side.",
        ),
    ] = Comparison.AUTO
    ring: Annotated[
        bool, Option("--ring", help="Without --name: compare what a mirror with --ring copies.")
    ] = False
    mesh: Annotated[
        bool, Option("--mesh", help="Without --name: compare what a mirror with --mesh copies.")
    ] = False
    state: Annotated[
        str | None,
        Option(
            "--state",
            metavar="DIR",
            help="Keep what is proven here: the same command goes on after an interruption.",
        ),
    ] = None
    jobs: Annotated[
        int | None,
        Option("--jobs", "-j", metavar="N", help="Number of processes. [default: one per core]"),
        COUNT,
    ] = None


def verify(ends: EndOptions, which: VerifyOptions, on_spark: SparkOptions) -> int:
    """Prove that the target has every committed record of the source once, in order and unchanged,
    and nothing else. Exit with 1 if it does not.

    --source and --target are clusters, or log directories (paths and URLs, which contain a /).
    Batches and codecs may differ. Of compacted topics the last value of each key is compared. A
    difference has the offsets of both sides. Records that arrive while the command runs are not
    compared. With --state, a proof that was interrupted goes on where it stopped, and ends with
    the same verdict.

    \b
    Examples:
      kctl mirror verify --source dc1:9092 --target dc2:9092 --topics 'orders*'
      kctl mirror verify --source dc1:9092 --target dc2:9092 --name dc1-to-dc2 -o json
      kctl mirror verify --source dc1:9092 --target dc2:9092 -t orders --offset @-1d..@-5m
      kctl mirror verify --source dc1:9092 --target dc2:9092 -t orders --ring
      kctl mirror verify --source dc1:9092 --target dc2:9092 --state proof/
      kctl mirror verify --source /backup/kafka --target dc2:9092 --rename 'dc1.{topic}'
      kctl mirror verify --source dc1:9092 --target dc2:9092 --spark --master spark://head:7077
    """
    require_bulk("kctl mirror verify", "spark" if on_spark.spark else "export")
    from kctl.runtime.real.disk import RealDisk

    on_spark.check()
    if which.state is not None and on_spark.spark:
        raise UsageError("--state and --spark cannot be combined: executors have other disks")
    output = Output(ends.output_format)
    with _loop() as loop:
        tasks = _planned(ends, which, loop, is_remote=on_spark.spark)
    if not tasks:
        raise UsageError("No topic to compare", hint="--topics names them")
    if on_spark.spark:
        found = _on_spark(tasks, on_spark)
    else:
        states = _states(ends, which)
        with nullcontext() if states is None else states.held(RealDisk()):
            found = _here(tasks, which.jobs, states, output)
    found.sort(key=lambda it: it.task.source_partition)
    documents = [_document(it) for it in found]
    tables = [
        Table(COLUMNS, documents),
        Table(DIFFERENCE_COLUMNS, [row for it in found for row in _rows(it)], "differences"),
    ]
    output.show(documents, COLUMNS, name="topic", tables=tables if tables[1].rows else tables[:1])
    return DONE if all(it.is_equal for it in found) else FAILED


@contextmanager
def _loop() -> "Iterator[Loop]":
    from kctl.mirror.places import Loop
    from kctl.runtime.real import make_runtime
    from kctl.runtime.trace import NullTrace

    with Loop(lambda: make_runtime(NullTrace())) as loop:
        yield loop


def _planned(
    ends: EndOptions, which: VerifyOptions, loop: "Loop", *, is_remote: bool
) -> "list[VerifyTask]":
    from kctl.mirror.verification import plan_verification

    source, target = (
        _place(ends, side, loop, is_remote=is_remote) for side in ("source", "target")
    )
    return plan_verification(_request(source, target, which, loop), loop)


def _request(
    source: "Place", target: "Place", which: VerifyOptions, loop: "Loop"
) -> "VerifyRequest":
    from kctl.cli.positions import parse_range
    from kctl.mirror.formats import check_name
    from kctl.mirror.renames import parse_rename
    from kctl.mirror.verification import VerifyRequest
    from kctl.model import Position, PositionKind

    since, end = parse_range(which.offset or "earliest", loop.runtime.clock.wall_ms())
    until = end or Position(PositionKind.LATEST)
    both_mean_the_same = (PositionKind.TIME, PositionKind.EARLIEST, PositionKind.LATEST)
    if since.kind not in both_mean_the_same or until.kind not in both_mean_the_same:
        raise UsageError(
            f"--offset {which.offset}: an offset is not the same place on both sides",
            hint="limit the comparison by times, e.g. --offset @-1d",
        )
    return VerifyRequest(
        source,
        target,
        topics=tuple(which.topics or ()),
        exclude=tuple(which.exclude or ()),
        rename=parse_rename(which.rename, which.source_alias),
        since=since,
        until=until,
        name=None if which.name is None else check_name(which.name),
        ignores_timestamps=which.ignore_timestamps,
        comparison=which.compare,
        loops=_loops(which),
    )


def _loops(which: VerifyOptions) -> "Loops":
    loops = loops_of(ring=which.ring, mesh=which.mesh)
    if (which.ring or which.mesh) and which.name is not None:
        raise UsageError("--name says whether the mirror is one of a ring or mesh")
    return loops


def _place(ends: EndOptions, side: str, loop: "Loop", *, is_remote: bool) -> "Place":
    """Return the place that an option names, after its profile's guard has seen the cluster."""
    from kctl.cli.connect import resolve
    from kctl.mirror.places import ClusterPlace, DirectoryPlace

    if (paths := ends.directories(side)) is not None:
        if is_remote:
            paths = absolute(paths)
        return DirectoryPlace(tuple(paths))
    settings = resolve(ends.connect_options(side), os.environ)
    place = ClusterPlace(
        tuple(settings.bootstrap_servers), settings.timeout_ms, tuple(settings.properties.items())
    )
    loop.run(settings.guard.check_connected(place.open(loop).admin))
    return place


def _states(ends: EndOptions, which: VerifyOptions) -> "ProofStates | None":
    if which.state is None:
        return None
    from kctl.mirror.proof_state import ProofStates

    proof = {
        "ends": ends.given(),
        "rename": which.rename,
        "source_alias": which.source_alias,
        "name": which.name,
        "offset": which.offset,
        "ignore_timestamps": which.ignore_timestamps,
        "compare": str(which.compare),
        "ring": which.ring,
        "mesh": which.mesh,
    }
    return ProofStates(which.state, proof)


def _here(
    tasks: "Sequence[VerifyTask]", jobs: int | None, states: "ProofStates | None", output: Output
) -> "list[VerifiedPartition]":
    from kctl.cli.progress import ProgressBar
    from kctl.mirror.verification import verify_partition
    from kctl.runtime.real.disk import RealDisk
    from kctl.runtime.real.processes import core_count, map_in_processes

    work: Callable[[VerifyTask, Callable[[int], object]], VerifiedPartition] = verify_partition
    if states is not None:
        tasks = states.planned(RealDisk(), tasks)
        work = partial(states.verify, RealDisk())
    bar = ProgressBar(sum(task.offsets for task in tasks), unit="offsets")
    try:
        processes = positive(jobs, "--jobs") or core_count()
        return list(map_in_processes(work, tasks, processes, bar.update))
    except KeyboardInterrupt:
        if states is not None:
            bar.close()
            output.say(f"What is proven is kept in {states.directory}: the same command goes on.")
        raise
    finally:
        bar.close()


def _on_spark(tasks: "Sequence[VerifyTask]", on_spark: SparkOptions) -> "list[VerifiedPartition]":
    from kctl.cli.tables.spark import spark_progress, spark_session
    from kctl.export.spark.runner import spark_map
    from kctl.mirror.verification import verify_partition

    with spark_session(on_spark) as running, spark_progress(running) as show_tasks:
        show_tasks(len(tasks))
        return spark_map(running, verify_partition, tasks)


def _document(it: "VerifiedPartition") -> dict[str, Any]:
    from kctl.mirror.proof.differences import DifferenceKind

    task, result = it.task, it.result
    counts = {
        kind.value.replace(" ", "_"): result.differences.counts.get(kind, 0)
        for kind in DifferenceKind
    }
    return {
        "topic": task.source_partition.topic,
        "partition": task.source_partition.partition,
        "target": task.target_partition.topic,
        "equal": result.equal,
        **counts,
        "result": _result(it),
        "is_equal": it.is_equal,
        "source_offsets": list(task.source_range),
        "target_offsets": list(task.target_range),
        "source_bytes": result.source_bytes,
        "target_bytes": result.target_bytes,
        "deleted_at_source": it.deleted_at_source,
        "deleted_at_target": it.deleted_at_target,
        "compared": "last values" if task.compares_last_values else "records",
        "pending_keys": it.pending_keys,
        "records_without_key": it.keyless,
        "differences": [_difference(each) for each in result.differences.listed],
        "differences_unlisted": result.differences.unlisted,
    }


def _result(it: "VerifiedPartition") -> str:
    if it.obstacle:
        return f"not compared: {it.obstacle}"
    notes = [
        f"{count} only at the {side}, deleted at the other"
        for side, count in (("target", it.deleted_at_source), ("source", it.deleted_at_target))
        if count
    ]
    if it.task.compares_last_values:
        notes.append("last values of keys")
    if it.pending_keys:
        notes.append(f"not compared: {counted(it.pending_keys, 'key')} written since")
    if it.keyless:
        notes.append(f"not compared: {counted(it.keyless, 'record')} without a key")
    return "; ".join(["equal" if it.is_equal else "different", *notes])


def _difference(each: "Difference") -> dict[str, Any]:
    return {
        "difference": str(each.kind),
        "source_offset": None if each.source_offset < 0 else each.source_offset,
        "target_offset": None if each.target_offset < 0 else each.target_offset,
        "records": each.count,
        "fields": list(each.fields),
        "reason": each.reason or None,
    }


def _rows(it: "VerifiedPartition") -> Iterable[dict[str, Any]]:
    topic, partition = it.task.source_partition
    for each in it.result.differences.listed[:_SHOWN_MAX]:
        yield {"topic": topic, "partition": partition, **_difference(each)}
