"""Published: which files kctl's versions of a lake's table have added, beside the table.

    <out>/_kctl/published/<number>.json       the files of version `number`
    <out>/_kctl/published/<number>.all.json   those of the versions up to `number`

The first is written before the lake's commit of that version. A table that is followed has a
version for each interval, so that older files are joined into one of the second kind, never the
newest: an interrupted run is completed from it.

Invariant: each version up to the newest is in a file of one kind, or for a moment of both.
"""

import json
from collections.abc import Iterable
from typing import Final

from kctl.arrow_files.files import Files
from kctl.export.manifest import DIRECTORY

_DIRECTORY: Final = f"{DIRECTORY}/published"
_ALL: Final = ".all.json"
# Files of single versions that are joined.
JOINED_MIN: Final = 1_000


class Published:
    """The versions of the table in a directory."""

    def __init__(self, files: Files, root: str) -> None:
        self._files = files
        self._directory = f"{root}/{_DIRECTORY}"
        # Number -> file.
        self._single: dict[int, str] = {}
        self._joined: dict[int, str] = {}
        for facts in files.list(self._directory):
            number = facts.name.partition(".")[0]
            if facts.name.endswith(_ALL):
                self._joined[int(number)] = facts.path
            elif facts.name.endswith(".json"):
                self._single[int(number)] = facts.path

    @property
    def newest(self) -> int:
        """Return the number of the newest version that was begun; 0 if there is none."""
        return max(self._single, default=0)

    def paths_of_newest(self) -> list[str]:
        """Return the files of the newest version."""
        return self._read(self._single[self.newest]) if self._single else []

    def paths(self) -> set[str]:
        """Return the files of all versions."""
        found = [*self._joined.values(), *self._single.values()]
        return {path for it in found for path in self._read(it)}

    def begin(self, number: int, paths: Iterable[str]) -> None:
        """Name the files of a version, before its commit."""
        self._single[number] = self._write(f"{number:08d}.json", paths)

    def join(self) -> None:
        """Join the files of older versions if there are many."""
        joined = sorted(self._single)[:-1]
        if len(joined) < JOINED_MIN:
            return
        before = list(self._joined.values())
        chosen = [*before, *(self._single[it] for it in joined)]
        paths = sorted({path for it in chosen for path in self._read(it)})
        self._joined = {joined[-1]: self._write(f"{joined[-1]:08d}{_ALL}", paths)}
        for path in chosen:
            self._files.delete(path)
        for number in joined:
            del self._single[number]

    def _read(self, path: str) -> list[str]:
        paths: list[str] = json.loads(self._files.read(path))
        return paths

    def _write(self, name: str, paths: Iterable[str]) -> str:
        path = f"{self._directory}/{name}"
        self._files.write(path, json.dumps(list(paths)).encode())
        return path
