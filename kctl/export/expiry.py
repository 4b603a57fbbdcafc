"""Expiry: removes the files of days and hours that are older than a table keeps.

`--partition-by date`, or `date,hour`, puts the records of a day or hour into a directory of their
own, whose name says how old they are: no file is opened. A period expires when its end is older
than the time to keep, so no younger record is removed. Records without a timestamp do not expire.

A step first writes the names of files to the manifest, then deletes the files. A kill between the
two leaves files that no reader of the manifest counts; the next step finds and deletes them. The
offsets stay in the manifest, so no record is exported again.

Delta and Iceberg remove the rows by a delete of their own, whose filter is the same period.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from kctl.arrow_files.files import Files
from kctl.errors import UsageError
from kctl.export.lake import delete_before
from kctl.export.manifest import DIRECTORY, Manifest
from kctl.export.options import HIVE_NULL, ExportOptions
from kctl.lazy_dataclass import dataclass

# Files that one step deletes.
EXPIRED_FILES_MAX = 1_000
_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000


@dataclass(frozen=True, slots=True)
class OldFile:
    """A file of an expired period."""

    # Relative to the table's directory.
    path: str
    size: int


@dataclass(frozen=True, slots=True)
class Expired:
    """The result of a step: files, or for a lake those that its version no longer has."""

    files: int = 0
    bytes: int = 0
    # False: a further step may find more.
    is_whole: bool = True


class Expiry:
    """Removes old periods from one table."""

    def __init__(self, out: str, options: ExportOptions, retention_ms: int) -> None:
        """UsageError for a table without days, and for a time that is not positive."""
        if retention_ms < 1:
            raise UsageError("--retention must be positive", hint="e.g. --retention 30d")
        if "date" not in options.partition_by:
            raise UsageError(
                "--retention removes whole days or hours, so the table must be partitioned by them",
                hint="--partition-by date, or date,hour",
            )
        if options.latest_per_key:
            raise UsageError(
                "--latest-per-key keeps the last record of each key, however old it is",
                hint="leave --retention or --latest-per-key out",
            )
        self._files, self._root = Files.of(out)
        self._out, self._options = out, options
        self._retention_ms = retention_ms
        self._unit_ms = _HOUR_MS if "hour" in options.partition_by else _DAY_MS

    def before_ms(self, now_ms: int) -> int:
        """Return the beginning of the first day or hour that is kept."""
        return max(0, now_ms - self._retention_ms) // self._unit_ms * self._unit_ms

    def old_files(self, now_ms: int) -> Iterator[OldFile]:
        """Yield the files of expired periods, the oldest of each directory first."""
        yield from self._below("", self._options.partition_by, {}, self.before_ms(now_ms))

    def step(self, manifest: Manifest, now_ms: int) -> tuple[Expired, frozenset[str]]:
        """Remove up to EXPIRED_FILES_MAX files; return what was removed, and the paths.

        StorageError if the table cannot be changed.
        """
        if self._options.table_format.is_lake:
            count = delete_before(self._out, self._options, self.before_ms(now_ms))
            return Expired(count), frozenset()
        found: list[OldFile] = []
        for old in self.old_files(now_ms):
            if len(found) == EXPIRED_FILES_MAX:
                break
            found.append(old)
        if not found:
            return Expired(), frozenset()
        paths = frozenset(it.path for it in found)
        manifest.expire(sorted(paths))
        for directory in sorted({path.rpartition("/")[0] for path in paths}):
            self._remove_empty(f"{self._root}/{directory}")
        is_whole = len(found) < EXPIRED_FILES_MAX
        return Expired(len(found), sum(it.size for it in found), is_whole), paths

    def _below(
        self, directory: str, keys: Sequence[str], values: dict[str, str], before_ms: int
    ) -> Iterator[OldFile]:
        for facts in self._files.list(f"{self._root}/{directory}".rstrip("/")):
            path = f"{directory}{facts.name}"
            if not keys:
                if not facts.is_directory:
                    yield OldFile(path, facts.size)
                continue
            name, _, value = facts.name.partition("=")
            if facts.name == DIRECTORY or not facts.is_directory or name != keys[0]:
                continue
            known = values | {name: value}
            if keys[1:] or _end_ms(known, self._unit_ms) <= before_ms:
                yield from self._below(f"{path}/", keys[1:], known, before_ms)

    def _remove_empty(self, path: str) -> None:
        if not self._files.list(path):
            self._files.delete_tree(path)


def _end_ms(values: dict[str, str], unit_ms: int) -> int:
    """Return the end of the period that the values of partition keys name."""
    date, hour = values.get("date", HIVE_NULL), values.get("hour", "00")
    try:
        began = datetime.strptime(f"{date} {hour}", "%Y-%m-%d %H").replace(tzinfo=UTC)
    except ValueError:
        # Records without a timestamp, and what is not a partition.
        return 2**63
    return int(began.timestamp()) * 1_000 + unit_ms
