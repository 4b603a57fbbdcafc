"""ClusterStore's updates start from the store, and lose nothing that others write meanwhile."""

from typing import Any

import pytest

from kctl.model import ReplicaAssignment
from kctl.runtime.future import Future
from kctl.runtime.real import make_runtime
from kctl.store import znodes
from kctl.store.cluster_store import ClusterStore
from kctl.store.database import ZnodeDatabase
from kctl.store.embedded import EmbeddedStore
from kctl.store.errors import ConnectionLossError, ControllerMovedError, NoNodeError
from kctl.store.interface import ANY_VERSION


@pytest.fixture
def runtime():
    runtime = make_runtime()
    yield runtime
    runtime.scheduler.close()


def run(runtime, coroutine) -> Any:
    return runtime.scheduler.run_until(runtime.scheduler.spawn(coroutine))


async def begin(cluster: ClusterStore) -> tuple[int, int]:
    await cluster.ensure_persistent_paths()
    return await cluster.register_controller_and_increment_epoch(1, timestamp_ms=0)


class Interrupted(EmbeddedStore):
    """A store where another client writes just before each write, or whose response gets lost."""

    before_set = None
    loses_answer = False

    def set(self, path, data, version=ANY_VERSION):
        return self._interrupted(path, lambda: EmbeddedStore.set(self, path, data, version))

    def multi(self, operations):
        return self._interrupted(operations[0].path, lambda: EmbeddedStore.multi(self, operations))

    def _interrupted(self, path, write):
        if self.before_set is not None:
            interruption, self.before_set = self.before_set, None
            interruption(path)
        future = write()
        if self.loses_answer:
            self.loses_answer = False
            lost: Future[Any] = Future(lambda callback, *args: callback(*args))
            lost.set_error(ConnectionLossError())
            return lost
        return future


@pytest.fixture
def interrupted(runtime):
    return ClusterStore(Interrupted(runtime, ZnodeDatabase.in_memory(runtime)))


def append(item):
    """Return an update that appends to a list, so that repeated updates show."""

    def update(config):
        return {**config, "list": ",".join(filter(None, [config.get("list"), item]))}

    return update


def test_an_update_keeps_what_others_write_between_its_read_and_its_write(runtime, interrupted):
    store = interrupted.store

    async def story():
        await interrupted.ensure_persistent_paths()
        await interrupted.update_entity_config("topics", "t", append("ours"))
        other = znodes.encode_config({"list": "ours", "theirs": "1"})
        store.before_set = lambda path: EmbeddedStore.set(store, path, other)
        await interrupted.update_entity_config("topics", "t", append("again"))
        return await interrupted.get_entity_config("topics", "t")

    assert run(runtime, story()) == {"list": "ours,again", "theirs": "1"}


def test_an_update_whose_answer_is_lost_is_carried_out_once(runtime, interrupted):
    async def story():
        await interrupted.ensure_persistent_paths()
        await interrupted.update_entity_config("topics", "t", append("a"))
        interrupted.store.loses_answer = True
        await interrupted.update_entity_config("topics", "t", append("b"))
        changes = await interrupted.get_announcement_names(znodes.CONFIG_CHANGES)
        return await interrupted.get_entity_config("topics", "t"), len(changes)

    assert run(runtime, story()) == ({"list": "a,b"}, 2)


def test_an_update_that_raises_writes_and_announces_nothing(runtime, interrupted):
    def refuse(_config):
        raise NoNodeError("refused")

    async def story():
        await interrupted.ensure_persistent_paths()
        with pytest.raises(NoNodeError):
            await interrupted.update_entity_config("topics", "t", refuse)
        with pytest.raises(NoNodeError):
            await interrupted.update_topic_assignment("t", lambda topic: topic)
        return await interrupted.get_announcement_names(znodes.CONFIG_CHANGES)

    assert run(runtime, story()) == []


def test_an_assignment_is_updated_from_the_store_and_fenced(runtime, interrupted):
    store = interrupted.store

    async def story():
        epoch, version = await begin(interrupted)
        assert epoch == 1
        await interrupted.create_topic_assignment("t", {0: ReplicaAssignment((1,))})
        two = znodes.encode_topic({0: ReplicaAssignment((1,)), 1: ReplicaAssignment((2,))})
        await interrupted.call(lambda: store.set(znodes.topic_path("t"), two))
        moved = ReplicaAssignment((3,))
        await interrupted.update_topic_assignment("t", lambda t: {**t, 0: moved}, version)
        with pytest.raises(ControllerMovedError):
            await interrupted.update_topic_assignment("t", lambda t: t, version + 1)
        return await interrupted.get_topic_assignment("t")

    assert run(runtime, story()) == {0: ReplicaAssignment((3,)), 1: ReplicaAssignment((2,))}
