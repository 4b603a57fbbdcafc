"""The kctl command: a table of subcommands, of which only the one asked for is imported.

Every row of COMMANDS names a module. A group's module has `app` (a typer.Typer with its commands);
a single command's module has `register(app)`, which adds itself to the app it is given. Rows that
were not asked for are stubs with a line of help, so that `kctl --help` imports none of them.
"""

import importlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from shutil import get_terminal_size
from typing import Annotated, Any

import typer

from kctl import __version__
from kctl.cli import quick
from kctl.cli.failures import INTERRUPTED, report
from kctl.cli.output import Output
from kctl.cli.spec import HELP_OPTIONS, CommandSpec
from kctl.errors import UsageError


@dataclass(frozen=True, slots=True)
class CommandRow:
    """A subcommand of kctl: its name, its module and its line in `kctl --help`."""

    name: str
    module: str
    help: str
    is_group: bool = False
    # The command of the group that is meant where an option follows the group's name.
    default: str | None = None


COMMANDS = (
    CommandRow("serve", "kctl.cli.serve", "Run a Kafka broker, with nothing else to start."),
    CommandRow(
        "topic", "kctl.cli.topic", "Create, list, describe, alter, delete topics.", is_group=True
    ),
    CommandRow("config", "kctl.cli.config", "Describe and alter settings.", is_group=True),
    CommandRow(
        "group", "kctl.cli.group", "List, describe, reset, delete consumer groups.", is_group=True
    ),
    CommandRow(
        "txn", "kctl.cli.txn", "List, describe, abort transactions; find what hangs.", is_group=True
    ),
    CommandRow("produce", "kctl.cli.produce", "Write records to a topic."),
    CommandRow("consume", "kctl.cli.consume", "Read records of a topic."),
    CommandRow("elect", "kctl.cli.elect", "Elect leaders of partitions.", is_group=True),
    CommandRow(
        "reassign",
        "kctl.cli.reassign",
        "Plan, execute, watch moves of replicas.",
        is_group=True,
        default="kafka",
    ),
    CommandRow(
        "throttle", "kctl.cli.throttle", "Show, change, end throttles of moves.", is_group=True
    ),
    CommandRow(
        "cluster", "kctl.cli.cluster", "Show brokers, check a cluster's health.", is_group=True
    ),
    CommandRow(
        "broker",
        "kctl.cli.broker",
        "Describe, drain, stop, restart brokers.",
        is_group=True,
    ),
    CommandRow("dump-log", "kctl.cli.dump_log", "Show what is in the files of a log directory."),
    CommandRow("verify-log", "kctl.cli.verify_log", "Check the files of a log directory."),
    CommandRow("repair-log", "kctl.cli.repair_log", "Mend the files of a log directory."),
    CommandRow("export", "kctl.cli.export", "Turn records into tables, without a broker or with."),
    CommandRow("import", "kctl.cli.import_table", "Turn the rows of a table into records."),
    CommandRow("completion", "kctl.cli.completion", "Print the completion script of a shell."),
)

_HELP = """Apache Kafka 2.7 in a pip install, and the toolkit to run the real one.

\b
Exit status:
  0    done
  1    something failed, be it one item of many
  2    misuse: nothing was done
  3    no broker reachable, or no answer in time
  130  interrupted

\b
Examples:
  kctl serve --data-dir /tmp/kafka
  kctl topic create orders -p 3
  echo hello | kctl produce orders
  kctl consume orders --from-beginning --exit
"""

WIDTH_MAX = 100
# Of Typer, and in its place.
_WORDS = {
    "Value error, ": "",
    "Input should be a valid integer, unable to parse string as an integer": "not a whole number",
    "Got unexpected extra argument(s)": "Too many arguments:",
    "Got unexpected extra arguments": "Too many arguments:",
    "Got unexpected extra argument": "Too many arguments:",
}
# Options that may stand before the subcommand too; those with a value take the next word.
_SHARED_VALUE_OPTIONS = (
    "-b", "--bootstrap-server", "-X", "--property", "-C", "--profile", "--command-config",
    "--timeout", "-o", "--output",
)  # fmt: skip


def build_app(words: Sequence[str], *, everything: bool = False) -> typer.Typer:
    """The Typer app for the command line `words`; with `everything`, no stubs."""
    wanted = next((word for word in words if not word.startswith("-")), None)
    app = typer.Typer(
        name="kctl",
        help=_HELP,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_root)
    for row in COMMANDS:
        if everything or row.name == wanted:
            _add(app, row)
        else:
            app.command(row.name, help=row.help)(_stub)
    return app


def hoist_shared_options(words: Sequence[str]) -> list[str]:
    """Move shared options that stand before the subcommand behind it: `kctl -b X topic list`
    means `kctl topic list -b X`."""
    leading: list[str] = []
    position = 0
    while position < len(words) and words[position].startswith("-"):
        name, equals, _ = words[position].partition("=")
        if name not in _SHARED_VALUE_OPTIONS or position + 1 >= len(words):
            break
        take = 1 if equals else 2
        leading += words[position : position + take]
        position += take
    rest = list(words[position:])
    if not leading or not rest:
        return list(words)
    groups = {row.name for row in COMMANDS if row.is_group}
    depth = 2 if rest[0] in groups and len(rest) > 1 and not rest[1].startswith("-") else 1
    return rest[:depth] + leading + rest[depth:]


def spell_out(words: Sequence[str]) -> list[str]:
    """`kctl reassign --execute ...` means `kctl reassign kafka --execute ...`."""
    defaults = {row.name: row.default for row in COMMANDS}
    default = defaults.get(words[0]) if words else None
    if default and len(words) > 1 and words[1].startswith("-") and words[1] not in HELP_OPTIONS:
        return [words[0], default, *words[1:]]
    return list(words)


def run(words: Sequence[str]) -> int:
    """Run the command line `words`; the exit status."""
    # NumPy's threads for matrices, of which there are none here, take longer to start than NumPy.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        return _run(words)
    except OSError as error:  # commands report their own; this is the help, unprinted
        return report(error)


def _run(words: Sequence[str]) -> int:
    arguments = spell_out(hoist_shared_options(words))
    app = build_app(arguments)
    outcome = quick.run(app, arguments)
    if isinstance(outcome, int):
        return outcome
    text = help_text(app, arguments, outcome, min(get_terminal_size().columns, WIDTH_MAX))
    if text is not None:
        Output().write(text)
        return 0
    try:
        status = app(args=arguments, prog_name="kctl", standalone_mode=False)
    except SystemExit as stop:
        status = stop.code
    except Exception as error:  # Typer's own, of one module or another with its version
        if isinstance(error.__cause__, KeyboardInterrupt):
            return INTERRUPTED
        if not hasattr(error, "format_message"):
            raise
        return report(_misuse(error))
    return status if isinstance(status, int) else 0


def _misuse(error: Any) -> UsageError:
    """What Typer says of a command line, in the words of all other errors."""
    message = str(error.format_message()).removesuffix(".")
    for words, ours in _WORDS.items():
        message = message.replace(words, ours)
    context = getattr(error, "ctx", None)
    return UsageError(message, hint=f"see {context.command_path if context else 'kctl'} --help")


def help_text(
    app: typer.Typer, words: Sequence[str], command: CommandSpec | None, width: int
) -> str | None:
    """The help that `words` ask for, if they do: of `command`, of a group, or of kctl."""
    from kctl.cli import help as texts

    if command is not None:
        return texts.command_help(command, width)
    if not words or words[0] in HELP_OPTIONS:
        return texts.root_help(_HELP, [(row.name, row.help) for row in COMMANDS], width)
    groups = {it.name: it.typer_instance for it in app.registered_groups}
    group = groups.get(words[0])
    if group is not None and (len(words) == 1 or words[1] in HELP_OPTIONS):
        about = next(row.help for row in COMMANDS if row.name == words[0])
        return texts.group_help(words[0], about, group, width)
    return None


def _add(app: typer.Typer, row: CommandRow) -> None:
    module = importlib.import_module(row.module)
    if row.is_group:
        app.add_typer(module.app, name=row.name, help=row.help, no_args_is_help=True)
    else:
        module.register(app)


def _stub() -> None:
    raise typer.Exit(2)


def _show_version(wanted: bool) -> None:
    if wanted:
        Output().write(f"kctl {__version__}\n")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Only carries --version."""
    _ = version
