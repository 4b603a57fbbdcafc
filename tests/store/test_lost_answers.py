"""Calls whose answers are lost with the connection, and stores that lost their data."""

from typing import Any

import pytest

from kctl.model import LeaderAndIsr, ReplicaAssignment
from kctl.runtime.future import Future
from kctl.store.cluster_store import ClusterStore
from kctl.store.database import ZnodeDatabase
from kctl.store.embedded import EmbeddedStore
from kctl.store.errors import ConnectionLossError, LostDataError, SessionExpiredError, StoppingError
from kctl.store.interface import ANY_VERSION, SessionState
from kctl.store.znodes import LeaderIsrAndControllerEpoch, ProducerIdBlock
from tests.store.test_cluster_store import T0, begin, broker, run


class LossyStore(EmbeddedStore):
    """Carries every call out; loses the next answer, and the connection with it, on request."""

    lose_next_answer = False
    lost = 0

    def _answer(self, value: Any) -> Future[Any]:
        return self._lost() if self.lose_next_answer else super()._answer(value)

    def _lost(self) -> Future[Any]:
        self.lose_next_answer = False
        self.lost += 1
        self._report_state(SessionState.SUSPENDED)
        self._send(self._report_state, SessionState.CONNECTED)
        return self._failed(ConnectionLossError())


@pytest.fixture
def lossy(runtime):
    return LossyStore(runtime, ZnodeDatabase.in_memory(runtime))


def test_read_is_made_again_after_a_lost_answer(runtime, lossy):
    cluster = ClusterStore(lossy)

    async def story():
        await cluster.create_topic_assignment("t", {0: ReplicaAssignment((1,))})
        lossy.lose_next_answer = True
        assert await cluster.get_all_topics() == ["t"]
        lossy.lose_next_answer = True
        assert list(await cluster.get_topic_assignments(["t", "u"])) == ["t"]

    run(runtime, story())
    assert lossy.lost == 2


def test_calls_of_a_broker_that_stops_do_not_wait_for_the_store(runtime, lossy):
    cluster = ClusterStore(lossy)

    async def story():
        await cluster.create_topic_assignment("t", {0: ReplicaAssignment((1,))})
        cluster.stop_waiting()
        lossy.lose_next_answer = True
        with pytest.raises(StoppingError):
            await cluster.get_all_topics()
        lossy.lose_next_answer = True
        # Not an error of one topic.
        with pytest.raises(StoppingError):
            await cluster.get_topic_assignments(["t", "u"])

    run(runtime, story())


def test_registration_whose_answer_was_lost_is_recognised_as_our_own(runtime, lossy):
    cluster = ClusterStore(lossy)

    async def story():
        await cluster.ensure_persistent_paths()
        lossy.lose_next_answer = True
        epoch = await cluster.register_broker(broker(1, 9092), timestamp_ms=1)
        assert (await cluster.get_broker(1)).epoch == epoch

    run(runtime, story())
    assert lossy.lost == 1


def test_election_whose_answer_was_lost_is_won_once(runtime, lossy):
    cluster = ClusterStore(lossy)

    async def story():
        await begin(cluster)
        await cluster.delete_controller()
        found = await cluster.get_controller_epoch()
        operations = lossy.multi

        def lose_the_multi(*args):
            lossy.lose_next_answer = lossy.lost == 0
            return operations(*args)

        lossy.multi = lose_the_multi
        won = await cluster.register_controller_and_increment_epoch(1, timestamp_ms=5)
        assert won == (found[0] + 1, found[1] + 1)

    run(runtime, story())
    assert lossy.lost == 1


def test_a_store_that_lost_its_data_hands_out_no_producer_ids(runtime, cluster):
    """They would be those of other producers. Simulation: seed 200480 of 22 November 2026."""

    async def story():
        await cluster.ensure_persistent_paths()
        with pytest.raises(LostDataError):
            await cluster.allocate_producer_id_block(1)
        await cluster.create_or_get_cluster_id("JzQLOi4JQkytO-cNup0VUQ")
        assert await cluster.allocate_producer_id_block(1) == ProducerIdBlock(1, 0, 999)

    run(runtime, story())


def test_producer_ids_whose_answer_was_lost_are_used_and_not_skipped(runtime, lossy):
    cluster = ClusterStore(lossy)

    async def story():
        await cluster.ensure_persistent_paths()
        await cluster.create_or_get_cluster_id("JzQLOi4JQkytO-cNup0VUQ")
        assert await cluster.allocate_producer_id_block(1) == ProducerIdBlock(1, 0, 999)
        set_data = lossy.set

        def lose_the_set(*args):
            lossy.lose_next_answer = lossy.lost == 0
            return set_data(*args)

        lossy.set = lose_the_set
        assert await cluster.allocate_producer_id_block(1) == ProducerIdBlock(1, 1000, 1999)
        assert await cluster.allocate_producer_id_block(2) == ProducerIdBlock(2, 2000, 2999)

    run(runtime, story())
    assert lossy.lost == 1


def test_isr_update_whose_answer_was_lost_counts_as_done(runtime, lossy):
    cluster = ClusterStore(lossy)

    async def story():
        epoch, fence = await begin(cluster)
        await cluster.create_topic_assignment("t", {0: ReplicaAssignment((1, 2))})
        new = LeaderIsrAndControllerEpoch(LeaderAndIsr(1, 0, (1, 2)), epoch)
        await cluster.create_partition_states({T0: new}, fence)
        lossy.lose_next_answer = True
        assert await cluster.update_isr(T0, LeaderAndIsr(1, 0, (1,), 0), epoch) == 1

    run(runtime, story())
    assert lossy.lost == 1


def test_end_of_the_session_is_raised_to_every_caller(runtime, lossy):
    cluster = ClusterStore(lossy)

    async def story():
        await begin(cluster)
        lossy.database.expire_session(lossy.session_id)
        for call in (
            cluster.get_all_topics(),
            cluster.get_topic_assignments(["t"]),
            cluster.create_delete_topic_path("t"),
            cluster.delete_topic_deletions(["t"], ANY_VERSION),
        ):
            with pytest.raises(SessionExpiredError):
                await call
        await lossy.new_session()
        assert await cluster.get_all_topics() == []

    run(runtime, story())
