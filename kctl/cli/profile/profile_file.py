"""The file of profiles: which profiles it has, and how it and files of secrets are written."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kctl.cli.connect import config_file, read_config
from kctl.errors import UsageError, not_found
from kctl.lazy_dataclass import dataclass

_OWNER_ONLY = 0o600


@dataclass(frozen=True, slots=True)
class ProfileFile:
    """The file as it was read; a file that does not exist has no profiles."""

    path: Path
    text: str
    profiles: dict[str, Any]
    default: str | None = None

    @classmethod
    def read(cls) -> "ProfileFile":
        """Return the file that the environment names; raise UsageError if it is not valid."""
        path = config_file(os.environ)
        if not path.exists():
            return cls(path, "", {})
        document = read_config(path)
        profiles = document.get("profiles", {})
        is_valid = isinstance(profiles, dict) and all(
            isinstance(it, dict) for it in profiles.values()
        )
        if not is_valid:
            raise UsageError(f"{path}: profiles must be tables", hint="[profiles.NAME]")
        text = path.read_text(encoding="utf-8")
        return cls(path, text, profiles, document.get("default_profile"))

    def profile(self, name: str) -> dict[str, Any]:
        """Return the profile `name`; raise UsageError."""
        if name not in self.profiles:
            error = not_found("profile", name, self.profiles, hint="kctl profile add makes one")
            raise UsageError(str(error), hint=error.hint)
        found: dict[str, Any] = self.profiles[name]
        return found

    def write(self, text: str) -> None:
        """Replace the file; raise UsageError."""
        write_private(self.path, text)


def edit_profile(name: str, edit: Callable[[str, str], str]) -> ProfileFile:
    """Replace the file by `edit(text, name)`, and return it as it was; raise UsageError if there is
    no profile `name`."""
    found = ProfileFile.read()
    found.profile(name)
    found.write(edit(found.text, name))
    return found


def write_private(path: Path, text: str) -> None:
    """Replace a file at once; only its owner can read it. Raise UsageError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _OWNER_ONLY)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, _OWNER_ONLY)
            file.write(text)
        beside.replace(path)
    except OSError as error:
        raise UsageError(f"Cannot write {path}: {error.strerror}") from None
