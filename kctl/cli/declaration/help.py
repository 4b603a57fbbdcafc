"""Formats `--help` of kctl, of a group and of a command from their declarations.

The shared options are listed apart from a command's own.
"""

import textwrap
from collections.abc import Iterable, Sequence
from enum import Enum

from kctl.cli.declaration.command import SHARED_OPTIONS
from kctl.cli.declaration.declarations import CommandGroup
from kctl.cli.declaration.spec import CommandSpec, ParameterSpec, command_spec, summary

# Spaces before a term, and the widest term with its description on the same line.
_INDENT = 2
_TERM_WIDTH_MAX = 30
_HELP_ROW = ("-h, --help", "Show this message and exit.")


def command_help(spec: CommandSpec, width: int) -> str:
    """Return the text of `kctl PATH --help`, wrapped at `width` columns."""
    usage = ["kctl", *spec.path, "[OPTIONS]", *map(usage_of, spec.arguments)]
    own = [it for it in spec.options if it.name not in SHARED_OPTIONS]
    shared = [it for it in spec.options if it.name in SHARED_OPTIONS]
    arguments = [(usage_of(it), description_of(it)) for it in spec.arguments]
    rows = [(term_of(it), description_of(it)) for it in own]
    return _assemble(
        f"Usage: {' '.join(usage)}",
        _body(spec.help, width),
        _section("Arguments", arguments, width),
        _section("Options", [*rows, _HELP_ROW], width),
        _section("Shared options", [(term_of(it), description_of(it)) for it in shared], width),
    )


def group_help(name: str, text: str, group: CommandGroup, width: int) -> str:
    """Return the text of `kctl GROUP --help`, wrapped at `width` columns."""
    commands = [
        (spec.path[0], summary(spec.help))
        for it in group.commands.values()
        for spec in [command_spec((it.name,), it.help, it.callback)]
    ]
    return _assemble(
        f"Usage: kctl {name} COMMAND [OPTIONS]",
        _body(text, width),
        _section("Commands", commands, width),
        _section("Options", [_HELP_ROW], width),
    )


def root_help(text: str, commands: Iterable[tuple[str, str]], width: int) -> str:
    """Return the text of `kctl --help`, wrapped at `width` columns."""
    options = [
        ("--version", "Show the version and exit."),
        ("--help-json", "Describe all commands, or one, as JSON."),
        _HELP_ROW,
    ]
    return _assemble(
        "Usage: kctl COMMAND [OPTIONS]",
        _body(text, width),
        _section("Commands", list(commands), width),
        _section("Options", options, width),
    )


def _assemble(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"


def usage_of(argument: ParameterSpec) -> str:
    """Return how an argument is written: `NAME...`, `[FILE]`."""
    name = argument.metavar.removesuffix("...") + ("..." if argument.is_list else "")
    return name if argument.is_required else f"[{name}]"


def term_of(option: ParameterSpec) -> str:
    """Return the names of an option and its value: `-p, --partitions N`."""
    # Short names first, so that they align.
    names = ", ".join(sorted(option.options, key=len))
    if not names.startswith(("-", "--")) or names.startswith("--"):
        names = f"    {names}"
    if option.is_flag:
        return names
    return f"{names} {option.metavar or '|'.join(option.choices) or 'VALUE'}"


def description_of(parameter: ParameterSpec) -> str:
    """Return the help of an option or argument, with its default."""
    text = parameter.help
    default = parameter.default
    if default is None or default is False or "[default:" in text:
        return text
    shown = default.value if isinstance(default, Enum) else default
    return f"{text} [default: {shown}]"


def _body(text: str, width: int) -> str:
    """Wrap the paragraphs of `text`; a paragraph after a `\\b` keeps its lines."""
    blocks = []
    for paragraph in text.strip().split("\n\n"):
        lines = paragraph.strip("\n").split("\n")
        if lines[0] == "\b":
            blocks.append(textwrap.indent("\n".join(lines[1:]), " " * _INDENT))
        else:
            blocks.append(_wrap(" ".join(lines), width, " " * _INDENT))
    return "\n\n".join(blocks)


def _section(title: str, rows: Sequence[tuple[str, str]], width: int) -> str:
    if not rows:
        return ""
    fitting = [len(term) for term, _ in rows if len(term) <= _TERM_WIDTH_MAX]
    column = _INDENT + max(fitting, default=0) + 2
    lines = [f"{title}:"]
    for term, description in rows:
        start = " " * _INDENT + term
        text = _wrap(description, width, " " * column)
        if len(term) <= _TERM_WIDTH_MAX:
            lines.append(start + text[len(start) :])
        else:
            lines += [start, text]
    return "\n".join(lines)


def _wrap(text: str, width: int, indent: str) -> str:
    return textwrap.fill(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
