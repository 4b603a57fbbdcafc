"""Waits for a standalone Spark master before a driver's JVM is started for it: Spark itself is
silent for a minute, and then reports a stopped context.

Spark: org.apache.spark.deploy.client.StandaloneAppClient
"""

import re
import socket
import time
from collections.abc import Callable

from kctl.errors import UnreachableError, UsageError

MASTER_TIMEOUT_SECONDS = 15.0
_CONNECT_SECONDS = 2.0
_PAUSE_SECONDS = 0.5
_STANDALONE = "spark://"
_ADDRESS = re.compile(r"(?:\[([^\]]+)\]|([^:\[\]]+)):(\d{1,5})")
_OTHERS = re.compile(r"local(\[.+\])?|local-cluster\[.+\]|yarn|k8s://.+|spark://.+")
_HINT = "e.g. local[4], spark://head:7077, yarn, k8s://https://host:443"


def is_local(master: str) -> bool:
    """Return whether tasks run on this machine, in processes of this installation."""
    return master == "local" or master.startswith("local[")


def wait_for_master(
    master: str,
    say: Callable[[str], object],
    timeout_seconds: float | None = None,
) -> None:
    """Return as soon as a master of a standalone cluster accepts a connection; at once for other
    kinds of masters.

    `say` is called once with what is being waited for. UsageError if `master` is not a master's
    URL; UnreachableError after the timeout.
    """
    addresses = _addresses(master)
    seconds = MASTER_TIMEOUT_SECONDS if timeout_seconds is None else timeout_seconds
    deadline = time.monotonic() + seconds
    is_said = False
    while addresses:
        error = _first_error(addresses)
        if error is None:
            return
        if time.monotonic() > deadline:
            raise UnreachableError(
                f"Spark's master {master} is unreachable: {error}",
                hint="--master must be its URL, as its log and its web page name it",
            )
        if not is_said:
            say(f"waiting for Spark's master {master}: {error}")
            is_said = True
        time.sleep(_PAUSE_SECONDS)


def _addresses(master: str) -> list[tuple[str, int]]:
    if _OTHERS.fullmatch(master) is None:
        raise UsageError(f"--master is not the URL of a Spark master: {master}", hint=_HINT)
    if not master.startswith(_STANDALONE):
        return []
    found = [_ADDRESS.fullmatch(it) for it in master.removeprefix(_STANDALONE).split(",")]
    addresses = [(it[1] or it[2], int(it[3])) for it in found if it is not None]
    if len(addresses) < len(found) or any(not 0 < port < 65536 for _host, port in addresses):
        raise UsageError(f"--master is not the URL of a Spark master: {master}", hint=_HINT)
    return addresses


def _first_error(addresses: list[tuple[str, int]]) -> str | None:
    """Return why none of them can be reached; None if one can."""
    errors = []
    for address in addresses:
        try:
            with socket.create_connection(address, _CONNECT_SECONDS):
                return None
        except OSError as error:
            errors.append(error.strerror or str(error))
    return errors[0]
