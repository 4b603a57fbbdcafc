"""Reads the versions of a subject from a schema registry with Confluent's HTTP API.

The driver reads all versions before the tasks run, so executors need no access to the registry, and
the table does not depend on when a task ran.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from kctl.errors import KctlError, UsageError

# The bytes before a value: a NUL, and the schema's id in the registry.
CONFLUENT_BYTES = 5
VERSIONS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Subject:
    """The schemas of a subject; `latest` is that of the newest version."""

    # AVRO, PROTOBUF or JSON.
    kind: str
    latest: str
    # (id, schema) of each version; values begin with the id.
    by_id: tuple[tuple[int, str], ...]


def read_subject(get: Callable[[str], Any], subject: str) -> Subject:
    """Read all versions of `subject`; `get` returns the JSON document at a path of the registry.

    UsageError if the subject has no versions, or schemas that refer to other schemas; KctlError for
    an invalid response.
    """
    base = f"/subjects/{quote(subject, safe='')}/versions"
    try:
        versions = sorted(get(base))[-VERSIONS_MAX:]
        documents = [get(f"{base}/{number}") for number in versions]
        found = [(int(it["id"]), str(it["schema"])) for it in documents]
    except (KeyError, TypeError, ValueError) as error:
        raise KctlError(
            f"The schema registry returned an invalid response for {subject}: {error!r}"
        ) from None
    if not found:
        raise UsageError(f"The schema registry has no version of {subject}")
    if any(it.get("references") for it in documents):
        raise UsageError(
            f"Schemas of {subject} refer to others",
            hint="provide a complete one with --schema FILE",
        )
    kind = str(documents[-1].get("schemaType") or "AVRO")
    return Subject(kind, found[-1][1], tuple(found))
