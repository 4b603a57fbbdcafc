"""Makes manual pages in troff from the declarations of the commands: kctl(1), kctl-topic-create(1).

The macros are those of man(7), which man-db, mandoc and groff format alike.
"""

from collections.abc import Sequence

from kctl import __version__
from kctl.cli.declaration.command import SHARED_OPTIONS
from kctl.cli.declaration.document import description_and_examples
from kctl.cli.declaration.help import description_of, term_of, usage_of
from kctl.cli.declaration.spec import CommandSpec, ParameterSpec, summary
from kctl.cli.failures import ExitStatus


def man_pages(specs: Sequence[CommandSpec]) -> dict[str, str]:
    """Return the text of every page by the name of its file: that of kctl, and one a command."""
    pages = {"kctl.1": _overview(specs)}
    for spec in specs:
        pages[f"{'-'.join(('kctl', *spec.path))}.1"] = _page(spec)
    return pages


def _overview(specs: Sequence[CommandSpec]) -> str:
    lines = [
        *_head("kctl", "Apache Kafka 2.7 in a pip install, and its toolkit"),
        ".SH SYNOPSIS",
        ".B kctl",
        ".I COMMAND",
        "[OPTIONS]",
        ".SH COMMANDS",
    ]
    for spec in specs:
        name = "-".join(("kctl", *spec.path))
        lines += [".TP", f".BR {_text(name)} (1)", _text(summary(spec.help))]
    lines += [".SH EXIT STATUS"]
    for status in ExitStatus:
        lines += [".TP", f".B {int(status)}", _text(status.meaning)]
    lines += [
        ".SH ENVIRONMENT",
        *_entry("KCTL_BOOTSTRAP_SERVER", "The bootstrap brokers, without -b."),
        *_entry("KCTL_PROFILE", "The profile, without -C."),
        *_entry("KCTL_EXPECT_CLUSTER", "The id that the cluster must have."),
        *_entry("KCTL_DEBUG", "1: errors with their tracebacks."),
        ".SH FILES",
        *_entry("~/.config/kctl/config.toml", "The profiles; see kctl-profile-add(1)."),
    ]
    return "\n".join(lines) + "\n"


def _page(spec: CommandSpec) -> str:
    text, examples = description_and_examples(spec.help)
    own = [it for it in spec.options if it.name not in SHARED_OPTIONS]
    shared = [it for it in spec.options if it.name in SHARED_OPTIONS]
    usage = " ".join(["[OPTIONS]", *map(usage_of, spec.arguments)])
    lines = [
        *_head("-".join(("kctl", *spec.path)), summary(spec.help)),
        ".SH SYNOPSIS",
        f".B {_text(' '.join(('kctl', *spec.path)))}",
        _text(usage),
        ".SH DESCRIPTION",
    ]
    for paragraph in text.split("\n\n"):
        lines += _paragraph(paragraph)
    lines += _parameters("ARGUMENTS", [(usage_of(it), it) for it in spec.arguments])
    lines += _parameters("OPTIONS", [(term_of(it).strip(), it) for it in own])
    lines += _parameters("SHARED OPTIONS", [(term_of(it).strip(), it) for it in shared])
    if examples:
        lines += [".SH EXAMPLES", ".nf", *map(_text, examples), ".fi"]
    return "\n".join([*lines, ".SH SEE ALSO", ".BR kctl (1)"]) + "\n"


def _head(name: str, what: str) -> list[str]:
    title = f'.TH "{_text(name.upper())}" 1 "" "kctl {_text(__version__)}" "kctl"'
    return [title, ".SH NAME", f"{_text(name)} \\- {_text(what.removesuffix('.'))}"]


def _paragraph(text: str) -> list[str]:
    lines = text.split("\n")
    if any(line.startswith(" ") for line in lines):
        return [".PP", ".nf", *map(_text, lines), ".fi"]
    return [".PP", _text(" ".join(lines))]


def _parameters(title: str, rows: Sequence[tuple[str, ParameterSpec]]) -> list[str]:
    if not rows:
        return []
    return [
        f".SH {title}",
        *(line for term, it in rows for line in _entry(term, description_of(it))),
    ]


def _entry(term: str, text: str) -> list[str]:
    return [".TP", f".B {_text(term)}", _text(text) if text else "\\&"]


def _text(text: str) -> str:
    r"""Escape what troff reads as a request, an escape or a typographic hyphen.

    >>> _text(".x --dry-run \\n")
    '\\&.x \\-\\-dry\\-run \\en'
    """
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
