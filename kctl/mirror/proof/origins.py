"""CopiedBetween: what of two clusters of a ring or mesh a proof of one mirror compares. Pure.

Each record of such a mirror carries the clusters that it was copied from, so both sides have
records that this mirror has not copied: those of its target at the source, and of all other
clusters at the target. They are left out, and the path of what is left at the target is that which
the record has at the source, where it began. Then both sides must be equal.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from kctl.lazy_dataclass import dataclass
from kctl.mirror.proof.records import Identity, Records
from kctl.mirror.record_changes import PATH_HEADER

_PATH = PATH_HEADER.encode()


@dataclass(frozen=True, slots=True)
class CopiedBetween:
    """The records that a mirror of a ring, or of a mesh, copies between two clusters."""

    source_id: str
    target_id: str
    # Whether records are copied only from the cluster where they were produced.
    only_from_origin: bool = False

    def at_source(self, records: Records) -> Records:
        """Return the records that are to be copied."""
        return _changed(records, self._of_source)

    def at_target(self, records: Records) -> Records:
        """Return the records that this mirror has copied, with their paths at the source."""
        return _changed(records, self._of_target)

    def _of_source(self, record: Identity) -> Identity | None:
        path, others = _parted(record[3])
        if self.target_id in path or (path and self.only_from_origin):
            return None
        return _with_path(record, path, others)

    def _of_target(self, record: Identity) -> Identity | None:
        path, others = _parted(record[3])
        if not path or path[-1] != self.source_id:
            return None
        return _with_path(record, path[:-1], others)


def _changed(records: Records, change: Callable[[Identity], Identity | None]) -> Records:
    changed = [change(each) for each in records.identities]
    kept = [at for at, each in enumerate(changed) if each is not None]
    return Records(
        records.offsets[np.array(kept, np.int64)], [each for each in changed if each is not None]
    )


def _parted(headers: tuple[Any, ...]) -> tuple[list[str], list[Any]]:
    """Return the path that the headers say, and the other headers."""
    if not headers:
        return [], []
    values = [value for name, value in headers if name == _PATH and value]
    path = values[0].decode("utf-8", "replace").split(",") if values else []
    return path, [each for each in headers if each[0] != _PATH]


def _with_path(record: Identity, path: list[str], others: list[Any]) -> Identity:
    last = [(_PATH, ",".join(path).encode())] if path else []
    return (*record[:3], (*others, *last))
