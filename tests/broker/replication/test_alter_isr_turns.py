"""The followers of thousands of partitions are checked over many turns of the loop."""

from types import SimpleNamespace

from kctl.broker.replication.alter_isr import CHECKED_PER_TURN, AlterIsrManager
from tests.support.virtual_runtime import virtual_runtime


def test_followers_of_many_partitions_are_checked_in_turns():
    checked = []

    def out_of_sync(_now_ms):
        checked.append(1)
        return []

    partitions = {
        number: SimpleNamespace(followers=(2,), out_of_sync=out_of_sync, topic_partition=number)
        for number in range(3 * CHECKED_PER_TURN)
    }
    runtime = virtual_runtime()
    replicas = SimpleNamespace(partitions=partitions)
    manager = AlterIsrManager(runtime, replicas, None, 30_000)
    manager._check()
    assert len(checked) == CHECKED_PER_TURN
    runtime.scheduler.turn()
    assert len(checked) == 2 * CHECKED_PER_TURN
    # A partition that this broker no longer has is not checked.
    del partitions[3 * CHECKED_PER_TURN - 1]
    runtime.scheduler.turn()
    assert len(checked) == 3 * CHECKED_PER_TURN - 1
    manager.shutdown()
