"""A broker without --metrics-port has nothing of a meter in the path of its requests.

The same facts are read of a broker with a meter, in which each of them is different: what the test
looks at is what a meter changes.
"""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from kctl.broker.broker import Broker
from kctl.broker.metering.metering import Metering
from kctl.broker.replication.replica_manager import ReplicaManager
from kctl.configs.broker_config import BrokerConfig
from kctl.model import Endpoint
from kctl.protocol.messages.metadata import MetadataRequest
from kctl.runtime.real.process_facts import precise_seconds, process_facts
from kctl.runtime.watchdog import TURN_MS_MAX
from kctl.store.database import ZnodeDatabase
from kctl.store.embedded import EmbeddedStore
from tests.support.broker_cluster import BrokerCluster

# What `kctl serve` runs, in a process of its own: prints the modules that it has loaded once the
# broker is ready.
SERVE = """
import json, sys
from kctl.broker.process import run_broker
from kctl.configs.broker_config import BrokerConfig
from kctl.metrics.metrics_port import MetricsPort
from kctl.model import Endpoint

def ready(broker):
    print(json.dumps(sorted(sys.modules)))
    stop[0]()

stop = []
directory, is_measured = sys.argv[1], sys.argv[2] == "measured"
port = MetricsPort(Endpoint("127.0.0.1", 0)) if is_measured else None
run_broker(
    BrokerConfig({"broker.id": "0", "log.dirs": directory + "/logs",
                  "listeners": "PLAINTEXT://127.0.0.1:0"}),
    store_directory=directory + "/store", on_ready=ready, metrics=port,
    attach=lambda runtime, end, broker: stop.append(end),
)
"""
ONLY_FOR_METRICS = (
    "kctl.broker.metering.meter",
    "kctl.broker.metering.metering",
    "kctl.broker.metering.measured_replicas",
    "kctl.metrics.histogram",
    "kctl.metrics.http_server",
    "h11",
)


@pytest.fixture
def cluster(tmp_path):
    cluster = BrokerCluster(tmp_path)
    yield cluster
    cluster.close()


def start(cluster, *, is_measured):
    """Return a broker that serves, and the runtime that it was given."""
    runtime = cluster.runtime
    endpoint = Endpoint("127.0.0.1", 0)
    metering = Metering(runtime, endpoint, precise_seconds, process_facts) if is_measured else None
    config = BrokerConfig(
        {
            "broker.id": "0",
            "log.dirs": str(cluster.directory / "logs"),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.flush.interval.messages": "1",
        }
    )
    given = runtime if metering is None else metering.runtime
    store = EmbeddedStore(runtime, ZnodeDatabase.in_memory(runtime))
    broker = cluster.brokers[0] = Broker(given, config, None, store=store, metering=metering)
    cluster.run(broker.start())
    return broker


def what_a_request_meets(cluster, broker):
    """Read every part that a meter stands around, and what a request itself gets."""
    server, services = broker.server, broker.services
    requests = []
    answer = server.on_request
    server.on_request = lambda request: (requests.append(request), answer(request))
    cluster.run(cluster.router().send_to_any(MetadataRequest(topics=[])))
    server.on_request = answer
    watchdog = cluster.runtime.scheduler.watchdog
    return SimpleNamespace(
        fast_paths=[getattr(it, "__qualname__", it) for it in server.fast_paths.values()],
        watchers=server.request_watchers,
        counter=server.request_counter,
        request_times=[it.times for it in requests],
        replica_manager=type(services.replica_manager),
        on_replicated=services.replica_manager.on_replicated,
        trace=broker.runtime.trace,
        on_turn=watchdog._on_turn,
        are_short_turns_noted=watchdog.noted_seconds < TURN_MS_MAX / 1000,
        fsync_clock=services.log_manager._group_commit._clock,
    )


def test_without_metrics_the_parts_of_a_broker_are_the_plain_ones(cluster):
    met = what_a_request_meets(cluster, start(cluster, is_measured=False))
    assert met.fast_paths == ["PlainProduce.answer", "PlainCommits.answer"]
    assert met.watchers == ()
    assert met.counter is None
    assert met.request_times
    assert set(met.request_times) == {None}
    assert met.replica_manager is ReplicaManager
    assert met.on_replicated is None
    assert met.trace is cluster.runtime.trace
    assert met.on_turn is None
    assert not met.are_short_turns_noted
    assert met.fsync_clock is None


def test_with_metrics_each_of_these_parts_is_different(cluster):
    met = what_a_request_meets(cluster, start(cluster, is_measured=True))
    assert not {"PlainProduce.answer", "PlainCommits.answer"} & set(met.fast_paths)
    assert met.watchers
    assert met.counter is not None
    assert met.replica_manager is not ReplicaManager
    assert met.on_replicated is not None
    assert met.trace is not cluster.runtime.trace
    assert met.on_turn is not None
    assert met.are_short_turns_noted
    assert met.fsync_clock is not None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "measured"])
def test_only_a_broker_with_metrics_loads_their_modules(tmp_path, kind):
    command = [sys.executable, "-c", SERVE, str(tmp_path), kind]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert [it for it in ONLY_FOR_METRICS if (it in loaded) != (kind == "measured")] == []
