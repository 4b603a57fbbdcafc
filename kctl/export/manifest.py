"""The manifest of a table: the splits that are committed, so that each record is exported exactly
once.

    <out>/_kctl/table.json            the table's options; runs with other options are rejected
    <out>/_kctl/manifest/*.jsonl      one line per split: offsets, files, rows, damage; what was
                                      replaced, and files that expired
    <out>/_kctl/tmp/<attempt>/...     files that tasks are writing, and finally row.json, their line

A task writes its files below tmp. The driver commits a split in two steps: it writes the line to
the manifest, then moves the files into place. After a crash at any point, the next run rolls
forward: it moves files of committed splits that are still below tmp, commits splits whose tasks had
finished, and removes everything else there. Readers of tables ignore names that begin with `_`.

Each file of lines sorts after those before it, whatever the clocks of its writers say: a line that
was replaced may come again, as a log that lost its end has again the range that it had before.

Invariant: the offset ranges of a partition's lines do not overlap; every file outside `_kctl`
belongs to a line.
"""

import json
import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import asdict, field
from typing import Any

from kctl.arrow_files.files import Files
from kctl.errors import CorruptDataError, StorageError, UsageError
from kctl.export.dead_letters import claim
from kctl.export.options import ExportOptions
from kctl.export.rows import DamagedRange
from kctl.lazy_dataclass import dataclass
from kctl.lines import split_lines

__all__ = ["ManifestRow", "WrittenFile"]

DIRECTORY = "_kctl"
_TABLE = f"{DIRECTORY}/table.json"
_LINES = f"{DIRECTORY}/manifest"
_TMP = f"{DIRECTORY}/tmp"
_ROW = "row.json"
# A file system, where a file is and where it belongs.
_Move = tuple[Files, str, str]
# Topic, partition, first and end offset.
_Range = tuple[Any, ...]
# The first run and number in the name of a file of lines.
_NUMBERED = re.compile(r"(.+?)-(\d{6,})(?=[_.])")


@dataclass(slots=True)
class WrittenFile:
    """One file of a split."""

    # Relative to the table's directory: the final path, and where the task wrote it.
    path: str
    tmp_path: str
    rows: int
    size: int


@dataclass(slots=True)
class ManifestRow:
    """The result of a task; a line of the manifest once the driver has committed it."""

    topic: str
    partition: int
    first_offset: int
    # Exclusive.
    end_offset: int
    files: list[WrittenFile] = field(default_factory=list)
    rows: int = 0
    # Bytes of log read.
    log_bytes: int = 0
    undecodable: int = 0
    damages: list[DamagedRange] = field(default_factory=list)
    # Files of dead letters, and the directory that they are in.
    letters: list[WrittenFile] = field(default_factory=list)
    letters_at: str = ""

    @property
    def dead_letters(self) -> int:
        """Return the number of records that are dead letters."""
        return sum(each.rows for each in self.letters)

    @property
    def range(self) -> tuple[str, int, int, int]:
        """Return topic, partition, first and end offset, which identify the row."""
        return self.topic, self.partition, self.first_offset, self.end_offset

    def to_json(self) -> str:
        """Return the row as one line of JSON."""
        facts = asdict(self)
        if not self.letters:
            # Earlier versions of kctl do not read them.
            del facts["letters"], facts["letters_at"]
        return json.dumps(facts, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "ManifestRow":
        """Parse what `to_json` wrote; CorruptDataError for anything else."""
        try:
            facts: dict[str, Any] = json.loads(text)
            facts["files"] = [WrittenFile(**each) for each in facts["files"]]
            facts["letters"] = [WrittenFile(**each) for each in facts.get("letters", ())]
            facts["damages"] = [DamagedRange(**each) for each in facts["damages"]]
            return cls(**facts)
        except (ValueError, TypeError, KeyError) as error:
            raise CorruptDataError(f"not a line of an export's manifest: {error}") from None


class Manifest:
    """The manifest of one table. `open` recovers from an interrupted run."""

    def __init__(self, files: Files, root: str, run: str) -> None:
        self._files = files
        self._root = root
        # Prefix of this run's files below tmp, and of those in the manifest.
        self._run = self._names = run
        self._count = 0
        self._letters: str | None = None
        self.rows: list[ManifestRow] = []

    @classmethod
    def open(
        cls, out: str, options: ExportOptions, run: str, *, adopts_new: bool = True
    ) -> "Manifest":
        """Open the manifest below `out`, or create it.

        What tasks of an interrupted run completed is committed, but not the first rows of a
        partition unless `adopts_new`.

        UsageError if the table was made with other options, or if the directory holds something
        else.
        """
        files, root = Files.of(out)
        manifest = cls(files, root, run)
        facts = options.fingerprint()
        exists = _exists(out, facts)
        if options.dead_letters is not None:
            claim(options.dead_letters, out, run)
            manifest._letters = options.dead_letters
        if not exists:
            _write_options(out, options)
        else:
            manifest._roll_forward(manifest._load())
            if not options.latest_per_key:
                manifest._adopt(adopts_new=adopts_new)
            manifest.close()
        return manifest

    @classmethod
    def look(cls, out: str, options: ExportOptions, run: str = "") -> "Manifest":
        """Read the manifest below `out`, if there is one, and change nothing. UsageError as `open`
        raises it.

        `run` is the prefix of what `expire` writes.
        """
        files, root = Files.of(out)
        manifest = cls(files, root, run)
        if _exists(out, options.fingerprint()):
            manifest._load()
        return manifest

    def done(self) -> dict[tuple[str, int], list[tuple[int, int]]]:
        """Return the committed offset ranges by topic and partition."""
        found: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for row in self.rows:
            ranges = found.setdefault((row.topic, row.partition), [])
            ranges.append((row.first_offset, row.end_offset))
        return found

    def commit(self, rows: Iterable[ManifestRow], *, replaces: bool = False) -> None:
        """Add `rows` durably. With `replaces`, they replace all rows of the same partitions.

        StorageError, and nothing is added, if a file that a task has written is gone.
        """
        added = list(rows)
        partitions = {(row.topic, row.partition) for row in added} if replaces else set()
        self._exchange(
            [row for row in self.rows if (row.topic, row.partition) in partitions], added
        )

    def replace(self, gone: Iterable[ManifestRow], row: ManifestRow) -> None:
        """Replace committed rows durably by one that has their offsets and records.

        Their files are deleted before the new ones appear: a reader of the directory never sees a
        record twice, and for a moment may not see it.
        """
        self._exchange(list(gone), [row])

    def expire(self, paths: Sequence[str]) -> None:
        """Take files out of their rows durably, and delete them; the rows keep their offsets."""
        self._write_lines([json.dumps({"expired": list(paths)})])
        leave_out(self.rows, set(paths))
        for path in paths:
            self._files.delete(f"{self._root}/{path}")

    def _write_lines(self, lines: Sequence[str]) -> None:
        self._count += 1
        name = f"{_LINES}/{self._names}-{self._count:06d}.jsonl"
        self._files.write(f"{self._root}/{name}", "".join(f"{it}\n" for it in lines).encode())

    def _exchange(self, gone: list[ManifestRow], added: list[ManifestRow]) -> None:
        moves = [move for row in added for move in self._moves(row, is_new=True)]
        lines = [row.to_json() for row in added]
        if gone:
            lines.append(json.dumps({"replaced": [row.range for row in gone]}))
        self._write_lines(lines)
        self.rows = [row for row in self.rows if row not in gone] + added
        self._delete_files(gone, added)
        _place(moves)

    def forget(self) -> None:
        """Drop the committed rows from memory; the caller keeps what it needs of them."""
        self.rows = []

    def close(self) -> None:
        """Remove everything below tmp."""
        self._files.delete_tree(f"{self._root}/{_TMP}")
        if self._letters is not None:
            files, root = Files.of(self._letters)
            files.delete_tree(f"{root}/{_TMP}")

    def _load(self) -> list[ManifestRow]:
        """Read all lines into `rows`; return those that other lines replaced."""
        rows = _Rows()
        expired: set[str] = set()
        last = ""
        for facts in self._files.list(f"{self._root}/{_LINES}"):
            if not facts.name.endswith(".jsonl"):
                continue
            last = facts.name
            added: list[ManifestRow] = []
            for line in split_lines(self._files.read(facts.path).decode()):
                if line.startswith('{"expired"'):
                    expired |= set(json.loads(line)["expired"])
                elif line.startswith('{"replaced"'):
                    rows.remove(tuple(each) for each in json.loads(line)["replaced"])
                else:
                    added.append(ManifestRow.from_json(line))
            rows.add(added)
        self._names = _name_after(last, self._run)
        self.rows = rows.live()
        leave_out([*self.rows, *rows.removed], expired)
        return rows.removed

    def _roll_forward(self, replaced: list[ManifestRow]) -> None:
        self._delete_files(replaced, self.rows)
        for row in self.rows:
            _place(self._moves(row))

    def _adopt(self, *, adopts_new: bool) -> None:
        """Commit what tasks of an interrupted run completed, each offset range once."""
        taken = {key: list(ranges) for key, ranges in self.done().items()}
        known = set(taken)
        found: list[ManifestRow] = []
        for facts in self._files.list(f"{self._root}/{_TMP}"):
            path = f"{facts.path}/{_ROW}"
            if self._files.find(path) is None:
                continue
            row = ManifestRow.from_json(self._files.read(path).decode())
            if not adopts_new and (row.topic, row.partition) not in known:
                continue
            ranges = taken.setdefault((row.topic, row.partition), [])
            is_free = all(
                row.end_offset <= first or row.first_offset >= end for first, end in ranges
            )
            # A row whose files are gone is exported again.
            if is_free and self._has_files(row):
                ranges.append((row.first_offset, row.end_offset))
                found.append(row)
        if found:
            self.commit(found)

    def _moves(self, row: ManifestRow, *, is_new: bool = False) -> list[_Move]:
        """Return the files of a row that are still below tmp.

        StorageError if a file `is_new` and neither there nor in its place. Files of older rows may
        be in neither: they have expired, a lake's OPTIMIZE has replaced them, or they were
        deleted by hand.
        """
        moves = []
        for files, root, each in self._places(row):
            source, target = f"{root}/{each.tmp_path}", f"{root}/{each.path}"
            if files.find(source) is not None:
                moves.append((files, source, target))
            elif is_new and files.find(target) is None:
                raise StorageError(
                    f"{source}: the file is gone before it was committed",
                    hint="run the command again: it exports these records again",
                )
        return moves

    def _has_files(self, row: ManifestRow) -> bool:
        try:
            self._moves(row, is_new=True)
        except StorageError:
            return False
        return True

    def _delete_files(self, rows: Sequence[ManifestRow], live: Iterable[ManifestRow]) -> None:
        """Delete the files of replaced rows, except those that a live row names again."""
        if not rows:
            return
        kept = {(root, each.path) for row in live for _, root, each in self._places(row)}
        for row in rows:
            for files, root, each in self._places(row):
                is_kept = (root, each.path) in kept
                if not is_kept and files.find(f"{root}/{each.path}") is not None:
                    files.delete(f"{root}/{each.path}")

    def _places(self, row: ManifestRow) -> list[tuple[Files, str, WrittenFile]]:
        """Return the row's files, each with the file system and the directory that it is on."""
        found = [(self._files, self._root, each) for each in row.files]
        if row.letters:
            found += [(*Files.of(row.letters_at), each) for each in row.letters]
        return found


class _Rows:
    """The rows of a manifest while its lines are read, in the order of their files."""

    def __init__(self) -> None:
        self._live: dict[_Range, ManifestRow] = {}
        # Replaced by a file that sorts before that of the row: a clock was turned back.
        self._awaited: set[_Range] = set()
        self.removed: list[ManifestRow] = []

    def remove(self, ranges: Iterable[_Range]) -> None:
        """Remove the rows of earlier files that a file has replaced."""
        for each in ranges:
            row = self._live.pop(each, None)
            if row is None:
                self._awaited.add(each)
            else:
                self.removed.append(row)

    def add(self, rows: Iterable[ManifestRow]) -> None:
        """Add the rows of one file, after those that it has replaced are removed."""
        for row in rows:
            if row.range in self._awaited:
                self._awaited.remove(row.range)
                self.removed.append(row)
            else:
                self._live[row.range] = row

    def live(self) -> list[ManifestRow]:
        """Return the rows of the table."""
        return list(self._live.values())


def _name_after(last: str, run: str) -> str:
    """Return `run`, or if the files of such a name do not sort after `last`, another prefix."""
    if f"{run}-" > last:
        return run
    found = _NUMBERED.match(last)
    if found is None:
        return f"{last}_{run}"
    # The run that wrote `last` may still write its next number.
    return f"{found[1]}-{int(found[2]) + 1:06d}_{run}"


def _place(moves: Iterable[_Move]) -> None:
    for files, source, target in moves:
        files.make_parent(target)
        files.move(source, target)


def leave_out(rows: Iterable[ManifestRow], expired: Container[str]) -> None:
    """Take expired files out of their rows."""
    for row in rows:
        kept = [each for each in row.files if each.path not in expired]
        row.rows -= sum(each.rows for each in row.files) - sum(each.rows for each in kept)
        row.files = kept


def tmp_path(attempt: str, path: str) -> str:
    """Return where a task writes the file that will become `path`."""
    return f"{_TMP}/{attempt}/{path}"


def leave_row(files: Files, root: str, attempt: str, row: ManifestRow) -> None:
    """Write a task's row below tmp, last: it shows that the task's files are complete."""
    files.write(f"{root}/{tmp_path(attempt, _ROW)}", row.to_json().encode())


def _exists(out: str, wanted: dict[str, Any]) -> bool:
    """Return whether there is a table, which has these options; UsageError if it has others, or if
    the directory holds something else."""
    files, root = Files.of(out)
    if files.find(f"{root}/{_TABLE}") is not None:
        _check_same(out, json.loads(files.read(f"{root}/{_TABLE}")), wanted)
        return True
    # An interrupted first run may have left only the directory.
    if any(facts.name != DIRECTORY for facts in files.list(root)):
        raise UsageError(
            f"{out} is not empty and not a table that kctl exported",
            hint="choose a new directory with --out",
        )
    return False


def _check_same(out: str, existing: dict[str, Any], wanted: dict[str, Any]) -> None:
    # The first run fixes an inferred schema for the table.
    other = [name for name in wanted if existing.get(name) != wanted[name]]
    if other == ["value_schema"] and wanted["value_schema"] is None:
        return
    if other:
        raise UsageError(
            f"{out} was exported with a different {', '.join(sorted(other))}",
            hint="use the options of the first run, or a new directory with --out",
        )


def evolve_table(out: str, before: ExportOptions, after: ExportOptions) -> None:
    """Replace the options of the table at `out`, if there is one, atomically.

    UsageError if the table has other options than `before`.
    """
    if _exists(out, before.fingerprint()):
        _write_options(out, after)


def _write_options(out: str, options: ExportOptions) -> None:
    files, root = Files.of(out)
    facts = options.fingerprint() | {"schema_id": options.schema_id}
    files.write(f"{root}/{_TABLE}", json.dumps(facts, indent=2).encode())


def table_schema_id(out: str) -> tuple[bool, int | None]:
    """Return whether there is a table at `out`, and its options' schema_id."""
    files, root = Files.of(out)
    if files.find(f"{root}/{_TABLE}") is None:
        return False, None
    return True, json.loads(files.read(f"{root}/{_TABLE}")).get("schema_id")


def table_schema(out: str) -> str | None:
    """Return the value schema of the table at `out`; None if there is no table yet."""
    files, root = Files.of(out)
    if files.find(f"{root}/{_TABLE}") is None:
        return None
    schema: str | None = json.loads(files.read(f"{root}/{_TABLE}")).get("value_schema")
    return schema
