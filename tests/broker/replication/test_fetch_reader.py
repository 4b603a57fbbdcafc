"""A reader that has all it may read gets the same result as by a whole read, in less time."""

from itertools import product

import pytest

from kctl.broker.replication.delayed import FetchParams
from kctl.broker.replication.replica_manager import FetchIsolation
from kctl.protocol.messages.fetch import FetchPartition
from tests.support.builds import needs_sources
from tests.support.log_world import batch

OTHER_BROKER = 2
EPOCH = 5
OPEN = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}


def results_of(world, params):
    """Return what a read returns at each offset and for each epoch that a reader may ask for."""
    found = []
    for offset, epoch, last_epoch in product(range(-1, 8), (-1, 4, 5, 6), (-1, 4, 5)):
        request = FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=1 << 20,
            current_leader_epoch=epoch, log_start_offset=0, last_fetched_epoch=last_epoch,
        )  # fmt: skip
        (result,) = world.manager.reader.read(params, [("t", request)])
        data = result.data
        found.append(
            (
                offset, epoch, last_epoch, result.error_code, result.high_watermark,
                result.last_stable_offset, result.log_start_offset, result.diverging_epoch,
                result.preferred_read_replica, data is None,
                data and (data.records and (data.records.position, len(data.records))),
                data and data.aborted_transactions,
            )
        )  # fmt: skip
    return found


def lead(world):
    """Lead a log that starts at 1, with an open transaction at 3 and records that the follower does
    not have at 4."""
    world.lead(epoch=EPOCH, isr=(1, OTHER_BROKER), replicas=(1, OTHER_BROKER))
    for _ in range(3):
        world.produce(batch(b"a"), acks=1)
    world.produce(batch(b"b", **OPEN), acks=1)
    log = world.partition.log
    log.update_high_watermark(log.log_end_offset)
    world.produce(batch(b"c"), acks=1)
    log.maybe_increment_log_start_offset(1)


def follow(world):
    lead(world)
    world.lead(leader=OTHER_BROKER, epoch=EPOCH + 1, replicas=(1, OTHER_BROKER))


@needs_sources
@pytest.mark.parametrize("arrange", [lead, follow, lambda world: None])
@pytest.mark.parametrize("isolation", FetchIsolation)
@pytest.mark.parametrize("rack", [None, "", "r"])
def test_a_reader_at_the_end_gets_what_a_whole_read_returns(
    make_world, monkeypatch, arrange, isolation, rack
):
    world = make_world()
    arrange(world)
    params = FetchParams(
        replica_id=OTHER_BROKER if isolation is FetchIsolation.LOG_END else -1,
        max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, isolation=isolation, client_rack=rack,
    )  # fmt: skip
    quick = results_of(world, params)
    monkeypatch.setattr(type(world.manager.reader), "_nothing", lambda *_: None)
    assert quick == results_of(world, params)


@needs_sources
def test_readers_at_the_end_are_answered_without_a_whole_read(make_world, monkeypatch):
    world = make_world()
    lead(world)
    monkeypatch.setattr(type(world.manager.reader), "_read_one", None)
    params = FetchParams(
        replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20,
        isolation=FetchIsolation.HIGH_WATERMARK, client_rack="",
    )  # fmt: skip
    request = FetchPartition(
        partition=0, fetch_offset=4, partition_max_bytes=1 << 20, current_leader_epoch=EPOCH
    )
    (result,) = world.manager.reader.read(params, [("t", request)])
    assert (result.error_code, result.high_watermark, result.last_stable_offset) == (0, 4, 3)
