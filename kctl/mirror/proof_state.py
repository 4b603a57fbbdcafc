"""ProofStates: keeps what a long proof has compared in a directory, so that it can go on later.

A file for each partition, written as a whole and renamed: whatever interrupts the proof, each file
is complete. It has the offsets to compare, as the first run planned them, and either the result, or
the place up to which both sides are equal. A partition with a difference is compared again from
before its first one, so the verdict is that of a proof that was not interrupted. A lock file keeps
other proofs out while one runs.

The file is JSON:

    version    1
    proof      what is compared with what, by which options; another proof is refused
    plan       the ranges of offsets, and what the plan found out about them
    place      offsets of both sides before which everything is equal, the offset of the source that
               is read again to recognize records that come twice, and the records that are equal
    result     what was found, once all is compared
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kctl.errors import LockedError, UsageError
from kctl.lazy_dataclass import dataclass
from kctl.mirror.proof.differences import Difference, DifferenceKind, Differences
from kctl.mirror.proof.proof import ProofPlace, ProofResult
from kctl.model import TopicPartition
from kctl.runtime.disk import make_durably

if TYPE_CHECKING:
    from kctl.mirror.verification import VerifiedPartition, VerifyTask
    from kctl.runtime.disk import Disk

_VERSION = 1
_LOCK_FILE = "proof.lock"
# Stored bytes of a side that are compared between two writes of a partition's file.
BYTES_BETWEEN_WRITES = 256 << 20


@dataclass(frozen=True, slots=True)
class ProofStates:
    """The files in `directory`; `proof` names what is compared, as far as options say it."""

    directory: str
    proof: Mapping[str, Any]
    bytes_between_writes: int = BYTES_BETWEEN_WRITES

    @contextmanager
    def held(self, disk: "Disk") -> Iterator[None]:
        """Keep other proofs out of the directory, which is created if it does not exist. Raise
        LockedError if one is in it, StorageError."""
        make_durably(disk, self.directory)
        try:
            lock = disk.lock(f"{self.directory.rstrip('/')}/{_LOCK_FILE}")
        except LockedError as error:
            raise LockedError(
                f"{self.directory}: another kctl mirror verify keeps its state here",
                hint="wait until it ends, or name another --state",
            ) from error
        try:
            yield
        finally:
            lock.release()

    def planned(self, disk: "Disk", tasks: "Sequence[VerifyTask]") -> "list[VerifyTask]":
        """Return the tasks with the offsets of the first run; new ones are written. Raise
        UsageError if the directory has the state of another proof or something else, StorageError.
        """
        make_durably(disk, self.directory)
        found: list[VerifyTask] = []
        for task in tasks:
            known = self._read(disk, task.source_partition)
            if known is None:
                self._write(disk, task, {})
                found.append(task)
            else:
                found.append(_with_plan(task, known["plan"]))
        return found

    def verify(
        self, disk: "Disk", task: "VerifyTask", progress: Callable[[int], object]
    ) -> "VerifiedPartition":
        """Compare a partition from where an earlier run stopped, and keep how far it gets; return
        the result, which may be that of the earlier run. Raise StorageError."""
        known = self.result(disk, task)
        if known is not None:
            progress(task.offsets)
            return known
        from kctl.mirror.verification import verify_partition

        found = verify_partition(task, progress, _KeptPlaces(self, disk, task))
        if found.obstacle in ("", task.gap):
            # Other obstacles, such as a broker that does not answer, may be gone the next time.
            self.keep_result(disk, found)
        return found

    def result(self, disk: "Disk", task: "VerifyTask") -> "VerifiedPartition | None":
        """Return the result of a partition that an earlier run has compared to its end."""
        from kctl.mirror.verification import VerifiedPartition

        known = self._read(disk, task.source_partition)
        if known is None or "result" not in known:
            return None
        result = known["result"]
        return VerifiedPartition(
            task, _result_of(result), result["deleted_at_source"], result["deleted_at_target"],
            result["obstacle"], result["pending_keys"], result["keyless"],
        )  # fmt: skip

    def place(self, disk: "Disk", task: "VerifyTask") -> ProofPlace | None:
        """Return where an earlier run stopped; None for the beginning."""
        known = self._read(disk, task.source_partition)
        return None if known is None or "place" not in known else ProofPlace(**known["place"])

    def keep_place(self, disk: "Disk", task: "VerifyTask", place: ProofPlace) -> None:
        """Write how far a partition is compared."""
        self._write(disk, task, {"place": place._asdict()})

    def keep_result(self, disk: "Disk", found: "VerifiedPartition") -> None:
        """Write the result of a partition."""
        result = {
            **_document_of(found.result),
            "deleted_at_source": found.deleted_at_source,
            "deleted_at_target": found.deleted_at_target,
            "obstacle": found.obstacle,
            "pending_keys": found.pending_keys,
            "keyless": found.keyless,
        }
        self._write(disk, found.task, {"result": result})

    def _path(self, partition: TopicPartition) -> str:
        return f"{self.directory.rstrip('/')}/{partition}.json"

    def _read(self, disk: "Disk", partition: TopicPartition) -> dict[str, Any] | None:
        path = self._path(partition)
        if not disk.exists(path):
            return None
        try:
            found = json.loads(disk.read_file(path))
        except ValueError:
            found = None
        if not isinstance(found, dict) or found.get("version") != _VERSION:
            raise UsageError(f"{path} is not the state of a proof", hint="name another directory")
        if found["proof"] != json.loads(json.dumps(self.proof)):
            raise UsageError(
                f"{path} is the state of another proof",
                hint="name another directory, or compare as that one does",
            )
        return found

    def _write(self, disk: "Disk", task: "VerifyTask", more: Mapping[str, Any]) -> None:
        document = {"version": _VERSION, "proof": self.proof, "plan": _plan_of(task), **more}
        disk.write_file(self._path(task.source_partition), json.dumps(document).encode())


@dataclass(frozen=True, slots=True)
class _KeptPlaces:
    """The places of one partition; see verification.Places."""

    states: ProofStates
    disk: "Disk"
    task: "VerifyTask"

    @property
    def begin(self) -> ProofPlace | None:
        """Return where an earlier run stopped."""
        return self.states.place(self.disk, self.task)

    @property
    def bytes_between(self) -> int:
        """Return how many stored bytes are compared between two writes."""
        return self.states.bytes_between_writes

    def keep(self, place: ProofPlace) -> None:
        """Write a place."""
        self.states.keep_place(self.disk, self.task, place)


def _plan_of(task: "VerifyTask") -> dict[str, Any]:
    return {
        "source_range": task.source_range,
        "target_range": task.target_range,
        "is_source_cut": task.is_source_cut,
        "is_target_cut": task.is_target_cut,
        "compares_last_values": task.compares_last_values,
        "gap": task.gap,
        "obstacle": task.obstacle,
    }


def _with_plan(task: "VerifyTask", plan: Mapping[str, Any]) -> "VerifyTask":
    if plan["obstacle"] or task.obstacle:
        # It was not compared before; it may be possible now.
        return task
    ranges = {name: tuple(plan[name]) for name in ("source_range", "target_range")}
    return replace(task, **{**plan, **ranges})


def _document_of(result: ProofResult) -> dict[str, Any]:
    differences = result.differences
    return {
        "equal": result.equal,
        "equal_raw": result.equal_raw,
        "source_bytes": result.source_bytes,
        "target_bytes": result.target_bytes,
        "counts": {str(kind): count for kind, count in differences.counts.items()},
        "unlisted": differences.unlisted,
        "listed": [
            [
                str(it.kind), it.source_offset, it.target_offset, it.count, list(it.fields),
                it.reason,
            ]
            for it in differences.listed
        ],
    }  # fmt: skip


def _result_of(found: Mapping[str, Any]) -> ProofResult:
    listed = [
        Difference(DifferenceKind(kind), source, target, count, tuple(fields), reason)
        for kind, source, target, count, fields, reason in found["listed"]
    ]
    counts = {DifferenceKind(kind): count for kind, count in found["counts"].items()}
    return ProofResult(
        found["equal"], found["equal_raw"], found["source_bytes"], found["target_bytes"],
        Differences(listed, counts, found["unlisted"]),
    )  # fmt: skip
