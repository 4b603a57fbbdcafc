"""A ZooKeeper that does not answer is reported with its address, long before the timeout."""

import pytest

from kctl.errors import UnreachableError
from kctl.store import zookeeper
from kctl.store.zookeeper import COMMAND_CONNECTION_MS_MAX, ZooKeeperStore

NOWHERE = "127.0.0.1:1"
COMMANDS = [
    ["group", "list", "--zookeeper", NOWHERE],
    ["group", "describe", "g", "--zookeeper", NOWHERE],
    ["group", "rebalance-check", "g", "--zookeeper", NOWHERE],
    ["reassign", "list", "--zookeeper", NOWHERE],
]


@pytest.fixture
def waits(monkeypatch):
    """How long each command would wait for its ZooKeeper, which does not answer."""
    waits = []

    async def open_store(runtime, connect_string, *, connection_timeout_ms, **_):
        waits.append(connection_timeout_ms)
        raise UnreachableError(f"no answer from ZooKeeper at {connect_string}")

    monkeypatch.setattr(ZooKeeperStore, "open", open_store)
    return waits


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_command_waits_for_it_as_long_as_for_a_slow_operation(kctl, waits, words):
    ran = kctl(*words)
    assert (ran.status, NOWHERE in ran.err) == (3, True)
    kctl(*words, "--timeout", "100ms")
    assert waits == [COMMAND_CONNECTION_MS_MAX, 100]


def test_its_address_is_in_the_message(kctl, monkeypatch):
    monkeypatch.setattr(zookeeper, "COMMAND_CONNECTION_MS_MAX", 50)
    ran = kctl("group", "list", "--zookeeper", NOWHERE)
    assert ran.status == 3
    assert "no answer from ZooKeeper at 127.0.0.1:1" in ran.err
