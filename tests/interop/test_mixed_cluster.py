"""kctl and Apache Kafka 2.7.2 brokers in one cluster, on one ZooKeeper.

Brokers 1 and 2 are kctl, 3 and 4 are Apache Kafka. The first to start is the controller.
"""

import pytest

from tests.support.mixed_cluster import FORMAT, Load, MixedCluster
from tests.support.zookeeper import running_zookeeper

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def cluster(tmp_path):
    (tmp_path / "zookeeper").mkdir()
    with running_zookeeper(tmp_path / "zookeeper") as zookeeper:
        cluster = MixedCluster(tmp_path, zookeeper.address)
        try:
            yield cluster
        finally:
            cluster.close()


@pytest.mark.parametrize("first", ["kctl", "apache"])
def test_brokers_of_both_kinds_lead_follow_and_replace_each_other(cluster, first):
    """
    controller: `first`; partition 0 led by kctl, 1 by Apache, both on 1, 2 and 3
    load; each leader stops in good order and comes back; load in between
    """
    cluster.start(*((1, 2, 3) if first == "kctl" else (3, 1, 2)))
    cluster.create("t", [1, 2, 3], [3, 1, 2])
    expected = []
    cluster.produce("t", 2000, "a")
    expected += [f"a-{n}" for n in range(2000)]
    for gone, tag in ((3, "b"), (1, "c")):
        cluster.stop(gone)
        cluster.until(
            lambda gone=gone: all(
                leader not in (gone, -1) and gone not in isr
                for leader, isr in cluster.metadata("t").values()
            ),
            f"{gone} replaced",
        )
        cluster.produce("t", 1000, tag)
        expected += [f"{tag}-{n}" for n in range(1000)]
        cluster.start(gone)
        cluster.until(
            lambda: all(isr == (1, 2, 3) for _, isr in cluster.metadata("t").values()),
            f"{gone} in sync again",
        )
    assert sorted(cluster.values("t", 2)) == sorted(expected)
    cluster.close()
    for partition in (0, 1):
        assert len({cluster.digest(broker, "t", partition) for broker in (1, 2, 3)}) == 1


@pytest.mark.parametrize("release", ["0.10.2", "1.1", "2.3", "2.5"])
def test_a_cluster_that_speaks_an_older_protocol_is_led_by_either_kind(cluster, release):
    """
    as in the middle of an upgrade: requests of the controller in older versions, ISRs by znode
    Apache is controller; stops, and kctl takes over; comes back
    a topic is deleted under each of them
    """
    cluster.settings["inter.broker.protocol.version"] = release
    cluster.settings[FORMAT] = release
    cluster.start(3, 1)
    cluster.create("t", [1, 3], [3, 1])
    cluster.create("gone", [1, 3])
    cluster.produce("t", 1000, "a")
    cluster.delete("gone")
    cluster.stop(3)
    cluster.until(lambda: set(cluster.metadata("t").values()) == {(1, (1,))}, "3 replaced")
    cluster.produce("t", 1000, "b")
    cluster.start(3)
    cluster.until(lambda: {isr for _, isr in cluster.metadata("t").values()} == {(1, 3)}, "back")
    cluster.create("gone", [3, 1])
    cluster.delete("gone")
    cluster.stop(1)
    cluster.until(lambda: set(cluster.metadata("t").values()) == {(3, (3,))}, "1 replaced")
    cluster.produce("t", 1000, "c")
    cluster.start(1)
    cluster.until(lambda: {isr for _, isr in cluster.metadata("t").values()} == {(1, 3)}, "back")
    assert len(cluster.values("t", 2)) == 3000
    cluster.close()
    for partition in (0, 1):
        assert len({cluster.digest(broker, "t", partition) for broker in (1, 3)}) == 1


@pytest.mark.parametrize("failing", [1, 3], ids=["kctl", "apache"])
def test_a_log_directory_fails_and_the_other_kind_takes_over(cluster, failing):
    """
    the other kind is controller; partitions 0 and 1 are led by `failing`, in two directories
    the directory of partition 0 is gone: it is led elsewhere, partition 1 is not
    """
    other = 4 - failing
    dirs = [cluster.directory / str(failing) / name for name in ("one", "two")]
    cluster.start(other)
    cluster.settings["log.dirs"] = ",".join(map(str, dirs))
    cluster.settings["replica.high.watermark.checkpoint.interval.ms"] = "200"
    cluster.start(failing)
    cluster.create("t", [failing, other], [failing, other])
    cluster.produce("t", 500, "a")
    (lost,) = [path for path in dirs if (path / "t-0").exists()]
    assert not (lost / "t-1").exists()
    lost.rename(lost.with_suffix(".gone"))
    cluster.produce("t", 500, "b")
    cluster.until(lambda: cluster.metadata("t")[0] == (other, (other,)), "replaced")
    cluster.produce("t", 500, "c")
    assert cluster.metadata("t")[1] == (failing, (1, 3))
    assert len(cluster.values("t", 2)) == 1500
    cluster.stop(failing)
    lost.with_suffix(".gone").rename(lost)
    cluster.start(failing)
    cluster.until(lambda: {isr for _, isr in cluster.metadata("t").values()} == {(1, 3)}, "back")


def test_every_role_is_killed_under_load_and_nothing_acknowledged_is_lost(cluster):
    """
    partition 0 led by kctl 1, partition 1 by Apache 3, partition 2 by kctl 2; 1 is controller
    kill -9 of 1 (leader, controller), 3 (leader), 2; each comes back before the next goes
    """
    cluster.start(1, 2, 3)
    cluster.create("t", [1, 2, 3], [3, 1, 2], [2, 3, 1])
    with Load(cluster.client_settings(), "t", 3) as load:
        for victim in (1, 3, 2):
            before = load.count
            cluster.until(lambda before=before: load.count > before + 500, "load")
            cluster.kill(victim)
            cluster.until(
                lambda victim=victim: all(
                    leader not in (victim, -1) and victim not in isr
                    for leader, isr in cluster.metadata("t").values()
                ),
                f"{victim} replaced",
            )
            before = load.count
            cluster.until(lambda before=before: load.count > before + 500, "load continues")
            cluster.start(victim)
            cluster.until(
                lambda: all(isr == (1, 2, 3) for _, isr in cluster.metadata("t").values()),
                f"{victim} in sync again",
            )
    assert load.failed == []
    found = cluster.partitions("t", 3)
    for partition, acknowledged in load.acknowledged.items():
        # Each once, in the order sent; what was never answered may be there, too.
        assert found[partition] == sorted(set(found[partition]))
        assert set(acknowledged) <= set(found[partition])
    cluster.close()
    for partition in range(3):
        assert len({cluster.digest(broker, "t", partition) for broker in (1, 2, 3)}) == 1
