"""Merges a newer Avro schema into that of a table: the table keeps its columns and gains new ones.

Records and enums are merged by their names, wherever they are used. A field that both schemas have
keeps the table's type, and becomes nullable if it is in the newer schema. A field that the newer
schema lacks becomes nullable, and one that only the newer schema has is added, nullable unless it
has a default. A value whose own schema does not resolve to the result is not decoded.
"""

import json
from typing import Any

from kctl.export.avro import parsed_schema


def merged_avro(table: str, newest: str) -> str:
    """Return the schema by which a table of schema `table` reads values of `newest` and older ones.

    The schemas are the texts of Avro schemas. The result is `table` itself if nothing is added,
    also where the two have different names. UsageError for an invalid schema.
    """
    before, after = parsed_schema(table)[1], parsed_schema(newest)[1]
    old: dict[str, Any] = {}
    new: dict[str, Any] = {}
    _collect(before, old)
    _collect(after, new)
    if not isinstance(before, dict) or before.get("name") not in new:
        return table
    merged = _Merge(old, new).of(before)
    return table if merged == _Merge(old, {}).of(before) else json.dumps(merged)


def _collect(schema: Any, found: dict[str, Any]) -> None:
    """Add the definitions of named types in a parsed schema to `found`."""
    if isinstance(schema, list):
        for branch in schema:
            _collect(branch, found)
    elif isinstance(schema, dict):
        if "name" in schema:
            found[schema["name"]] = schema
        for key in ("type", "items", "values"):
            _collect(schema.get(key), found)
        for field in schema.get("fields", ()):
            _collect(field["type"], found)


class _Merge:
    """Copies schemas with the merged definition of each named type where it is first used."""

    def __init__(self, old: dict[str, Any], new: dict[str, Any]) -> None:
        self._old, self._new = old, new
        self._defined: set[str] = set()

    def of(self, schema: Any) -> Any:
        """Return the copy of a parsed schema."""
        if isinstance(schema, list):
            return [self.of(branch) for branch in schema]
        if isinstance(schema, str):
            is_named = schema in self._old or schema in self._new
            return self._named(schema) if is_named else schema
        if "name" in schema:
            return self._named(schema["name"])
        copy = dict(schema)
        for key in ("type", "items", "values"):
            if key in copy and copy[key] not in ("array", "map"):
                copy[key] = self.of(copy[key])
        return copy

    def _named(self, name: str) -> Any:
        if name in self._defined:
            return name
        self._defined.add(name)
        old, new = self._old.get(name), self._new.get(name)
        first: dict[str, Any] = old or new or {}
        kept = {key: item for key, item in first.items() if not key.startswith("__")}
        second = new if old and new and old["type"] == new["type"] else None
        if "fields" in kept:
            kept["fields"] = self._fields(kept["fields"], second and second["fields"])
        elif "symbols" in kept and second:
            kept["symbols"] = list(dict.fromkeys([*kept["symbols"], *second["symbols"]]))
        return kept

    def _fields(self, first: list[Any], second: list[Any] | None) -> list[Any]:
        by_name = {field["name"]: field for field in second or first}
        fields = []
        for field in first:
            copy = field | {"type": self.of(field["type"])}
            other = by_name.get(field["name"])
            is_null = other is None or _has_null(other["type"])
            fields.append(_nullable(copy) if is_null and not _has_null(copy["type"]) else copy)
            if other is None and "default" not in copy:
                fields[-1] = _nullable(copy)
        known = {field["name"] for field in first}
        for field in second or ():
            if field["name"] not in known:
                copy = field | {"type": self.of(field["type"])}
                fields.append(copy if "default" in copy else _nullable(copy))
        return fields


def _has_null(schema: Any) -> bool:
    return schema == "null" or (isinstance(schema, list) and "null" in schema)


def _nullable(field: dict[str, Any]) -> dict[str, Any]:
    """Return a field that may be null and has a default: its own, or null."""
    kind = field["type"]
    branches = [it for it in (kind if isinstance(kind, list) else [kind]) if it != "null"]
    if field.get("default") is not None:
        # A default is of the first type.
        return field | {"type": [*branches, "null"]}
    return field | {"type": ["null", *branches], "default": None}
