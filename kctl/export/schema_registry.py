"""Reads the versions of a subject from a schema registry with Confluent's HTTP API.

The driver reads all versions before the tasks run, so executors need no access to the registry, and
the table does not depend on when a task ran.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from kctl.errors import KctlError, UsageError
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.export.wire_formats import WireFormat

# The bytes before a value: a NUL, and the schema's id in the registry.
CONFLUENT_BYTES = 5
VERSIONS_MAX = 10_000
# Schemas that one schema refers to, directly or not.
REFERENCES_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a subject; values begin with its `number`, the schema's id."""

    number: int
    text: str
    # (name, text) of the schemas it refers to, each after those that it refers to itself.
    references: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Subject:
    """The schemas of a subject, the newest last; there is at least one."""

    # AVRO, PROTOBUF or JSON.
    kind: str
    versions: tuple[Version, ...]
    # How values name their versions; None: by Confluent's bytes.
    wire: "WireFormat | None" = None


class SubjectReader:
    """Reads subjects again and again; what it has read of a version is not read again."""

    def __init__(self, get: Callable[[str], Any]) -> None:
        """Take a function that returns the JSON document at a path of the registry."""
        self._get = get
        self._seen: dict[str, Any] = {}

    def read(self, name: str) -> Subject:
        """See `read_subject`."""
        return read_subject(self._document, name)

    def _document(self, path: str) -> Any:
        if path.endswith("/versions"):
            return self._get(path)
        if path not in self._seen:
            self._seen[path] = self._get(path)
        return self._seen[path]


def read_subject(get: Callable[[str], Any], subject: str) -> Subject:
    """Read all versions of `subject` and the schemas they refer to; `get` returns the JSON document
    at a path of the registry.

    UsageError if the subject has no versions, or too many references; KctlError for an invalid
    response.
    """
    base = f"/subjects/{quote(subject, safe='')}/versions"
    seen: dict[tuple[str, int], Any] = {}
    try:
        numbers = sorted(get(base))[-VERSIONS_MAX:]
        documents = [get(f"{base}/{number}") for number in numbers]
        found = [
            Version(int(it["id"]), str(it["schema"]), _references(get, it, seen))
            for it in documents
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise KctlError(
            f"The schema registry returned an invalid response for {subject}: {error!r}"
        ) from None
    if not found:
        raise UsageError(f"The schema registry has no version of {subject}")
    return Subject(str(documents[-1].get("schemaType") or "AVRO"), tuple(found))


def _references(
    get: Callable[[str], Any], document: Any, seen: dict[tuple[str, int], Any]
) -> tuple[tuple[str, str], ...]:
    """Return the schemas that a version refers to; `seen` holds those that were read before."""
    found: dict[str, str] = {}
    visited: set[tuple[str, int]] = set()

    def visit(referring: Any) -> None:
        for it in referring.get("references") or ():
            place = str(it["subject"]), int(it["version"])
            if place in visited:
                continue
            visited.add(place)
            if len(visited) > REFERENCES_MAX:
                raise UsageError(f"A schema refers to more than {REFERENCES_MAX} others")
            if place not in seen:
                seen[place] = get(f"/subjects/{quote(place[0], safe='')}/versions/{place[1]}")
            visit(seen[place])
            found[str(it["name"])] = str(seen[place]["schema"])

    visit(document)
    return tuple(found.items())
