"""Twenty kinds of loss between a source and its mirror, each against `kctl mirror run`: it stops,
names what was lost and exits with 1; `--on-loss skip` and `restart` go on, as documented."""

import shutil
from collections.abc import Callable
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from kctl.admin.configs import ConfigChanges, ConfigResource, ResourceType
from kctl.model import TopicPartition
from kctl.testing.kafka_broker import KafkaBroker
from tests.mirror.conftest import Clusters
from tests.mirror.test_commands import kctl  # noqa: F401
from tests.mirror.test_kinds_of_loss import delete_records, delete_topic, recreate, values
from tests.support.local_cluster import LocalCluster
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow

COPIED = values(0, 20)
# Small segments, of which retention deletes one after the other.
SEGMENTS = {"segment.bytes": "200"}


class Kind(NamedTuple):
    """A kind of loss, after records 0 to 19 were copied."""

    lose: Callable[[Clusters, str], object]
    # What stderr says about it.
    says: str
    # What the target has after records 0 to 19; None: the option makes no difference.
    skip: list[bytes] | None
    restart: list[bytes] | None


def some_are_deleted(clusters, topic):
    clusters.produce(topic, values(20, 40))
    delete_records(clusters, "source", topic, 30)


def all_are_deleted(clusters, topic):
    clusters.produce(topic, values(20, 40))
    delete_records(clusters, "source", topic, 40)


def one_is_deleted(clusters, topic):
    clusters.produce(topic, values(20, 22))
    delete_records(clusters, "source", topic, 21)


def deleted_and_more_follow(clusters, topic):
    all_are_deleted(clusters, topic)
    clusters.produce(topic, values(40, 43))


def a_transaction_is_deleted(clusters, topic):
    clusters.produce(topic, values(20, 40), transaction=topic)
    delete_records(clusters, "source", topic, 30)


def retention_by_time(clusters, topic):
    alter(clusters, topic, "segment.bytes", SEGMENTS["segment.bytes"])
    one_by_one(clusters, topic, 20, 30)
    alter(clusters, topic, "retention.ms", "1")
    wait_for_start(clusters, topic, 30)


def retention_by_size(clusters, topic):
    alter(clusters, topic, "segment.bytes", SEGMENTS["segment.bytes"])
    one_by_one(clusters, topic, 20, 30)
    alter(clusters, topic, "retention.bytes", "1")
    wait_for_start(clusters, topic, 28)


def one_by_one(clusters, topic, first, end):
    for value in values(first, end):
        clusters.produce(topic, [value])


def recreated_and_empty(clusters, topic):
    recreate(clusters, "source", topic)


def recreated(count, partitions=1):
    def lose(clusters, topic):
        recreate(clusters, "source", topic, partitions)
        clusters.produce(topic, values(0, count, b"new"))

    return lose


def recreated_twice(clusters, topic):
    recreated(30)(clusters, topic)
    recreated(40)(clusters, topic)


def restored(written):
    """The source is restored from a backup that has 10 of the 20 records."""

    def lose(clusters, topic):
        clusters.source.restore(clusters.backup)
        if written:
            clusters.produce(topic, values(100, 100 + written))

    return lose


def alter(clusters, topic, name, value):
    changes = {ConfigResource(ResourceType.TOPIC, topic): ConfigChanges({name: value})}
    clusters.do(lambda source, _: source.configs.alter(changes))


def start_of(clusters, topic):
    partition = TopicPartition(topic, 0)
    return clusters.do(lambda source, _: source.offsets.earliest([partition]))[partition].offset


def wait_for_start(clusters, topic, start):
    """Wait until retention has deleted all records that it is going to."""
    wait_for(lambda: start_of(clusters, topic) >= start, lambda: "retention has deleted too little")


def deleted(first, end):
    if end - first == 1:
        return f"record {first} was deleted before it was copied"
    return f"{end - first} records, {first} to {end - 1}, were deleted before they were copied"


def truncated(first):
    return f"records {first} to 19 were copied, and no longer at the source"


def new(count):
    return values(0, count, b"new")


BEGIN = "another one is in its place at the source: the topic was created again, or restored"

KINDS = {
    "some-deleted": Kind(some_are_deleted, deleted(20, 30), values(30, 40), values(30, 40)),
    "all-deleted": Kind(all_are_deleted, deleted(20, 40), [], []),
    "one-deleted": Kind(one_is_deleted, deleted(20, 21), values(21, 22), values(21, 22)),
    "deleted-and-more-follow": Kind(
        deleted_and_more_follow, deleted(20, 40), values(40, 43), values(40, 43)
    ),
    "transaction-deleted": Kind(
        a_transaction_is_deleted, deleted(20, 30), values(30, 40), values(30, 40)
    ),
    "retention-by-time": Kind(retention_by_time, deleted(20, 30), [], []),
    # The segment that is written to stays.
    "retention-by-size": Kind(
        retention_by_size, deleted(20, 28), values(28, 30), values(28, 30)
    ),
    "recreated-empty": Kind(recreated_and_empty, truncated(0), [], []),
    "recreated-fewer": Kind(recreated(5), BEGIN, new(5), new(5)),
    "recreated-as-many": Kind(recreated(20), BEGIN, new(20), new(20)),
    "recreated-more": Kind(recreated(50), BEGIN, new(50), new(50)),
    "recreated-more-partitions": Kind(recreated(30, 3), BEGIN, new(30), new(30)),
    "recreated-twice": Kind(recreated_twice, BEGIN, new(40), new(40)),
    "restored-and-idle": Kind(restored(0), truncated(10), [], values(0, 10)),
    "restored-and-shorter": Kind(
        restored(5), BEGIN, [*values(0, 10), *values(100, 105)],
        [*values(0, 10), *values(100, 105)],
    ),
    "restored-and-as-long": Kind(
        restored(10), BEGIN, [*values(0, 10), *values(100, 110)],
        [*values(0, 10), *values(100, 110)],
    ),
    "restored-and-longer": Kind(
        restored(30), BEGIN, [*values(0, 10), *values(100, 130)],
        [*values(0, 10), *values(100, 130)],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def two_brokers():
    retention = {"log.retention.check.interval.ms": "100"}
    with KafkaBroker(settings=retention) as source, KafkaBroker() as target:
        yield Clusters(source, target)


@pytest.fixture
def mirror(kctl, clusters):  # noqa: F811
    """Run `kctl mirror run --once`; return (exit status, stderr)."""

    def run(*topics, name="m", source=None, target=None, more=()):
        words = [word for topic in topics for word in ("--topics", topic)]
        status, _, err = kctl(
            "mirror", "run", "--source", source or clusters.source.bootstrap_servers, "--target",
            target or clusters.target.bootstrap_servers, "--once", "--name", name, *words, *more,
        )  # fmt: skip
        return status, err

    return run


def copies(clusters, topic):
    return [it.value for it in clusters.target.records(topic, 0)]


@pytest.mark.parametrize("on_loss", ["skip", "restart"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_loss_is_loud_and_can_be_passed_over(clusters, mirror, kind, on_loss):
    it = KINDS[kind]
    topic, healthy = f"{kind}-{on_loss}", f"{kind}-{on_loss}-healthy"
    for name in (topic, healthy):
        clusters.source.create_topic(name)
    clusters.produce(topic, values(0, 10))
    clusters.backup = clusters.source.snapshot()
    clusters.produce(topic, values(10, 20))
    assert mirror(topic, healthy, name=topic) == (0, "")
    it.lose(clusters, topic)
    clusters.produce(healthy, [b"goes on"])

    for _ in range(2):
        status, err = mirror(topic, healthy, name=topic)
        assert status == 1
        assert f"error: {topic}-0: " in err
        assert it.says in err
        # Nothing was copied after the loss, and the other topics went on.
        assert copies(clusters, topic) == COPIED
        assert copies(clusters, healthy) == [b"goes on"]

    status, err = mirror(topic, healthy, name=topic, more=("--on-loss", on_loss))
    assert status == 0
    assert f"warning: {topic}-0: " in err
    assert it.says in err
    assert copies(clusters, topic) == COPIED + (it.skip if on_loss == "skip" else it.restart)
    alter(clusters, topic, "retention.ms", "-1")
    clusters.produce(topic, [b"later"])
    assert mirror(topic, healthy, name=topic) == (0, "")
    assert copies(clusters, topic)[-1] == b"later"


def test_a_deleted_topic_is_named_and_the_others_go_on(clusters, mirror):
    for name in ("ended-1", "ended-2"):
        clusters.source.create_topic(name)
        clusters.produce(name, values(0, 5))
    assert mirror("ended-*", name="ended") == (0, "")
    delete_topic(clusters, "source", "ended-1")
    clusters.produce("ended-2", values(5, 6))

    status, err = mirror("ended-*", name="ended")

    assert (status, "ended-1 no longer exists at the source" in err) == (1, True)
    assert copies(clusters, "ended-2") == values(0, 6)
    assert mirror("ended-*", name="ended", more=("--on-loss", "skip")) == (0, "")
    delete_topic(clusters, "source", "ended-2")
    status, err = mirror("ended-*", name="ended")
    assert (status, "No topic" in err) == (1, True)


def test_a_topic_that_has_fewer_partitions_now_is_refused_and_named(clusters, mirror):
    clusters.source.create_topic("fewer", partitions=2)
    clusters.produce("fewer", values(0, 5))
    assert mirror("fewer") == (0, "")
    recreate(clusters, "source", "fewer")
    clusters.produce("fewer", values(0, 30, b"new"))

    for more in ((), ("--on-loss", "skip"), ("--on-loss", "restart")):
        status, err = mirror("fewer", more=more)
        assert (status, "fewer" in err, "partitions" in err) == (1, True, True)
    assert copies(clusters, "fewer") == values(0, 5)


def test_a_source_that_is_another_cluster_is_named(clusters, mirror):
    clusters.source.create_topic("elsewhere")
    clusters.produce("elsewhere", values(0, 5))
    assert mirror("elsewhere", name="elsewhere") == (0, "")
    with KafkaBroker() as other:
        other.create_topic("elsewhere")
        status, err = mirror("elsewhere", name="elsewhere", source=other.bootstrap_servers)
    assert status != 0
    assert "Mirror elsewhere copies elsewhere-0 of cluster" in err


@pytest.mark.parametrize("lost", ["emptied", "deleted", "shorter"])
def test_a_target_that_lost_what_was_copied_is_named(clusters, mirror, lost):
    topic = f"target-{lost}"
    clusters.source.create_topic(topic)
    clusters.produce(topic, values(0, 20))
    assert mirror(topic, name=topic) == (0, "")
    delete_topic(clusters, "target", topic)
    if lost != "deleted":
        clusters.target.create_topic(topic)
    if lost == "shorter":
        clusters.target.produce(topic, b"another", partition=0)

    status, err = mirror(topic, name=topic)

    assert status == 1
    assert f"{topic}-0 of the target ends at {int(lost == 'shorter')}" in err
    assert "the mirror has written up to 20" in err


@pytest.mark.parametrize("lost", ["missing-segment", "older-backup", "damaged-batch"])
def test_a_directory_that_lost_records_is_named(clusters, mirror, tmp_path, lost):
    clusters.source.create_topic(lost, configs=SEGMENTS)
    one_by_one(clusters, lost, 0, 12)
    directory = tmp_path / "logs" / f"{lost}-0"
    shutil.copytree(clusters.source.log_directory / f"{lost}-0", directory)
    segments = sorted(directory.glob("*.log"))
    if lost == "older-backup":
        assert mirror(lost, name=lost, source=f"{tmp_path}/logs") == (0, "")
    if lost == "damaged-batch":
        data = bytearray(segments[1].read_bytes())
        data[-2] ^= 1
        segments[1].write_bytes(data)
        says = str(segments[1])
    else:
        gone = segments[1 if lost == "missing-segment" else -1]
        for path in directory.glob(f"{gone.stem}.*"):
            path.unlink()
        end = int(segments[2].stem)
        says = deleted(int(gone.stem), end) if lost == "missing-segment" else "no longer at the"

    status, err = mirror(lost, name=lost, source=f"{tmp_path}/logs")

    assert status == 1
    assert f"error: {lost}-0: " in err
    assert says in err


def test_an_unclean_election_is_named(mirror, clusters, tmp_path):
    with LocalCluster(tmp_path, "--brokers", "3") as cluster:
        cluster.kctl(
            "topic", "create", "unclean", "--replica-assignment", "1:2",
            "--config", "unclean.leader.election.enable=true",
        )  # fmt: skip
        write(cluster, values(0, 10))
        assert cluster.command("stop", "2").returncode == 0
        write(cluster, values(10, 20))
        assert mirror("unclean", source=cluster.bootstrap) == (0, "")
        assert cluster.command("kill", "1").returncode == 0
        assert cluster.command("restart", "2").returncode == 0
        wait_for(lambda: cluster.isr("unclean") == {0: {2}}, lambda: str(cluster.isr("unclean")))
        write(cluster, values(100, 130))

        status, err = mirror("unclean", source=cluster.bootstrap)
        assert status == 1
        assert f"error: unclean-0: {truncated(10)}" in err
        status, err = mirror("unclean", source=cluster.bootstrap, more=("--on-loss", "skip"))
        assert (status, truncated(10) in err) == (0, True)
        assert copies(clusters, "unclean") == COPIED + values(100, 130)


def write(cluster, these):
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for value in these:
        producer.produce("unclean", value, b"k", 0)
    assert producer.flush(60) == 0
