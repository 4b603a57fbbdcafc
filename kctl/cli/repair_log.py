"""kctl repair-log: mends what verify-log finds, plan first."""

from typing import TYPE_CHECKING, Annotated

import typer

from kctl.cli.command import guarded
from kctl.cli.failures import DONE, FAILED
from kctl.cli.items import counted
from kctl.cli.output import Output, OutputFormat, Table
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.dump.repair_plan import RepairRequest, Step
    from kctl.runtime.disk import Disk

COLUMNS = ("action", "file", "detail")
# Mending may bring to light what damage hid.
_ROUNDS_MAX = 4

_HELP = """Mend the files of a log directory: damaged batches are cut out and their offsets kept,
wrong offsets and epochs set right, indexes, snapshots and epochs built anew.

Without --apply only the plan is shown, and nothing is changed. With it, what changes is kept in
the backup directory, new files are written beside the old ones and renamed, and a broker that holds
the directory's lock is left alone: stop it first. Without any other option, everything that
`kctl verify-log` finds is mended.

\b
Examples:
  kctl repair-log /data/orders-0
  kctl repair-log --apply /data
  kctl repair-log --apply --rebuild indexes /data/orders-0
  kctl repair-log --apply --truncate-to 1200 /data/orders-0
  kctl repair-log --apply --cut 1200..1260 /data/orders-0
  kctl repair-log --extract /mnt/salvage --offset 100..900 --codec zstd /data/orders-0
"""


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("repair-log", help=_HELP)(_command)


def _command(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", help="Partitions' directories or log directories."),
    ],
    is_applied: Annotated[bool, typer.Option("--apply", help="Do it.")] = False,
    rebuild: Annotated[
        str | None,
        typer.Option(
            "--rebuild",
            metavar="WHAT,...",
            help="Only build anew: indexes, snapshots, epochs, or all.",
        ),
    ] = None,
    truncate_to: Annotated[
        int | None,
        typer.Option("--truncate-to", metavar="OFFSET", help="Only cut the log's end off."),
    ] = None,
    cut: Annotated[
        str | None,
        typer.Option("--cut", metavar="FROM..TO", help="Only take these offsets' batches out."),
    ] = None,
    drop_recovery_point: Annotated[
        bool,
        typer.Option("--drop-recovery-point", help="Let the broker check the whole log."),
    ] = False,
    backup: Annotated[
        str | None,
        typer.Option(
            "--backup",
            metavar="DIR",
            help="Where what changes is kept. [default: beside the log directory]",
        ),
    ] = None,
    extract: Annotated[
        str | None,
        typer.Option(
            "--extract", metavar="DIR", help="Change nothing: copy what is readable there."
        ),
    ] = None,
    offsets: Annotated[
        str | None,
        typer.Option("--offset", "-O", metavar="START[..END]", help="With --extract: only these."),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="KEY", help="With --extract: only records with that key."),
    ] = None,
    key_pattern: Annotated[
        str | None,
        typer.Option("--key-pattern", metavar="REGEX", help="With --extract: only such keys."),
    ] = None,
    codec: Annotated[
        str | None,
        typer.Option(
            "--codec", metavar="NAME", help="With --extract: none, gzip, snappy, lz4 or zstd."
        ),
    ] = None,
    output_format: Annotated[
        OutputFormat, typer.Option("--output", "-o", help="How to print the plan.")
    ] = OutputFormat.TABLE,
) -> None:
    _run(
        Output(output_format), paths, is_applied=is_applied, rebuild=rebuild,
        truncate_to=truncate_to, cut=cut, drop_recovery_point=drop_recovery_point, backup=backup,
        extract=extract, offsets=offsets, key=key, key_pattern=key_pattern, codec=codec,
    )  # fmt: skip


@guarded
def _run(
    output: Output,
    paths: list[str],
    *,
    is_applied: bool,
    rebuild: str | None,
    truncate_to: int | None,
    cut: str | None,
    drop_recovery_point: bool,
    backup: str | None,
    extract: str | None,
    offsets: str | None,
    key: list[str] | None,
    key_pattern: str | None,
    codec: str | None,
) -> int:
    from kctl.runtime.real.disk import RealDisk

    if extract is not None:
        from kctl.cli.extract_log import extract_log

        if is_applied or rebuild or cut or truncate_to is not None or drop_recovery_point:
            raise UsageError("--extract changes nothing: it goes with filters and --codec only")
        return extract_log(
            output, paths, extract, offsets=offsets, keys=key, key_pattern=key_pattern, codec=codec
        )
    if offsets or key or key_pattern or codec:
        raise UsageError("--offset, --key, --key-pattern and --codec go with --extract")
    request = _request(rebuild, truncate_to, cut, drop_recovery_point=drop_recovery_point)
    return repair_log(output, RealDisk(), paths, request, backup, is_applied=is_applied)


def repair_log(
    output: Output,
    disk: "Disk",
    paths: list[str],
    request: "RepairRequest",
    backup: str | None,
    *,
    is_applied: bool,
) -> int:
    """Show the plan and, if asked to, do it; FAILED if something is left to do."""
    from kctl.dump.repair import apply_plans
    from kctl.dump.repair_plan import plan_repair

    directories = partition_directories(disk, paths)
    plans = [plan_repair(disk, directory, request) for directory in directories]
    steps = [step for plan in plans for step in plan.steps()]
    _show(output, steps, is_table_wanted=not is_applied)
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
        if not request.is_automatic:
            break
        plans = [plan_repair(disk, directory, request) for directory in directories]
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


def partition_directories(disk: "Disk", paths: list[str]) -> list[str]:
    """The partitions' directories at or below `paths`; UsageError if one is none."""
    from kctl.dump.dump import log_directory_hint
    from kctl.dump.verify import is_partition_directory
    from kctl.storage.layout import parse_directory_name
    from kctl.storage.segment_files import segment_base_offsets

    found = []
    for given in paths:
        path = given.rstrip("/") or "/"
        if not disk.is_directory(path):
            raise UsageError(
                f"{path}: no such directory", hint="name a partition's or a log directory"
            )
        if is_partition_directory(disk, path):
            found.append(path)
            continue
        inside = [
            f"{path}/{name}" for name in disk.list(path) if _is_live(parse_directory_name(name))
        ]
        inside = [it for it in inside if disk.is_directory(it) and segment_base_offsets(disk, it)]
        if not inside:
            raise UsageError(
                f"{path}: neither a log directory nor a partition's directory",
                hint=log_directory_hint(disk, path),
            )
        found += inside
    return found


def _is_live(parsed: object) -> bool:
    return parsed is not None and not getattr(parsed, "is_delete", True)


def _default_backup(log_directory: str) -> str:
    """Beside the log directory: within it Apache Kafka would take it for a partition and not
    start."""
    from kctl.cli.units import format_instant
    from kctl.runtime.real.clock import RealClock

    stamp = format_instant(RealClock().wall_ms()).replace(":", "").replace("-", "")
    return f"{log_directory}.repair-backup-{stamp}"


def _request(
    rebuild: str | None, truncate_to: int | None, cut: str | None, *, drop_recovery_point: bool
) -> "RepairRequest":
    from kctl.dump.repair_plan import RepairRequest

    wanted = {word.strip() for word in rebuild.split(",")} if rebuild is not None else set()
    unknown = wanted - {"indexes", "snapshots", "epochs", "all"}
    if unknown:
        raise UsageError(
            f"--rebuild {min(unknown)}: there is no such thing",
            hint="indexes, snapshots, epochs or all",
        )
    if truncate_to is not None and cut is not None:
        raise UsageError("--truncate-to and --cut: one after the other, please")
    return RepairRequest(
        rebuild_indexes=bool(wanted & {"indexes", "all"}),
        rebuild_snapshots=bool(wanted & {"snapshots", "all"}),
        rebuild_epochs=bool(wanted & {"epochs", "all"}),
        drop_recovery_point=drop_recovery_point,
        truncate_to=truncate_to,
        cut=None if cut is None else _offset_range(cut),
    )


def _offset_range(text: str) -> tuple[int, int]:
    start, dots, end = text.partition("..")
    if not (dots and start.isdecimal() and end.isdecimal() and int(start) < int(end)):
        raise UsageError(f"Not a range of offsets: {text}", hint="e.g. 100..200; 200 stays")
    return int(start), int(end)
