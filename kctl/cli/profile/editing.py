"""Edits the text of config.toml: adds, replaces and removes profiles and sets the default.

The file is the user's: comments and everything that is not concerned stay as they are. Each edit is
checked by parsing the result; a file that is written in a form that the edit does not handle (such
as profiles as inline tables) is left alone, with a UsageError.
"""

import re
import tomllib
from collections.abc import Collection, Mapping
from typing import Any

from kctl.errors import UsageError
from kctl.lines import split_kept_lines

Profile = Mapping[str, str | bool | list[str]]

_TABLE = re.compile(r"^\s*\[+\s*([^\]]+?)\s*\]+")
_DEFAULT = re.compile(r"^\s*default_profile\s*=")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def with_profile(text: str, name: str, profile: Profile) -> str:
    """Return `text` with the profile `name`, which replaces one of that name."""
    wanted = tomllib.loads(text)
    wanted.setdefault("profiles", {})[name] = dict(profile)
    before = _without(text, name).rstrip("\n")
    lines = [f"[profiles.{_key(name)}]"]
    lines += [f"{_key(key)} = {_value(value)}" for key, value in profile.items()]
    return _checked((f"{before}\n\n" if before else "") + "\n".join(lines) + "\n", wanted)


def with_settings(text: str, name: str, removed: Collection[str], added: Mapping[str, str]) -> str:
    """Return `text` in which the profile `name` has lost the settings `removed`, in Kafka's
    spelling wherever they stand in it, and has the settings `added`."""
    wanted = tomllib.loads(text)
    profile = wanted["profiles"][name]
    _drop(profile, (), removed)
    profile.update(added)
    lines = [f"{_key(key)} = {_value(value)}\n" for key, value in added.items()]
    kept: list[str] = []
    table: list[str] = []
    for line in split_kept_lines(text):
        header = _TABLE.match(line)
        table = _path(header[1]) if header else table
        is_own = table[:2] == ["profiles", name]
        if is_own and not header and _setting((*table[2:], *_assigned(line))) in removed:
            continue
        if is_own and header and len(table) > 2 and lines:
            # The profile has no table of its own before its first subtable.
            kept += [f"[profiles.{_key(name)}]\n", *lines, "\n"]
            lines = []
        kept.append(line if line.endswith("\n") else f"{line}\n")
        if is_own and header and len(table) == 2:
            kept += lines
            lines = []
    return _checked("".join(kept), wanted)


def _drop(table: dict[str, Any], path: tuple[str, ...], removed: Collection[str]) -> None:
    for key in list(table):
        if isinstance(table[key], dict):
            _drop(table[key], (*path, key), removed)
        elif _setting((*path, key)) in removed:
            del table[key]


def _setting(path: tuple[str, ...]) -> str:
    """Return Kafka's spelling of the keys that lead to a setting; those of no setting give ""."""
    return ".".join(path[1:] if path[:1] == ("properties",) else path)


def _assigned(line: str) -> list[str]:
    """Return the keys of a line such as `sasl.password = "x"`; none for any other line."""
    if "=" not in line:
        return []
    try:
        return _only_path(tomllib.loads(line))
    except tomllib.TOMLDecodeError:
        return []


def without_profile(text: str, name: str) -> str:
    """Return `text` without the profile `name`; it is no longer the default either."""
    wanted = tomllib.loads(text)
    del wanted["profiles"][name]
    left = _without(text, name)
    if wanted.get("default_profile") == name:
        del wanted["default_profile"]
        left = "".join(it for it in split_kept_lines(left) if not _DEFAULT.match(it))
    return _checked(left, wanted)


def with_default(text: str, name: str) -> str:
    """Return `text` with `name` as the default profile."""
    wanted = tomllib.loads(text)
    wanted["default_profile"] = name
    rest = "".join(it for it in split_kept_lines(text) if not _DEFAULT.match(it))
    return _checked(f"default_profile = {_value(name)}\n{rest}", wanted)


def _without(text: str, name: str) -> str:
    """Return `text` without the tables of the profile `name`."""
    kept, is_in_profile = [], False
    for line in split_kept_lines(text):
        header = _TABLE.match(line)
        if header:
            path = _path(header[1])
            is_in_profile = path[:2] == ["profiles", name]
        if not is_in_profile:
            kept.append(line)
    return "".join(kept)


def _path(header: str) -> list[str]:
    """Return the keys of a table's header, such as `profiles."a.b"`."""
    try:
        return _only_path(tomllib.loads(f"[{header}]"))
    except tomllib.TOMLDecodeError:
        return []


def _only_path(value: Any) -> list[str]:
    """Return the keys that lead to the only value in nested tables."""
    keys = []
    while isinstance(value, dict) and value:
        [key] = value
        keys.append(key)
        value = value[key]
    return keys


def _checked(text: str, wanted: Mapping[str, Any]) -> str:
    try:
        found: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        found = {}
    if {"profiles": {}, **found} != {"profiles": {}, **wanted}:
        raise UsageError(
            "The file of profiles has a form that kctl cannot edit", hint="edit it by hand"
        )
    return text


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _value(name)


def _value(value: str | bool | list[str]) -> str:
    import json

    # A JSON text without surrogates or DEL is a TOML basic string; both lists are the same.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
