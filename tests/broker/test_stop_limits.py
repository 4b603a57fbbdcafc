"""A stop does not wait for a controller that does not answer."""

from kctl.broker import broker as broker_module
from kctl.broker.cluster_member import ClusterMember
from kctl.runtime.future import sleep
from tests.support.broker_cluster import running_brokers

LIMIT_MS, ANSWERED_AFTER_MS = 200, 30_000


def test_a_controlled_shutdown_that_is_not_answered_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(broker_module, "CONTROLLED_SHUTDOWN_MS_MAX", LIMIT_MS)
    steps = []

    async def leave(_member):
        steps.append("asked")
        await sleep(cluster.runtime.scheduler, ANSWERED_AFTER_MS)
        steps.append("answered")

    monkeypatch.setattr(ClusterMember, "leave", leave)
    with running_brokers(tmp_path) as cluster:
        cluster.start(1, 2)
        cluster.stop(2)
        assert steps == ["asked"]
        # The other steps are taken all the same.
        assert (tmp_path / "broker-2" / ".kafka_cleanshutdown").exists()
        store = cluster.brokers[1].services.cluster_store
        cluster.until(
            lambda: cluster.run(store.children("/brokers/ids")) == ["1"],
            "the end of the registration",
        )
