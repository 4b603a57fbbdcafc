"""Two brokers and what a mirror between them keeps, written by hand."""

from contextlib import contextmanager
from functools import partial

from kctl.admin.admin_client import AdminClient
from kctl.client.bootstrap_servers import parse_servers
from kctl.mirror.formats import MappedRun, MirrorPosition, encode_run, group_of, map_topic_of
from kctl.mirror.places import Loop
from kctl.model import TopicPartition
from kctl.runtime.real import make_runtime
from kctl.runtime.trace import NullTrace
from kctl.testing.kafka_broker import KafkaBroker

NAME = "west"
ORDERS = TopicPartition("orders", 0)


@contextmanager
def mirrored_pair(records, runs, position):
    """Yield a source with `records` and a target with those that `runs` copied; a run is (source
    offset, target offset, count)."""
    settings = {"log.retention.ms": "-1"}
    copied = [records[first + n] for first, _, count in runs for n in range(count)]
    topics = ["orders:1"], ["orders:1", f"{map_topic_of(NAME)}:1"]
    with (
        KafkaBroker(topics=topics[0], settings=settings) as source,
        KafkaBroker(topics=topics[1], settings=settings) as target,
    ):
        for broker, chosen in ((source, records), (target, copied)):
            for each in chosen:
                broker.produce(
                    "orders", each.value, key=each.key, partition=0, headers=each.headers,
                    timestamp=each.timestamp,
                )  # fmt: skip
        for run in runs:
            key, value = encode_run(MappedRun(ORDERS, "orders", *run))
            target.produce(map_topic_of(NAME), value, key=key, partition=0)
        commit_position(target, position)
        yield source, target


def commit_position(target, offset):
    position = MirrorPosition(offset, None, ORDERS)
    with_admin(
        target,
        lambda admin: admin.offsets.commit(
            group_of(NAME), {ORDERS: offset}, {ORDERS: position.metadata()}
        ),
    )


def with_admin(broker, work):
    """Return the result of `work(admin)` against a broker."""
    with Loop(partial(make_runtime, NullTrace())) as loop:
        admin = AdminClient.connect(loop.runtime, parse_servers(broker.bootstrap_servers), 30_000)
        loop.on_close(admin.close)
        return loop.run(work(admin))
