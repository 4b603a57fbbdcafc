"""`kctl __complete topics|groups|profiles PREFIX [connection options]`: names for completion.

The shell waits for this command at every press of Tab. It therefore does not load Typer, ends after
half a second at the latest, and on any error prints nothing and exits with 0.
"""

import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kctl.cli.connect import ConnectOptions

# KCTL_COMPLETION_TIMEOUT_MS overrides it, for distant clusters.
TIMEOUT_MS = 500
_OPTIONS = {
    "-b": "bootstrap_server",
    "--bootstrap-server": "bootstrap_server",
    "-C": "profile",
    "--profile": "profile",
    "--command-config": "command_config",
}


def complete(argv: Sequence[str]) -> int:
    """Print the names that begin with the prefix, one per line, and return 0."""
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
        signal.setitimer(signal.ITIMER_REAL, _timeout_ms() / 1000)
    try:
        names = find_names(argv)
    except BaseException:  # noqa: BLE001 - an error message would disturb the prompt
        return 0
    sys.stdout.write("".join(f"{name}\n" for name in names))
    return 0


def _timeout_ms() -> int:
    return int(os.environ.get("KCTL_COMPLETION_TIMEOUT_MS", TIMEOUT_MS))


def find_names(argv: Sequence[str]) -> list[str]:
    """Return the names of the kind `argv[0]` that begin with `argv[1]`."""
    kind, prefix = argv[0], argv[1] if len(argv) > 1 else ""
    options = _connect_options(argv[2:])
    local = {"profiles": _profiles, "commands": _commands}.get(kind)
    names = local() if local is not None else _cluster_names(kind, options)
    return [name for name in names if name.startswith(prefix)]


def _cluster_names(kind: str, options: "ConnectOptions") -> list[str]:
    from kctl.admin.names import list_names
    from kctl.cli.output import Output
    from kctl.cli.session import Session

    session = Session(options, Output(color=False))
    return session.run(lambda admin: list_names(admin, kind))


def _commands() -> list[str]:
    from kctl.cli.app import COMMANDS

    return [row.name for row in COMMANDS]


def _profiles() -> list[str]:
    from kctl.cli.connect import config_file, read_config

    return sorted(read_config(config_file(os.environ)).get("profiles", {}))


def _connect_options(argv: Sequence[str]) -> "ConnectOptions":
    from kctl.cli.connect import ConnectOptions

    values: dict[str, Any] = {"timeout": f"{_timeout_ms()}ms"}
    properties = []
    position = 0
    while position < len(argv):
        name, equals, value = argv[position].partition("=")
        if not equals:
            position += 1
            value = argv[position] if position < len(argv) else ""
        if name in ("-X", "--property"):
            properties.append(value)
        elif name in _OPTIONS:
            values[_OPTIONS[name]] = value
        position += 1
    return ConnectOptions(properties=properties, **values)
