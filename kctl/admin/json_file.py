"""Reads the JSON files of Apache Kafka's tools: an object with a version and a list of objects.

Pure. Every error is a UsageError that names the file and the place.
"""

import json
from typing import Any

from kctl.errors import UsageError

# The only version of these formats.
VERSION = 1
# The largest number of objects in a file.
ITEMS_MAX = 1_000_000


def parse_items(text: str, key: str, name: str, hint: str) -> list[dict[str, Any]]:
    """Return the list of objects `key` in the file `name`, whose content is `text`; `hint` names
    the tool whose format it is."""
    items = _document(text, name).get(key)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise UsageError(f'{name} has no list "{key}"', hint=hint)
    if len(items) > ITEMS_MAX:
        raise UsageError(f"{name} has {len(items)} items: more than {ITEMS_MAX}")
    return items


def typed(item: dict[str, Any], key: str, kind: type, place: str) -> Any:
    """Return the value of `key`; raise UsageError, naming `place`, unless its type is `kind`."""
    value = item.get(key)
    if type(value) is not kind:
        raise UsageError(f"{place}: {key} is missing or of the wrong type")
    return value


def _document(text: str, name: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise UsageError(f"{name} is not a JSON object")
    if document.get("version", VERSION) != VERSION:
        raise UsageError(f"{name} has version {document['version']}; only {VERSION} is supported")
    return document
