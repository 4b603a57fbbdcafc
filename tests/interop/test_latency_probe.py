"""A probe of `kctl metrics serve` on Apache Kafka 2.7.2."""

import pytest

from kctl.admin.admin_client import AdminClient
from kctl.admin.latency_probe import LatencyProbe
from tests.support.real_loop import real_loop

pytestmark = pytest.mark.kafka


def test_records_are_written_and_read_back(apache_broker, topic):
    host, _, port = apache_broker.rpartition(":")
    with real_loop() as loop:
        admin = AdminClient.connect(loop.runtime, [(host, int(port))], 30_000)
        probe = LatencyProbe(admin, topic, interval_ms=100)
        try:
            loop.run(probe.open(creates=True, say=lambda _: None))
            probe.start()
            loop.until(lambda: all(it.read.count >= 3 for it in probe.partitions))
            [found] = loop.run(admin.topics.describe([topic]))
            assert len(found.partitions) == len(probe.partitions) == 1
            assert all(it.written.count >= 3 for it in probe.partitions)
            assert all(it.failed_writes == it.failed_reads == 0 for it in probe.partitions)
        finally:
            probe.close()
            admin.close()
