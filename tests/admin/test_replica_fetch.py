"""A replica is copied from a broker that wants a login, with the caller's credentials."""

import pytest
from confluent_kafka import Producer

from kctl.admin.replica_fetch import fetch_replica
from kctl.client.security import ClientSecurity
from kctl.errors import UnreachableError
from kctl.model import TopicPartition
from kctl.runtime.real import make_runtime
from kctl.runtime.trace import NullTrace
from kctl.testing.kafka_broker import KafkaBroker

TIMEOUT_MS = 5_000


def test_replica_of_a_secured_broker_is_copied(tmp_path):
    with KafkaBroker(topics=["orders"], users={"alice": "secret"}) as broker:
        config = broker.client_config("alice", mechanism="SCRAM-SHA-256")
        producer = Producer(config)
        producer.produce("orders", b"x")
        assert producer.flush(120) == 0

        def copied(security):
            runtime = make_runtime(NullTrace())
            work = fetch_replica(
                runtime, runtime.disk, (broker.host, broker.port), TopicPartition("orders", 0),
                [(0, None)], str(tmp_path), TIMEOUT_MS, security,
            )  # fmt: skip
            try:
                return runtime.scheduler.run_until(runtime.scheduler.spawn(work))
            finally:
                runtime.scheduler.close()

        assert copied(ClientSecurity.of(config)).batches == 1
        with pytest.raises(UnreachableError):
            copied(ClientSecurity())
