"""A runtime, and a store in memory."""

import pytest

from kctl.runtime.real import make_runtime
from kctl.store.cluster_store import ClusterStore
from kctl.store.embedded import EmbeddedStore


@pytest.fixture
def runtime():
    runtime = make_runtime()
    yield runtime
    runtime.scheduler.close()


@pytest.fixture
def cluster(runtime):
    return ClusterStore(EmbeddedStore.in_memory(runtime))
