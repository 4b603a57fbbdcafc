"""kctl repair-log: repairs what verify-log finds; shows the plan first."""

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

from kctl.cli.declaration.command import READS, remote_command
from kctl.cli.declaration.declarations import Argument, CommandGroup, Option
from kctl.cli.failures import DONE, FAILED
from kctl.cli.log.repair_options import BackupOption, ExtractOptions, RepairOptions
from kctl.cli.log.repair_sources import Requests, warn_of_lost_records
from kctl.cli.output import Output, OutputFormat, Table
from kctl.cli.session import Session
from kctl.counts import counted
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.repair.segment_edit import Step
    from kctl.runtime.disk import Disk

COLUMNS = ("action", "file", "detail")
# A repair may reveal further damage.
_ROUNDS_MAX = 4


def register(app: CommandGroup) -> None:
    """Add the command to `app`."""
    remote_command(app, "repair-log", READS)(repair_log_command)


def repair_log_command(
    session: Session,
    paths: Annotated[
        list[str],
        Argument(metavar="PATH...", help="Partitions' directories or log directories."),
    ],
    is_applied: Annotated[bool, Option("--apply", help="Do it.")] = False,
    backup: BackupOption = None,
    *,
    repairs: RepairOptions,
    salvage: ExtractOptions,
) -> int:
    """Repair the files of a log directory: remove damaged batches and keep their offsets,
    correct wrong offsets and epochs, rebuild indexes, snapshots and the epoch checkpoint.

    Without --apply only the plan is shown, and nothing is changed. With it, changed files are
    copied to the backup directory, and new files are written beside the old ones and renamed. It
    fails while a broker holds the directory's lock: stop the broker first. Without any other
    option, everything that `kctl verify-log` finds is repaired.

    Another replica of the partition may have the records that are lost here. With --from, they are
    taken from it: a directory of the same partition, or a broker as HOST:PORT. With -b, the command
    says which brokers have them; to let the broker copy the partition from its leader is usually
    better than a repair (docs/forensics.md).

    \b
    Examples:
      kctl repair-log /data/orders-0
      kctl repair-log --apply /data
      kctl repair-log /archive/kafka-0.7
      kctl repair-log --apply --rebuild indexes /data/orders-0
      kctl repair-log --apply --truncate-to 1200 /data/orders-0
      kctl repair-log --apply --cut 1200..1260 /data/orders-0
      kctl repair-log /data/orders-0 -b broker2:9092
      kctl repair-log --apply --from /mnt/broker2/orders-0 /data/orders-0
      kctl repair-log --apply --from broker2:9092 /data/orders-0
      kctl repair-log --extract /mnt/salvage --offset 100..900 --codec zstd /data/orders-0
    """
    from kctl.runtime.real.disk import RealDisk

    if session.names_a_cluster:
        session.settings.bootstrap_servers  # noqa: B018 - a wrong address is reported first
    if salvage.extract is not None:
        from kctl.cli.log.extract_log import extract_log

        if is_applied or repairs != RepairOptions():
            raise UsageError("--extract changes nothing: it goes with filters and --codec only")
        return extract_log(
            session.output, paths, salvage.extract, offsets=salvage.offsets, keys=salvage.key,
            key_pattern=salvage.key_pattern, codec=salvage.codec,
        )  # fmt: skip
    if any((salvage.offsets, salvage.key, salvage.key_pattern, salvage.codec)):
        raise UsageError("--offset, --key, --key-pattern and --codec go with --extract")
    request = repairs.request()
    with ExitStack() as stack:
        disk = RealDisk()
        requests = Requests(session, disk, request, repairs.source, stack)
        return repair_log(session, disk, paths, requests, backup, is_applied=is_applied)


def repair_log(
    session: Session,
    disk: "Disk",
    paths: list[str],
    requests: "Requests",
    backup: str | None,
    *,
    is_applied: bool,
) -> int:
    """Show the plan and, if requested, carry it out; return FAILED if a problem remains."""
    from kctl.repair.repair import apply_plans
    from kctl.repair.repair_plan import plan_repair
    from kctl.storage.log_directory_locks import real_directory
    from kctl.verify.verification import partition_directories

    # Checkpoints and locks are in the log directory that the files actually belong to.
    found = partition_directories(disk, paths)
    directories = list(dict.fromkeys(real_directory(disk, path) for path in found))
    plans = [plan_repair(disk, it, requests.first(it)) for it in directories]
    steps = [step for plan in plans for step in plan.steps()]
    output = session.output
    _show(output, steps, is_table_wanted=not is_applied)
    for note in [note for plan in plans for note in plan.notes]:
        output.say(note)
    warn_of_lost_records(session, disk, plans)
    if not steps:
        output.say("Nothing to do.")
        return DONE
    if not is_applied:
        output.say(f"{counted(len(steps), 'step')}; nothing was changed. Add --apply to do this.")
        return FAILED
    place = backup or _default_backup(plans[0].log_directory)
    for number in range(_ROUNDS_MAX):
        suffix = f"/{number + 1}" if number else ""
        done = apply_plans(disk, plans, place + suffix)
        output.say(
            f"Done: {counted(sum(len(plan.steps()) for plan in plans), 'step')}; "
            f"{counted(done.files, 'file')} kept "
            f"in {done.backup}"
        )
        if not requests.rest.is_automatic:
            break
        plans = [plan_repair(disk, directory, requests.rest) for directory in directories]
        if not any(plan.steps() for plan in plans):
            break
    return DONE


def _show(output: Output, steps: "list[Step]", *, is_table_wanted: bool) -> None:
    documents = [
        {"action": step.action, "file": step.path, "detail": step.detail} for step in steps
    ]
    if output.format is not OutputFormat.TABLE or (documents and is_table_wanted):
        output.show(documents, COLUMNS, name="file")
    elif documents:
        output.plan(Table(COLUMNS, documents))


def _default_backup(log_directory: str) -> str:
    """Return a directory beside the log directory: inside it Apache Kafka would mistake it for a
    partition and not start."""
    from kctl.cli.units import format_instant
    from kctl.runtime.real.clock import RealClock

    stamp = format_instant(RealClock().wall_ms()).replace(":", "").replace("-", "")
    return f"{log_directory}.repair-backup-{stamp}"
