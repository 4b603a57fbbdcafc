"""Describes commands as plain values, for other programs: what `--help-json` prints."""

from collections.abc import Iterable
from enum import Enum
from typing import Any

from kctl import __version__
from kctl.cli.declaration.command import SHARED_OPTIONS
from kctl.cli.declaration.spec import CommandSpec, ParameterSpec, summary
from kctl.cli.failures import ExitStatus

_TYPES = {str: "text", int: "integer", bool: "flag"}


def tree_document(specs: Iterable[CommandSpec]) -> dict[str, Any]:
    """Return the description of kctl and of the commands `specs`."""
    return {
        "name": "kctl",
        "version": __version__,
        "exit_statuses": [{"status": int(it), "meaning": it.meaning} for it in ExitStatus],
        "commands": [command_document(spec) for spec in specs],
    }


def command_document(spec: CommandSpec) -> dict[str, Any]:
    """Return the description of one command."""
    names = {it.name for it in spec.parameters}
    text, examples = description_and_examples(spec.help)
    return {
        "command": " ".join(("kctl", *spec.path)),
        "summary": summary(spec.help),
        "description": text,
        "connects": {"profile", "expect_cluster"} <= names,
        "changes": "dry_run" in names,
        "arguments": [_parameter(it) for it in spec.arguments],
        "options": [
            {
                "names": list(it.options),
                "shared": it.name in SHARED_OPTIONS,
                **_parameter(it),
            }
            for it in spec.options
        ],
        "examples": examples,
    }


def description_and_examples(text: str) -> tuple[str, list[str]]:
    """Return a help text without its examples, and the examples as command lines.

    >>> description_and_examples("Do it.\\n\\n\\b\\nExamples:\\n  kctl do\\n  kctl do -n")
    ('Do it.', ['kctl do', 'kctl do -n'])
    """
    paragraphs, examples = [], []
    for paragraph in text.strip().split("\n\n"):
        lines = [line for line in paragraph.split("\n") if line != "\b"]
        if lines and lines[0].strip() == "Examples:":
            examples += _joined(lines[1:])
        else:
            paragraphs.append("\n".join(lines))
    return "\n\n".join(paragraphs), examples


def _joined(lines: Iterable[str]) -> list[str]:
    """Return command lines, each with the lines that continue it after a backslash."""
    joined: list[str] = []
    continues = False
    for line in lines:
        text = line.strip()
        if continues:
            joined[-1] = joined[-1][:-1] + text
        else:
            joined.append(text)
        continues = text.endswith("\\")
    return joined


def _parameter(it: ParameterSpec) -> dict[str, Any]:
    default = it.default.value if isinstance(it.default, Enum) else it.default
    return {
        "metavar": it.metavar or None,
        "help": it.help,
        "type": "choice" if it.choices else _TYPES.get(it.value_type, "text"),
        "choices": list(it.choices),
        "required": it.is_required,
        "repeatable": it.is_list,
        "default": default,
    }
