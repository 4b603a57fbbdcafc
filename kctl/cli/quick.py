"""Quick parsing: command lines in plain form are understood without Typer's machinery.

Typer builds a validator for every parameter, and the library it uses for that takes longer to load
than most commands take to run. So a line in which every word is a known option, its value or an
argument is parsed here, from the same declarations; for anything else (help, an unknown option, a
missing argument, `--`, glued short options) this answers None, and Typer parses it and words the
error. Whatever is understood here, Typer understands alike: a test compares them.
"""

import re
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import typer

from kctl.cli.spec import HELP_OPTIONS, CommandSpec, ParameterSpec, command_spec

_NUMBER = re.compile(r"-?\d{1,18}")


class _Unclear(Exception):
    """Not for us."""


class _HelpWanted(Exception):
    """--help, where an option may stand."""


def find_command(
    app: typer.Typer, words: Sequence[str], group: tuple[str, ...] = ()
) -> CommandSpec | None:
    """The command that the first words name."""
    if not words:
        return None
    for info in app.registered_commands:
        if info.name == words[0] and info.callback is not None:
            return command_spec((*group, words[0]), info.help or "", info.callback)
    for inner in app.registered_groups:
        if inner.name == words[0] and inner.typer_instance is not None:
            return find_command(inner.typer_instance, words[1:], (*group, words[0]))
    return None


def parse(spec: CommandSpec, words: Sequence[str]) -> dict[str, Any] | None:
    """The keywords of the command's function; None: ask Typer."""
    try:
        given, positional = _split(spec, words)
        values = {it.name: _option_value(it, given.get(it.name)) for it in spec.options}
        return values | _argument_values(spec.arguments, positional)
    except _Unclear:
        return None


def run(app: typer.Typer, words: Sequence[str]) -> int | CommandSpec | None:
    """Run the command and return its exit status. None: nothing was done, ask Typer; the command's
    spec: nothing was done, its help is wanted."""
    spec = find_command(app, words)
    if spec is None:
        return None
    try:
        values = parse(spec, words[len(spec.path) :])
    except _HelpWanted:
        return spec
    if values is None:
        return None
    callback: Callable[..., None] = spec.callback
    try:
        callback(**values)
    except typer.Exit as stop:
        return stop.exit_code
    return 0


def _split(spec: CommandSpec, words: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """The values of each option that is given, and the arguments."""
    by_name = {name: option for option in spec.options for name in option.options}
    given: dict[str, list[str]] = {}
    positional: list[str] = []
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word == "-":
            positional.append(word)
            continue
        if word in HELP_OPTIONS:
            raise _HelpWanted
        name, equals, value = word.partition("=")
        option = by_name.get(name)
        if option is None or (equals and (option.is_flag or not name.startswith("--"))):
            raise _Unclear
        if option.is_flag:
            value = ""
        elif not equals:
            value = next(rest, "--")
            if value.startswith("-") and value != "-" and not _NUMBER.fullmatch(value):
                raise _Unclear
        given.setdefault(option.name, []).append(value)
    return given, positional


def _option_value(option: ParameterSpec, texts: list[str] | None) -> Any:
    if texts is None:
        if option.is_required:
            raise _Unclear
        return option.default
    if option.is_flag:
        return True
    if option.is_list:
        return [_convert(option, text) for text in texts]
    return _convert(option, texts[-1])


def _argument_values(arguments: Sequence[ParameterSpec], words: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for argument in arguments:
        if argument.is_list and argument is not arguments[-1]:
            raise _Unclear
        taken = words if argument.is_list else words[:1]
        words = [] if argument.is_list else words[1:]
        if not taken:
            if argument.is_required:
                raise _Unclear
            values[argument.name] = argument.default
        else:
            converted = [_convert(argument, text) for text in taken]
            values[argument.name] = converted if argument.is_list else converted[0]
    if words:
        raise _Unclear
    return values


def _convert(parameter: ParameterSpec, text: str) -> Any:
    kind = parameter.value_type
    if kind is str:
        return text
    if kind is int and _NUMBER.fullmatch(text):
        return int(text)
    if issubclass(kind, Enum) and text in parameter.choices:
        return kind(text)
    raise _Unclear
