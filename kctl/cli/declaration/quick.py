"""Quick parsing: parses command lines in plain form without loading click.

A command line that consists of known options, their values and arguments is parsed here, from the
same declarations. For anything else (an unknown option, a missing argument, `--`, combined short
options) `parse` returns None, and click parses the line or reports the error. A test checks that
both return the same values.
"""

import re
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from kctl.cli.declaration.declarations import CommandGroup, Exit
from kctl.cli.declaration.spec import HELP_OPTIONS, CommandSpec, ParameterSpec, command_spec

_NUMBER = re.compile(r"-?\d{1,18}")


class _Unclear(Exception):
    """Raised for a command line that only click parses."""


class _HelpWanted(Exception):
    """Raised for --help in the place of an option."""


def find_command(
    app: CommandGroup, argv: Sequence[str], group: tuple[str, ...] = ()
) -> CommandSpec | None:
    """Return the command that `argv` begins with, or None."""
    if not argv:
        return None
    command = app.commands.get(argv[0])
    if command is not None:
        return command_spec((*group, argv[0]), command.help, command.callback)
    inner = app.groups.get(argv[0])
    return find_command(inner, argv[1:], (*group, argv[0])) if inner is not None else None


def parse(spec: CommandSpec, argv: Sequence[str]) -> dict[str, Any] | None:
    """Return the keyword arguments for the command's function, or None to leave `argv` to click."""
    try:
        given, positional = _split(spec, argv)
        values = {it.name: _option_value(it, given.get(it.name)) for it in spec.options}
        return values | _argument_values(spec.arguments, positional)
    except _Unclear:
        return None


def run(app: CommandGroup, argv: Sequence[str]) -> int | CommandSpec | None:
    """Run the command and return its exit status.

    If nothing was run, return the CommandSpec of the command whose help is requested, or None to
    leave `argv` to click.
    """
    spec = find_command(app, argv)
    if spec is None:
        return None
    try:
        values = parse(spec, argv[len(spec.path) :])
    except _HelpWanted:
        return spec
    if values is None:
        return None
    callback: Callable[..., None] = spec.callback
    try:
        callback(**values)
    except Exit as stop:
        return stop.exit_code
    return 0


def _split(spec: CommandSpec, argv: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the values of each given option by its name, and the arguments."""
    by_name = {name: option for option in spec.options for name in option.options}
    given: dict[str, list[str]] = {}
    positional: list[str] = []
    rest = iter(argv)
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


def _argument_values(arguments: Sequence[ParameterSpec], texts: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for argument in arguments:
        if argument.is_list and argument is not arguments[-1]:
            raise _Unclear
        taken = texts if argument.is_list else texts[:1]
        texts = [] if argument.is_list else texts[1:]
        if not taken:
            if argument.is_required:
                raise _Unclear
            values[argument.name] = argument.default
        else:
            converted = [_convert(argument, text) for text in taken]
            values[argument.name] = converted if argument.is_list else converted[0]
    if texts:
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
