"""A subject of a schema registry, in Confluent's HTTP API: its versions and their numbers.

The driver reads all versions of a subject before the tasks run, so executors need no way to the
registry, and a table does not depend on when a task ran.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from kctl.errors import KctlError, UsageError

# The bytes before a value: a NUL, and the schema's number in the registry.
CONFLUENT_BYTES = 5
VERSIONS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Subject:
    """The schemas of a subject; `latest` is that of its newest version."""

    # AVRO, PROTOBUF or JSON.
    kind: str
    latest: str
    # The number that stands before values, to the schema they were written by.
    by_id: tuple[tuple[int, str], ...]


def read_subject(get: Callable[[str], Any], subject: str) -> Subject:
    """Ask for all versions; `get` returns the document at a path of the registry's.

    UsageError if the subject is not there, or has schemas that refer to others.
    """
    base = f"/subjects/{quote(subject, safe='')}/versions"
    try:
        versions = sorted(get(base))[-VERSIONS_MAX:]
        documents = [get(f"{base}/{number}") for number in versions]
        found = [(int(it["id"]), str(it["schema"])) for it in documents]
    except (KeyError, TypeError, ValueError) as error:
        raise KctlError(f"The schema registry gives no sense for {subject}: {error!r}") from None
    if not found:
        raise UsageError(f"The schema registry has no version of {subject}")
    if any(it.get("references") for it in documents):
        raise UsageError(
            f"Schemas of {subject} refer to others", hint="give a whole one by --schema FILE"
        )
    kind = str(documents[-1].get("schemaType") or "AVRO")
    return Subject(kind, found[-1][1], tuple(found))
