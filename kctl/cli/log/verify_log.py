"""kctl verify-log: checks that the files of a log directory are intact and consistent."""

from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.command import (
    COUNT,
    READS,
    remote_command,
)
from kctl.cli.declaration.declarations import Argument, CommandGroup, Option
from kctl.cli.failures import DONE, FAILED
from kctl.cli.items import positive
from kctl.cli.output import OutputFormat
from kctl.cli.session import Session
from kctl.cli.tables.spark import SparkOptions
from kctl.counts import counted
from kctl.errors import UsageError
from kctl.runtime.real.paths import absolute, with_directory_names

if TYPE_CHECKING:
    from kctl.cli.output import Output
    from kctl.verify.partition_checks import VerifiedPartition
    from kctl.verify.rules import Finding
    from kctl.verify.verification import VerifyPlan, VerifyUnit

COLUMNS = ("severity", "rule", "file", "position", "offsets", "message")


def register(app: CommandGroup) -> None:
    """Add the command to `app`."""
    remote_command(app, "verify-log", READS)(verify_log)


def verify_log(
    session: Session,
    paths: Annotated[
        list[str],
        Argument(metavar="PATH...", help="Files or directories; topics with --replicas."),
    ],
    is_quick: Annotated[
        bool, Option("--quick", "-q", help="Headers and checksums only, not the records.")
    ] = False,
    compare: Annotated[
        str | None,
        Option("--compare", metavar="DIR", help="Another replica of the same partition."),
    ] = None,
    replicas: Annotated[
        bool,
        Option("--replicas", help="Compare the replicas of topics over the network."),
    ] = False,
    jobs: Annotated[
        int | None,
        Option("--jobs", "-j", metavar="N", help="Processes. [default: one a core]"),
        COUNT,
    ] = None,
    explain: Annotated[
        bool, Option("--explain", help="Show what a broker and what repair-log would do.")
    ] = False,
    *,
    on_spark: SparkOptions,
) -> int:
    """Check the files of a log directory without a broker: segments, indexes, snapshots, epochs,
    checkpoints, and their consistency.

    PATH is a file, a partition's directory or a whole log directory. Nothing is changed. A finding
    is damage, or a note: a normal trace of a broker. The exit status is 0
    without damage, 1 with, 2 if PATH is invalid. The directory of a running broker may be
    checked, too, but its last batches may look truncated.

    \b
    Examples:
      kctl verify-log /data
      kctl verify-log --quick -j 8 /data
      kctl verify-log --explain /archive/kafka-0.7
      kctl verify-log -o json /data/orders-0
      kctl verify-log /data/orders-0 --compare /mnt/broker2/orders-0
      kctl verify-log --spark --master spark://head:7077 /nfs/data
      kctl verify-log --replicas orders payments -b broker1:9092
    """
    if compare is not None and (replicas or len(paths) != 1):
        raise UsageError("--compare takes one PATH and one directory")
    on_spark.check()
    if on_spark.spark and (replicas or compare is not None):
        raise UsageError("--spark verifies directories; it compares none")
    if replicas:
        from kctl.cli.log.verify_replicas import verify_replicas

        return verify_replicas(session, paths)
    if compare is not None:
        return _compare(session.output, paths[0], compare)
    from kctl.runtime.real.disk import RealDisk
    from kctl.verify.verification import plan

    named = with_directory_names(paths)
    if on_spark.spark:
        named = absolute(named)
    wanted = plan(RealDisk(), named, with_records=not is_quick)
    if on_spark.spark:
        verified = _verify_on_spark(wanted, on_spark)
    else:
        verified = _verify(wanted, positive(jobs, "--jobs"))
    return _show(session.output, wanted, verified, is_explained=explain)


def _verify(wanted: "VerifyPlan", jobs: int | None) -> "list[VerifiedPartition]":
    from kctl.cli.progress import ProgressBar
    from kctl.runtime.real.processes import core_count, map_in_processes

    # The largest first: the last process to end should not begin late.
    units = sorted(wanted.units, key=lambda unit: -unit.size)
    bar = ProgressBar(wanted.size)
    try:
        found = list(map_in_processes(_work, units, jobs or core_count(), bar.update))
    finally:
        bar.close()
    return sorted(found, key=lambda it: it.directory)


def _verify_on_spark(wanted: "VerifyPlan", on_spark: SparkOptions) -> "list[VerifiedPartition]":
    from kctl.cli.tables.spark import spark_session
    from kctl.export.spark.forensics import verify_on_spark

    with spark_session(on_spark) as session:
        found = verify_on_spark(session, sorted(wanted.units, key=lambda unit: -unit.size))
    return sorted(found, key=lambda it: it.directory)


def _work(unit: "VerifyUnit", progress: Any) -> "VerifiedPartition":
    from kctl.runtime.real.disk import RealDisk
    from kctl.verify.verification import verify_unit

    return verify_unit(RealDisk(), unit, progress)


def _show(
    output: "Output",
    wanted: "VerifyPlan",
    verified: "list[VerifiedPartition]",
    *,
    is_explained: bool,
) -> int:
    from kctl.runtime.real.disk import RealDisk
    from kctl.verify.verification import verify_log_directory

    findings = list(wanted.findings)
    for partition in verified:
        findings += partition.findings
    for directory in wanted.log_directories:
        findings += verify_log_directory(RealDisk(), directory, verified)
    status = show_findings(output, findings, is_explained=is_explained)
    damage = sum(it.severity == "damage" for it in findings)
    output.say(
        f"{counted(len(verified), 'partition')}, "
        f"{counted(sum(it.segments for it in verified), 'segment')}, "
        f"{counted(sum(it.batches for it in verified), 'batch')}, "
        f"{counted(sum(it.size for it in verified), 'byte')}: "
        + (counted(damage, "finding") if damage else "no damage")
        + (f", {counted(len(findings) - damage, 'note')}" if len(findings) > damage else "")
    )
    return status


def show_findings(output: "Output", findings: "list[Finding]", *, is_explained: bool) -> int:
    """Print the findings; return the exit status."""
    documents = [document(finding) for finding in findings]
    columns = (*COLUMNS, "broker", "repair") if is_explained else COLUMNS
    if documents or output.format is not OutputFormat.TABLE:
        output.show(documents, columns, name="file")
    return FAILED if any(finding.severity == "damage" for finding in findings) else DONE


def document(finding: "Finding") -> dict[str, object]:
    """Return the document of one finding."""
    offsets = None
    if finding.first_offset is not None:
        offsets = f"{finding.first_offset}"
        if finding.last_offset is not None and finding.last_offset != finding.first_offset:
            offsets += f"..{finding.last_offset}"
    return {
        "file": finding.path,
        "position": finding.position,
        "length": finding.length,
        "first_offset": finding.first_offset,
        "last_offset": finding.last_offset,
        "offsets": offsets,
        "rule": finding.rule.value,
        "severity": finding.severity.value,
        "message": finding.message,
        "broker": finding.broker,
        "repair": finding.repair,
    }


def _compare(output: "Output", first: str, second: str) -> int:
    from kctl.runtime.real.disk import RealDisk
    from kctl.verify.replica_comparison import compare_batches, log_batches
    from kctl.verify.rules import Finding, Rule
    from kctl.verify.verification import is_partition_directory

    disk = RealDisk()
    for path in (first, second):
        if not disk.is_directory(path):
            raise UsageError(f"{path}: no such directory")
        if not is_partition_directory(disk, path):
            raise UsageError(f"{path}: not a partition's directory")
    found = compare_batches(log_batches(disk, first), log_batches(disk, second))
    findings = []
    if found.is_divergent:
        at = found.first or found.second
        assert at is not None
        findings.append(
            Finding(
                at.path, Rule.DIVERGENT, str(found), at.position, at.base_offset, at.last_offset
            )
        )
    status = show_findings(output, findings, is_explained=False)
    agreed = "" if found.agreed_end is None else f", up to offset {found.agreed_end}"
    output.say(f"{found.agreement}{agreed}")
    return status
