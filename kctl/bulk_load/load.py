"""load_files: a table into a stopped broker's log directory, all of it or, until done, nothing.

    1. lock the directory, as a broker does           a broker that runs is left alone
    2. plan                                           nothing is changed yet
    3. write everything to a staging directory inside, durable; tasks that are done say so
    4. write install.json there: from here on it will be done
    5. move what was written to its places            new partitions by one rename each
    6. give the staging directory a name that says so, and remove it

A run that died before 4 has changed nothing; the same command takes up what its tasks have done,
another one throws it away. One that died later is completed by the same command. The staging
directory is named as Kafka names a replica on its way out: should a broker start meanwhile, it
removes it. The marker of a clean shutdown stays right, as what is installed is durable and indexed.

Kafka 2.7: kafka.log.LogManager.loadLogs, kafka.log.Log.loadProducerState
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from kctl.bulk_load.plan import LoadOptions, LoadPlan, Target, fingerprint, plan_load
from kctl.bulk_load.tables import find_parts
from kctl.bulk_load.tasks import ROWS_DIRECTORY, Loaded, LoadTask, stage_part, write_partition
from kctl.errors import UsageError
from kctl.runtime.disk import Disk
from kctl.storage import layout
from kctl.storage.checkpoint import EpochEntry, encode_epochs

_STAGING_PREFIX = "kctl-import-0."
_STAGING = _STAGING_PREFIX + "{}" + layout.DELETE_DIRECTORY_SUFFIX
_DONE = "_done"
_PLAN = "plan.json"
_INSTALL = "install.json"

# Calls the function with each item and a function for progress (bytes of the table or rows, by
# `total` in all), anywhere; yields what it returns.
Runner = Callable[
    [Callable[[Any, Callable[[int], object]], Any], Sequence[Any], int], Iterable[Any]
]


@dataclass(slots=True)
class LoadReport:
    """What was done."""

    # Nothing, if an earlier run had done it and died before it could say so.
    loaded: list[Loaded]
    # Whether an earlier run had begun it.
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
    """Do it; None if `confirm` says no, which is shown the plan, or None where an earlier run's
    is only to be completed.

    UsageError if table or directory do not fit; StorageError, also if a broker holds the lock.
    """
    directory = directory.rstrip("/") or "/"
    if not disk.exists(directory):
        # Nobody can have its lock, and where the answer is no, it is not made.
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
        parts = find_parts(sources, options.table_format)
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
    lock = disk.lock(f"{directory}/{layout.LOCK_FILE}")
    try:
        yield
    finally:
        lock.release()


def _load(disk: Disk, plan: LoadPlan, sources: Sequence[str], runner: Runner) -> LoadReport:
    staging = f"{plan.directory}/{_STAGING.format(fingerprint(plan.parts, plan.options))}"
    targets = [asdict(it) for it in plan.targets]
    begun = _begun_plan(disk, staging)
    is_taken_up = begun is not None and begun["targets"] == targets
    for other in _stagings(disk, plan.directory):
        if other != staging or not is_taken_up:
            disk.remove_tree(other)
    if begun is not None and is_taken_up:
        # Records without a time have the time of the first run.
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
    disk.write_file(f"{staging}/{_INSTALL}", json.dumps(install).encode())
    _install(disk, plan.directory, staging, plan.targets, loaded)
    return LoadReport(loaded, is_taken_up)


def _begun(disk: Disk, directory: str, staging: str, sources: Sequence[str]) -> dict[str, Any]:
    """What is to be installed; UsageError if it comes from another table."""
    facts: dict[str, Any] = json.loads(disk.read_file(f"{staging}/{_INSTALL}"))
    if facts["sources"] != list(sources):
        raise UsageError(
            f"An import of {', '.join(facts['sources'])} into {directory} is half done",
            hint="run it again first: it is completed at once",
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
    """The staging directory that was being installed."""
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
    """Move what was written to its places; done again, it goes on."""
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
    """Segments behind those that are there, each with its indexes before itself: an index alone
    is removed by who finds it, a segment alone is not."""
    for name in loaded.segments:
        stem = name.removesuffix(layout.LOG_SUFFIX)
        for suffix in (layout.INDEX_SUFFIX, layout.TIME_INDEX_SUFFIX, layout.LOG_SUFFIX):
            if disk.exists(f"{source}/{stem}{suffix}"):
                disk.rename(f"{source}/{stem}{suffix}", f"{place}/{stem}{suffix}")
        # Of an empty segment that was there.
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
    """What producers had done at the old end still holds at the new: none of them wrote since."""
    old = f"{place}/{layout.file_name(old_end, layout.SNAPSHOT_SUFFIX)}"
    if disk.exists(old):
        new = f"{place}/{layout.file_name(new_end, layout.SNAPSHOT_SUFFIX)}"
        disk.write_file(new, disk.read_file(old))
