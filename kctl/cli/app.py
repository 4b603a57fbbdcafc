"""The kctl command: a table of subcommands, of which only the requested one is imported.

Each row of COMMANDS names a module. The module of a group has `app`, a CommandGroup with the
group's commands; the module of a single command has `register(app)`, which adds the command to the
given app. The other rows become stubs with a line of help, so `kctl --help` imports no command.
"""

import importlib
import os
from collections.abc import Sequence

from kctl import __version__
from kctl.cli.declaration import quick
from kctl.cli.declaration.command import CommandFailed
from kctl.cli.declaration.declarations import CommandGroup, Exit
from kctl.cli.declaration.spec import HELP_JSON_OPTION, HELP_OPTIONS, CommandSpec
from kctl.cli.failures import ExitStatus, report
from kctl.cli.output import Output, terminal_width
from kctl.errors import StorageError, UsageError
from kctl.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class CommandRow:
    """A subcommand of kctl: its name, its module and its line in `kctl --help`."""

    name: str
    module: str
    help: str
    is_group: bool = False
    # The group's command that runs if an option directly follows the group's name.
    default: str | None = None


COMMANDS = (
    CommandRow(
        "serve", "kctl.cli.serve.commands", "Run a Kafka broker; it needs no other process."
    ),
    CommandRow(
        "topic",
        "kctl.cli.topic.commands",
        "Create, list, describe, alter, purge, delete topics.",
        is_group=True,
    ),
    CommandRow("config", "kctl.cli.config", "Describe and alter settings.", is_group=True),
    CommandRow("apply", "kctl.cli.apply", "Make topics, configs and quotas what a file declares."),
    CommandRow(
        "group",
        "kctl.cli.group.commands",
        "List, describe, reset, delete consumer groups; show their lag.",
        is_group=True,
    ),
    CommandRow("top", "kctl.cli.top.commands", "Show rates and lags of a cluster, live."),
    CommandRow(
        "txn",
        "kctl.cli.txn",
        "List, describe, abort transactions; find hanging ones.",
        is_group=True,
    ),
    CommandRow("acl", "kctl.cli.acl", "List, add, remove, check ACLs.", is_group=True),
    CommandRow("user", "kctl.cli.user", "List, create, delete users of SCRAM.", is_group=True),
    CommandRow(
        "quota",
        "kctl.cli.quota",
        "List, set, remove quotas of clients; show who is throttled.",
        is_group=True,
    ),
    CommandRow("token", "kctl.cli.token", "Manage delegation tokens.", is_group=True),
    CommandRow("produce", "kctl.cli.records.produce", "Write records to a topic."),
    CommandRow("consume", "kctl.cli.records.consume", "Read records of a topic."),
    CommandRow("records", "kctl.cli.records.delete", "Delete the oldest records.", is_group=True),
    CommandRow("elect", "kctl.cli.elect", "Elect leaders of partitions.", is_group=True),
    CommandRow(
        "reassign",
        "kctl.cli.reassign.commands",
        "Plan, execute, watch reassignments of replicas.",
        is_group=True,
        default="kafka",
    ),
    CommandRow(
        "throttle",
        "kctl.cli.throttle.commands",
        "Show, change, remove throttles of reassignments.",
        is_group=True,
    ),
    CommandRow(
        "cluster",
        "kctl.cli.cluster.commands",
        "Show brokers, controllers, features; check a cluster's health.",
        is_group=True,
    ),
    CommandRow(
        "metrics",
        "kctl.cli.metrics",
        "Serve the metrics of any cluster to Prometheus.",
        is_group=True,
    ),
    CommandRow(
        "broker",
        "kctl.cli.broker.commands",
        "Describe, demote, drain, stop, restart brokers.",
        is_group=True,
    ),
    CommandRow(
        "dump-log", "kctl.cli.log.dump_log", "Show the contents of the files of a log directory."
    ),
    CommandRow(
        "log-stats",
        "kctl.cli.log.partition_log_stats",
        "Show sizes, ages and compression of logs, by topic.",
    ),
    CommandRow("verify-log", "kctl.cli.log.verify_log", "Check the files of a log directory."),
    CommandRow("repair-log", "kctl.cli.log.repair_log", "Repair the files of a log directory."),
    CommandRow(
        "export", "kctl.cli.tables.export", "Export records to tables, with or without a broker."
    ),
    CommandRow("import", "kctl.cli.tables.import_table", "Import the rows of a table as records."),
    CommandRow(
        "mirror",
        "kctl.cli.mirror.commands",
        "Copy topics to another cluster, with an exact map of offsets.",
        is_group=True,
    ),
    CommandRow(
        "link",
        "kctl.cli.link.commands",
        "Follow topics of another cluster with the same offsets and bytes.",
        is_group=True,
    ),
    CommandRow("api", "kctl.cli.api", "Send one request of any API as JSON."),
    CommandRow(
        "profile",
        "kctl.cli.profile.commands",
        "Add, use, list, show, remove profiles of clusters.",
        is_group=True,
    ),
    CommandRow("demo", "kctl.cli.demo.commands", "Show what kctl does, on a cluster of its own."),
    CommandRow(
        "completion", "kctl.cli.completion", "Print or install the completion script of a shell."
    ),
    CommandRow("man", "kctl.cli.man", "Write the manual pages."),
    CommandRow("help", "kctl.cli.help_command", "Show the help of a command."),
    CommandRow("version", "kctl.cli.version", "Show the version and the build."),
)

_STATUSES = "\n".join(f"  {status:<3}  {status.meaning}" for status in ExitStatus)
_HELP = f"""Apache Kafka 2.7 in a pip install, and the toolkit to run the real one.

\b
Exit status:
{_STATUSES}

\b
Examples:
  kctl serve --data-dir /tmp/kafka
  kctl topic create orders -p 3
  echo hello | kctl produce orders
  kctl consume orders --from-beginning --exit
"""

WIDTH_MAX = 100
VERSION_OPTION = "--version"
# Options with a value that are also accepted before the subcommand.
_SHARED_VALUE_OPTIONS = (
    "-b", "--bootstrap-server", "-X", "--property", "-C", "--profile", "--command-config",
    "--expect-cluster", "--timeout", "-o", "--output",
)  # fmt: skip


def build_app(argv: Sequence[str], *, everything: bool = False) -> CommandGroup:
    """Return the commands for the command line `argv`; `everything` imports all of them."""
    wanted = next((word for word in argv if not word.startswith("-")), None)
    app = CommandGroup()
    for row in COMMANDS:
        if everything or row.name == wanted:
            _add(app, row)
        else:
            app.add_command(row.name, row.help, _stub)
    return app


def hoist_shared_options(argv: Sequence[str]) -> list[str]:
    """Move shared options from before the subcommand to after it.

    `kctl -b X topic list` becomes `kctl topic list -b X`.
    """
    leading: list[str] = []
    position = 0
    while position < len(argv) and argv[position].startswith("-"):
        name, equals, _ = argv[position].partition("=")
        if name not in _SHARED_VALUE_OPTIONS or position + 1 >= len(argv):
            break
        take = 1 if equals else 2
        leading += argv[position : position + take]
        position += take
    rest = list(argv[position:])
    if not leading or not rest:
        return list(argv)
    groups = {row.name for row in COMMANDS if row.is_group}
    depth = 2 if rest[0] in groups and len(rest) > 1 and not rest[1].startswith("-") else 1
    return rest[:depth] + leading + rest[depth:]


def insert_default_command(argv: Sequence[str]) -> list[str]:
    """Insert a group's default command if an option directly follows the group's name.

    `kctl reassign --execute ...` becomes `kctl reassign kafka --execute ...`.
    """
    defaults = {row.name: row.default for row in COMMANDS}
    default = defaults.get(argv[0]) if argv else None
    if default and len(argv) > 1 and argv[1].startswith("-") and argv[1] not in HELP_OPTIONS:
        return [argv[0], default, *argv[1:]]
    return list(argv)


def run(argv: Sequence[str]) -> int:
    """Run the command line `argv` and return the exit status."""
    # kctl multiplies no matrices, and starting the threads for that takes longer than NumPy itself.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        return _run(argv)
    except (OSError, StorageError) as error:  # a command reports its own: the help failed
        return report(error)


def _run(argv: Sequence[str]) -> int:
    if HELP_JSON_OPTION in argv:
        return _show_help_json([it for it in argv if it != HELP_JSON_OPTION])
    arguments = insert_default_command(hoist_shared_options(argv))
    if arguments and arguments[0] == VERSION_OPTION:
        Output().write(f"kctl {__version__}\n")
        return 0
    app = build_app(arguments)
    try:
        return _execute(app, arguments)
    except UsageError as misuse:
        return report(misuse)
    except CommandFailed as failure:
        command = quick.find_command(app, arguments)
        path = " ".join(("kctl", *(command.path if command else ())))
        return report(failure.error, usage_hint=f"see {path} --help")


def _show_help_json(path: Sequence[str]) -> int:
    """Print the description of the commands that begin with `path`, for programs."""
    import json

    from kctl.cli.declaration.document import tree_document
    from kctl.cli.declaration.spec import commands_of

    words = tuple(path)
    every = commands_of(build_app([], everything=True))
    chosen = [spec for spec in every if spec.path[: len(words)] == words]
    if not chosen:
        return report(UsageError(f"No such command: {' '.join(words)}", hint="see kctl --help"))
    Output().write(json.dumps(tree_document(chosen), indent=2, ensure_ascii=False) + "\n")
    return 0


def _execute(app: CommandGroup, arguments: Sequence[str]) -> int:
    width = min(terminal_width(), WIDTH_MAX)
    outcome = quick.run(app, arguments)
    if isinstance(outcome, int):
        return outcome
    text = help_text(app, arguments, outcome, width)
    if text is None:
        from kctl.cli.declaration import click_parser

        outcome = click_parser.run(app, arguments)
        if isinstance(outcome, int):
            return outcome
        text = help_text(app, arguments, outcome, width)
    Output().write(text or "")
    return 0


def help_text(
    app: CommandGroup, argv: Sequence[str], command: CommandSpec | None, width: int
) -> str | None:
    """Return the help of `command`, or the help of a group or of kctl that `argv` requests.

    Return None if `argv` requests no help.
    """
    from kctl.cli.declaration import help as texts

    if command is not None:
        return texts.command_help(command, width)
    if not argv or argv[0] in HELP_OPTIONS:
        return texts.root_help(_HELP, [(row.name, row.help) for row in COMMANDS], width)
    group = app.groups.get(argv[0])
    if group is not None and (len(argv) == 1 or argv[1] in HELP_OPTIONS):
        about = next(row.help for row in COMMANDS if row.name == argv[0])
        return texts.group_help(argv[0], about, group, width)
    return None


def _add(app: CommandGroup, row: CommandRow) -> None:
    module = importlib.import_module(row.module)
    if row.is_group:
        app.add_group(row.name, module.app)
    else:
        module.register(app)


def _stub() -> None:
    raise Exit(2)
