"""Reads the versions of an artifact from Apicurio's registry, by version 2 or 3 of its own API."""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from kctl.errors import KctlError, UsageError
from kctl.export.schema_registry import REFERENCES_MAX, VERSIONS_MAX, Subject, Version
from kctl.export.wire_formats import ID_MAX, IdKind, WireFormat, WireKind, apicurio_id

# Versions of an artifact that one response has.
_PAGE = 100
_GROUP = "default"


class ArtifactReader:
    """Reads an artifact again and again; texts of versions, which never change, are read once."""

    def __init__(
        self, get: Callable[[str], Any], get_text: Callable[[str], str], *, api: int, ids: IdKind
    ) -> None:
        """Make a reader of an API of version `api`.

        `get` and `get_text` return the JSON document and the text at a path; `ids` is what the
        bytes before values identify.
        """
        self._get, self._get_text = get, get_text
        self._content = "/content" if api > 2 else ""
        self._ids = ids
        self._seen: dict[int, Version] = {}

    def read(self, name: str) -> Subject:
        """Return the versions of an artifact, `GROUP/ARTIFACT` or `ARTIFACT`.

        UsageError if there are none, or too many references; KctlError for an invalid response.
        """
        group, _, artifact = name.rpartition("/")
        try:
            found = self._versions(_base(group, artifact))
            # As other registries, from the oldest to the newest.
            found.sort(key=lambda it: int(it["globalId"]))
            versions = [self._version(it) for it in found[-VERSIONS_MAX:]]
            if not versions:
                raise UsageError(f"The schema registry has no version of {name}")
            numbers = [pair for it in reversed(found) for pair in _numbers(it)]
            # Version 2 of the API has another name for it.
            kind = str(found[-1].get("artifactType") or found[-1].get("type"))
        except (KeyError, TypeError, ValueError) as error:
            raise KctlError(
                f"The schema registry returned an invalid response for {name}: {error!r}"
            ) from None
        wire = WireFormat(WireKind.APICURIO, tuple(numbers), self._ids)
        return Subject(kind, tuple(versions), wire)

    def _versions(self, base: str) -> list[Any]:
        found: list[Any] = []
        while len(found) < VERSIONS_MAX:
            page = self._get(f"{base}/versions?limit={_PAGE}&offset={len(found)}")
            found += page["versions"]
            if not page["versions"] or len(found) >= int(page["count"]):
                break
        return [it for it in found if it.get("state") != "DRAFT"]

    def _version(self, facts: Any) -> Version:
        number = int(facts["globalId"])
        if not 0 < number <= ID_MAX:
            raise ValueError(f"the global id {number}")
        if number not in self._seen:
            text = self._get_text(f"/ids/globalIds/{number}")
            self._seen[number] = Version(number, text, self._references(number))
        return self._seen[number]

    def _references(self, number: int) -> tuple[tuple[str, str], ...]:
        """Return names and texts of the schemas that a version refers to, the inner ones first."""
        found: dict[str, str] = {}
        visited: set[str] = set()

        def visit(path: str) -> None:
            for it in self._get(f"{path}/references"):
                base = _base(it.get("groupId") or "", it["artifactId"])
                place = f"{base}/versions/{quote(str(it['version']), safe='')}"
                if place in visited:
                    continue
                visited.add(place)
                if len(visited) > REFERENCES_MAX:
                    raise UsageError(f"A schema refers to more than {REFERENCES_MAX} others")
                visit(place)
                found[str(it["name"])] = self._get_text(f"{place}{self._content}")

        visit(f"/ids/globalIds/{number}")
        return tuple(found.items())


def _base(group: str, artifact: str) -> str:
    return f"/groups/{quote(group or _GROUP, safe='')}/artifacts/{quote(artifact, safe='')}"


def _numbers(facts: Any) -> list[tuple[str, int]]:
    """Return the ids of a version, each with its number; versions may share a content."""
    number = int(facts["globalId"])
    return [
        (apicurio_id(IdKind.GLOBAL, number), number),
        (apicurio_id(IdKind.CONTENT, int(facts["contentId"])), number),
    ]
