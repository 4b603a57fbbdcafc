"""Ids of delegation tokens are arguments of commands."""

import dataclasses

import pytest

from kctl.broker.delegation_tokens import DelegationTokens
from kctl.configs.broker_config import BrokerConfig
from kctl.store.cluster_store import ClusterStore
from kctl.store.database import ZnodeDatabase
from kctl.store.embedded import EmbeddedStore
from tests.support.real_loop import real_loop


class ScriptedEntropy:
    """Returns what the test wrote down, and zeros after that."""

    def __init__(self, *draws):
        self.draws = list(draws)

    def random_bytes(self, count):
        return self.draws.pop(0) if self.draws else bytes(count)


@pytest.fixture
def loop():
    with real_loop() as loop:
        yield loop


def test_an_id_does_not_begin_with_a_hyphen(loop):
    """Commands took one of 64 tokens for an option."""
    entropy = ScriptedEntropy(b"\xf8" + bytes(15), b"\xf8" + bytes(15), b"\x04" + bytes(15))
    runtime = dataclasses.replace(loop.runtime, entropy=entropy)
    store = ClusterStore(EmbeddedStore(loop.runtime, ZnodeDatabase.in_memory(loop.runtime)))
    config = BrokerConfig({"delegation.token.master.key": "the key of all brokers"})
    tokens = DelegationTokens(runtime, config, store)
    loop.run(store.ensure_persistent_paths())
    loop.run(tokens.start())

    created = loop.run(tokens.create("User:alice", (), -1))

    assert created.information.token_id == "BA" + "A" * 20
