"""Two brokers in this process, and coroutines on clients of both."""

import pytest

from kctl.admin.admin_client import AdminClient
from kctl.admin.selection import matching
from kctl.client.producer import NewRecord, Producer
from kctl.client.producer_transaction import ProducerTransaction
from kctl.mirror.cluster_source import ClusterSource
from kctl.mirror.renames import parse_rename
from kctl.mirror.run import MirrorRun
from kctl.mirror.settings import MirrorSettings
from kctl.mirror.topics import TopicChoice
from kctl.runtime.real import make_runtime
from kctl.runtime.trace import NullTrace
from kctl.testing.kafka_broker import KafkaBroker

TIMEOUT_MS = 30_000


class Clusters:
    """A source and a target, and what is done with both."""

    def __init__(self, source, target):
        self.source = source
        self.target = target

    def do(self, work, *, workers=1):
        """Run `work(source, target)`, a coroutine on admin clients, with two for each worker."""
        runtime = make_runtime(NullTrace())
        admins = [
            AdminClient.connect(runtime, [(it.host, it.port)], TIMEOUT_MS)
            for it in (self.source, self.target) * workers
        ]
        try:
            return runtime.scheduler.run_until(runtime.scheduler.spawn(work(*admins)))
        finally:
            for admin in admins:
                admin.close()
            runtime.scheduler.close()

    def mirror(self, *topics, name="m", groups=(), rename="identity", said=None, **settings):
        """Mirror until the end, and return the report."""
        choice = TopicChoice(topics, (), parse_rename(rename))
        it = MirrorSettings(name, until_end=True, **settings)
        carried = (lambda name: bool(matching([name], groups))) if groups else None
        lines = [] if said is None else said
        return self.do(
            lambda a, b: MirrorRun(ClusterSource(a), b, choice, it, carried, lines.append).run()
        )

    def produce(self, topic, values, *, transaction=None, commit=True, **options):
        """Write values to partition 0 of the source, in a transaction of this id if given."""

        async def work(source, _target):
            txn = transaction and ProducerTransaction(source.router, transaction)
            if txn:
                await txn.begin()
            producer = Producer(source.router, topic, transaction=txn, **options)
            results = await producer.send(
                [NewRecord(b"k", b"%s" % value, (("h", b"x"),), 0) for value in values]
            )
            assert all(it.error is None for it in results)
            if txn:
                await txn.end(commit=commit)

        self.do(work)


@pytest.fixture(scope="module")
def two_brokers():
    with KafkaBroker() as source, KafkaBroker() as target:
        yield Clusters(source, target)


@pytest.fixture
def clusters(two_brokers):
    yield two_brokers
    two_brokers.source.clear_faults()
    two_brokers.target.clear_faults()
