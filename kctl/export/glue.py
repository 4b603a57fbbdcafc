"""Reads the versions of a schema from the registry of AWS Glue."""

from typing import Protocol

from kctl.errors import UsageError
from kctl.export.schema_registry import VERSIONS_MAX, Subject, Version
from kctl.export.wire_formats import WireFormat, WireKind, glue_id


class GlueRegistry(Protocol):
    """A registry of AWS Glue."""

    def latest(self, schema: str) -> int:
        """Return the number of a schema's latest version."""
        ...

    def version(self, schema: str, number: int) -> tuple[str, str, str] | None:
        """Return UUID, kind and text of a version; None if it was deleted or is not available."""
        ...


class GlueReader:
    """Reads a schema again and again; versions, which never change, are read once."""

    def __init__(self, registry: GlueRegistry) -> None:
        self._registry = registry
        self._seen: dict[int, tuple[str, str, str]] = {}

    def read(self, name: str) -> Subject:
        """Return the versions of the schema `name`; UsageError if there are none, and what the
        registry raises."""
        latest = self._registry.latest(name)
        numbers = range(max(1, latest - VERSIONS_MAX + 1), latest + 1)
        for number in numbers:
            if number not in self._seen:
                found = self._registry.version(name, number)
                if found is not None:
                    self._seen[number] = found
        known = [(number, self._seen[number]) for number in numbers if number in self._seen]
        if not known:
            raise UsageError(f"AWS Glue has no version of {name}")
        versions = [Version(number, text) for number, (_identity, _kind, text) in known]
        wire = tuple((glue_id(identity), number) for number, (identity, _kind, _text) in known)
        kind = known[-1][1][1]
        return Subject(kind, tuple(versions), WireFormat(WireKind.GLUE, wire))
