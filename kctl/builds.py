"""Which build of kctl runs: Python files only, or with the modules of the request path compiled."""

import sys
from collections.abc import Sequence
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from importlib.util import find_spec
from types import ModuleType

# One of the modules that a compiled build compiles; see [tool.kctl-compiled] in pyproject.toml.
_COMPILED_MODULE = "kctl.runtime.future"


class _Sources:
    """A finder that takes modules of kctl from their Python files, whatever lies beside them."""

    def __init__(self) -> None:
        self._finders: dict[str, FileFinder] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where the module is; None if it is not kctl's, or has no Python file."""
        if path is None or not name.startswith("kctl."):
            return None
        for directory in path:
            if directory not in self._finders:
                details = (SourceFileLoader, SOURCE_SUFFIXES)
                self._finders[directory] = FileFinder(directory, details)
            spec = self._finders[directory].find_spec(name)
            if spec is not None and spec.loader is not None:
                return spec
        return None

    def invalidate_caches(self) -> None:
        """Look at the directories again."""
        self._finders.clear()


def choose_sources() -> None:
    """Import Python files only from now on, as KCTL_PURE=1 in the environment requests."""
    sys.meta_path.insert(0, _Sources())


def is_compiled() -> bool:
    """Return whether the modules of the request path are compiled ones."""
    spec = find_spec(_COMPILED_MODULE)
    origin = "" if spec is None else spec.origin or ""
    return origin.endswith(tuple(EXTENSION_SUFFIXES))
