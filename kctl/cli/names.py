"""`kctl __complete topics|groups|profiles PREFIX [connection options]`: names for the shell.

The shell waits for this at every press of Tab, so: no command framework is loaded, everything has
half a second in all, and whatever goes wrong prints nothing and exits with 0.
"""

import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.cli.connect import ConnectOptions

TIMEOUT_MS = 500
_OPTIONS = {
    "-b": "bootstrap_server",
    "--bootstrap-server": "bootstrap_server",
    "-C": "profile",
    "--profile": "profile",
    "--command-config": "command_config",
}


def complete(words: Sequence[str]) -> int:
    """Print the names that begin with the prefix, one a line; always 0."""
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
        signal.setitimer(signal.ITIMER_REAL, TIMEOUT_MS / 1000)
    try:
        names = find(words)
    except BaseException:  # noqa: BLE001 - an error text in a prompt helps nobody
        return 0
    sys.stdout.write("".join(f"{name}\n" for name in names))
    return 0


def find(words: Sequence[str]) -> list[str]:
    """The names that `words` ask for."""
    kind, prefix = words[0], words[1] if len(words) > 1 else ""
    options = _connect_options(words[2:])
    names = _profiles() if kind == "profiles" else _ask(kind, options)
    return [name for name in names if name.startswith(prefix)]


def _ask(kind: str, options: "ConnectOptions") -> list[str]:
    from kctl.cli.output import Output
    from kctl.cli.session import Session

    session = Session(options, Output(color=False))
    if kind == "groups":
        return session.run(_groups)
    return session.run(_topics)


async def _topics(admin: "AdminClient") -> list[str]:
    return [topic.name for topic in await admin.topics.list_topics() if not topic.is_internal]


async def _groups(admin: "AdminClient") -> list[str]:
    return [group.group_id for group in (await admin.groups.list_groups()).groups]


def _profiles() -> list[str]:
    from kctl.cli.connect import config_file, read_config

    return sorted(read_config(config_file(os.environ)).get("profiles", {}))


def _connect_options(words: Sequence[str]) -> "ConnectOptions":
    from kctl.cli.connect import ConnectOptions

    values: dict[str, Any] = {"timeout": f"{TIMEOUT_MS}ms"}
    properties = []
    position = 0
    while position < len(words):
        name, equals, value = words[position].partition("=")
        if not equals:
            position += 1
            value = words[position] if position < len(words) else ""
        if name in ("-X", "--property"):
            properties.append(value)
        elif name in _OPTIONS:
            values[_OPTIONS[name]] = value
        position += 1
    return ConnectOptions(properties=properties, **values)
