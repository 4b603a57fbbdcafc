"""moto's server of AWS interfaces, as a process of its own; tests skip where moto is missing."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.waiting import wait_for

# What moto accepts; nothing of this leaves the machine.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "eu-west-1", "AWS_EC2_METADATA_DISABLED": "true",
}  # fmt: skip


@contextmanager
def running_moto() -> Iterator[str]:
    """Yield the URL of a server on loopback."""
    pytest.importorskip("moto", reason="moto is not installed: pip install 'moto[server]'")
    pytest.importorskip(
        "flask", reason="moto's server is not installed: pip install 'moto[server]'"
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(
        command, env=os.environ | CREDENTIALS, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: _listens(port), lambda: "moto does not listen")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
