"""load_files: imports a table into a stopped broker's log directory, atomically.

    1. lock the directory, as a broker does           a running broker is left alone
    2. plan                                           nothing is changed yet
    3. write everything durably to a staging directory inside; each finished task records that
    4. write install.json there                       from here on the import will be completed
    5. move what was written into place               one rename per new partition
    6. rename the staging directory to mark it as done, and remove it

If a run dies before step 4, nothing has changed: the same command continues with the tasks that are
not done, and any other import discards them. If it dies later, the same command completes it. The
staging directory is named as Kafka names a replica that is being deleted, so a broker that starts
meanwhile removes it. The clean shutdown marker remains valid, because what is installed is durable
and indexed. A directory without logs gets a marker of its own before step 5, so that no broker has
to start and stop before the next import.

Kafka 2.7: kafka.log.LogManager.loadLogs, kafka.log.Log.loadProducerState
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass
from kctl.runtime.disk import Disk
from kctl.storage import layout
from kctl.storage.checkpoint import EpochEntry, encode_epochs
from kctl.storage.log_directory_locks import locked_log_directories
from kctl.table_import.import_plan import LoadOptions, LoadPlan, Target, fingerprint, plan_load
from kctl.table_import.import_tasks import (
    ROWS_DIRECTORY,
    Loaded,
    LoadTask,
    stage_part,
    write_partition,
)
from kctl.table_import.tables import find_parts

_STAGING_PREFIX = "kctl-import-0."
_STAGING = _STAGING_PREFIX + "{}" + layout.DELETE_DIRECTORY_SUFFIX
_DONE = "_done"
_PLAN = "plan.json"
_INSTALL = "install.json"

# Takes a function, items, and the total of the progress (bytes of the table, or rows). Calls the
# function with each item and a progress callback, in any process; yields the results.
Runner = Callable[
    [Callable[[Any, Callable[[int], object]], Any], Sequence[Any], int], Iterable[Any]
]


@dataclass(slots=True)
class LoadReport:
    """The result of an import."""

    # Empty if an earlier run had finished the import but died before it reported so.
    loaded: list[Loaded]
    # Whether it continued an earlier run.
    is_taken_up: bool = False


def load_files(
    disk: Disk,
    sources: Sequence[str],
    directory: str,
    options: LoadOptions,
    now_ms: int,
    runner: Runner,
    confirm: Callable[[LoadPlan | None], bool],
) -> LoadReport | None:
    """Import the tables in `sources`; None if `confirm` returns False.

    `confirm` receives the plan, or None if an earlier run only needs to be completed. UsageError if
    the table does not match the directory; StorageError, also if a broker holds the lock.
    """
    directory = directory.rstrip("/") or "/"
    if not disk.exists(directory):
        # A missing directory cannot be locked; it is created only after confirmation.
        plan = plan_load(disk, sources, directory, options, now_ms)
        if not confirm(plan):
            return None
        disk.make_directory(directory)
        with _locked(disk, directory):
            return _load(disk, plan, sources, runner)
    with _locked(disk, directory):
        unfinished = _unfinished(disk, directory)
        if unfinished is not None:
            facts = _begun(disk, directory, unfinished, sources)
            return _complete(disk, directory, unfinished, facts) if confirm(None) else None
        parts = find_parts(sources, options.table_format, options.null_text)
        done = _done_name(f"{directory}/{_STAGING.format(fingerprint(parts, options))}")
        if disk.exists(done):
            if not confirm(None):
                return None
            disk.remove_tree(done)
            return LoadReport([], is_taken_up=True)
        plan = plan_load(disk, sources, directory, options, now_ms)
        return _load(disk, plan, sources, runner) if confirm(plan) else None


def _begun_plan(disk: Disk, staging: str) -> dict[str, Any] | None:
    path = f"{staging}/{_PLAN}"
    found: dict[str, Any] | None = json.loads(disk.read_file(path)) if disk.exists(path) else None
    return found


@contextmanager
def _locked(disk: Disk, directory: str) -> Iterator[None]:
    """Hold the lock of `directory`, and those of log directories that its partitions link to."""
    lock_file = f"{directory}/{layout.LOCK_FILE}"
    if not disk.exists(lock_file):
        # The lock file marks the directory as a log directory.
        disk.open(lock_file, create=True).close()
    partitions = [f"{directory}/{name}" for name in disk.list(directory)]
    with locked_log_directories(disk, [directory, *filter(disk.is_directory, partitions)]):
        yield


def _load(disk: Disk, plan: LoadPlan, sources: Sequence[str], runner: Runner) -> LoadReport:
    staging = f"{plan.directory}/{_STAGING.format(fingerprint(plan.parts, plan.options))}"
    targets = [asdict(it) for it in plan.targets]
    begun = _begun_plan(disk, staging)
    is_taken_up = begun is not None and begun["targets"] == targets
    for other in _stagings(disk, plan.directory):
        if other != staging or not is_taken_up:
            disk.remove_tree(other)
    if begun is not None and is_taken_up:
        # Records without a timestamp get that of the first run.
        plan = replace(plan, now_ms=begun["now_ms"])
    else:
        disk.make_directory(f"{staging}/{ROWS_DIRECTORY}")
        facts = {"now_ms": plan.now_ms, "targets": targets}
        disk.write_file(f"{staging}/{_PLAN}", json.dumps(facts).encode())
    task = LoadTask(disk, plan, staging)
    size = sum(part.size for part in plan.parts)
    for _ in runner(partial(stage_part, task), list(enumerate(plan.parts)), size):
        pass
    loaded = list(runner(partial(write_partition, task), plan.targets, plan.rows))
    loaded.sort(key=lambda it: (it.topic, it.partition))
    install = {
        "sources": list(sources),
        "targets": targets,
        "loaded": [asdict(it) for it in loaded],
    }
    if not plan.has_logs:
        disk.write_file(f"{plan.directory}/{layout.IMPORTED_FILE}", b"")
        disk.fsync_directory(plan.directory)
    disk.write_file(f"{staging}/{_INSTALL}", json.dumps(install).encode())
    _install(disk, plan.directory, staging, plan.targets, loaded)
    return LoadReport(loaded, is_taken_up)


def _begun(disk: Disk, directory: str, staging: str, sources: Sequence[str]) -> dict[str, Any]:
    """Return the contents of install.json; UsageError if they belong to another table."""
    facts: dict[str, Any] = json.loads(disk.read_file(f"{staging}/{_INSTALL}"))
    if facts["sources"] != list(sources):
        raise UsageError(
            f"An import of {', '.join(facts['sources'])} into {directory} is incomplete",
            hint="run that import again first: it completes immediately",
        )
    return facts


def _complete(disk: Disk, directory: str, staging: str, facts: dict[str, Any]) -> LoadReport:
    targets = [Target(**it) for it in facts["targets"]]
    loaded = [Loaded(**it) for it in facts["loaded"]]
    _install(disk, directory, staging, targets, loaded)
    return LoadReport(loaded, is_taken_up=True)


def _done_name(staging: str) -> str:
    suffix = layout.DELETE_DIRECTORY_SUFFIX
    return staging.removesuffix(suffix) + _DONE + suffix


def _stagings(disk: Disk, directory: str) -> list[str]:
    return [
        f"{directory}/{name}"
        for name in disk.list(directory)
        if name.startswith(_STAGING_PREFIX) and name.endswith(layout.DELETE_DIRECTORY_SUFFIX)
    ]


def _unfinished(disk: Disk, directory: str) -> str | None:
    """Return the staging directory of an import that was interrupted while installing, or None."""
    for staging in _stagings(disk, directory):
        is_done = staging.endswith(_DONE + layout.DELETE_DIRECTORY_SUFFIX)
        if not is_done and disk.exists(f"{staging}/{_INSTALL}"):
            return staging
    return None


def _install(
    disk: Disk,
    directory: str,
    staging: str,
    targets: Sequence[Target],
    loaded: Sequence[Loaded],
) -> None:
    """Move what was written into place; idempotent, so an interrupted installation can be
    repeated."""
    by_name = {f"{it.topic}-{it.partition}": it for it in loaded}
    for target in targets:
        source, place = f"{staging}/{target.name}", f"{directory}/{target.name}"
        if not disk.exists(source):
            continue
        if target.is_new:
            disk.rename(source, place)
            continue
        _append(disk, source, place, target, by_name[target.name])
        disk.remove_tree(source)
    disk.fsync_directory(directory)
    done = _done_name(staging)
    disk.rename(staging, done)
    disk.remove_tree(done)


def _append(disk: Disk, source: str, place: str, target: Target, loaded: Loaded) -> None:
    """Move segments after the existing ones, each after its indexes.

    A broker that loads the log removes an index without a segment, but keeps a segment
    without indexes.
    """
    for name in loaded.segments:
        stem = name.removesuffix(layout.LOG_SUFFIX)
        for suffix in (layout.INDEX_SUFFIX, layout.TIME_INDEX_SUFFIX, layout.LOG_SUFFIX):
            if disk.exists(f"{source}/{stem}{suffix}"):
                disk.rename(f"{source}/{stem}{suffix}", f"{place}/{stem}{suffix}")
        # It may belong to an empty segment that existed here.
        disk.remove(f"{place}/{stem}{layout.TXN_INDEX_SUFFIX}")
    if not loaded.segments:
        return
    epochs = f"{place}/{layout.LEADER_EPOCH_CHECKPOINT}"
    if not disk.exists(epochs) or not disk.size(epochs):
        entry = EpochEntry(target.leader_epoch, target.base_offset)
        disk.write_file(epochs, encode_epochs([entry]))
    _carry_snapshot(disk, place, target.base_offset, loaded.end_offset)
    disk.fsync_directory(place)


def _carry_snapshot(disk: Disk, place: str, old_end: int, new_end: int) -> None:
    """Copy the producer snapshot of the old end to the new end: no producer has written since."""
    old = f"{place}/{layout.file_name(old_end, layout.SNAPSHOT_SUFFIX)}"
    if disk.exists(old):
        new = f"{place}/{layout.file_name(new_end, layout.SNAPSHOT_SUFFIX)}"
        disk.write_file(new, disk.read_file(old))
