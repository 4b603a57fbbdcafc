"""Requests that wait for topics to appear or disappear."""

import pytest

from kctl.broker.metadata_cache import MetadataCache
from kctl.broker.topic_waits import FIRST_UPDATE_MS_MAX, TopicWaits
from kctl.protocol.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from kctl.runtime.real import make_runtime
from kctl.runtime.trace import NullTrace
from tests.support.virtual_runtime import virtual_runtime


@pytest.fixture
def runtime():
    runtime = make_runtime(NullTrace())
    yield runtime
    runtime.scheduler.close()


def led(*topics):
    return UpdateMetadataRequest(
        topic_states=[
            UpdateMetadataTopicState(
                topic_name=topic, partition_states=[UpdateMetadataPartitionState(leader=1)]
            )
            for topic in topics
        ]
    )


def test_a_wait_ends_when_the_last_of_its_topics_appears(runtime):
    cache = MetadataCache(1)
    waits = TopicWaits(runtime, cache)
    wait = waits.wait(["a", "b"], lambda: cache.contains("a") and cache.contains("b"), 60_000)
    cache.update(led("a"))
    assert not wait.done
    cache.update(led("b", "c"))
    assert wait.done


def test_existing_topics_are_not_waited_for(runtime):
    cache = MetadataCache(1)
    cache.update(led("a"))
    assert TopicWaits(runtime, cache).wait(["a"], lambda: cache.contains("a"), 60_000).done


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_timeout_of_zero_does_not_wait(runtime, timeout_ms):
    waits = TopicWaits(runtime, MetadataCache(1))
    assert waits.wait(["a"], lambda: False, timeout_ms).done


def test_a_wait_ends_at_its_timeout(runtime):
    cache = MetadataCache(1)
    waits = TopicWaits(runtime, cache)
    wait = waits.wait(["a"], lambda: False, 1)
    runtime.scheduler.run_until(wait)
    # No wait is left that an update could wake.
    cache.update(led("a"))
    assert waits._waits == {}


def test_all_who_wait_for_the_first_update_are_released_by_it_even_without_topics(runtime):
    cache = MetadataCache(1)
    waits = TopicWaits(runtime, cache)
    first, second = waits.wait_for_first_update(), waits.wait_for_first_update()
    assert not first.done
    assert not second.done
    cache.update(led())
    assert first.done
    assert second.done


def test_the_wait_for_the_first_update_is_bounded():
    runtime = virtual_runtime()
    waits = TopicWaits(runtime, MetadataCache(1))
    wait = waits.wait_for_first_update()
    runtime.scheduler.advance(FIRST_UPDATE_MS_MAX - 1)
    assert not wait.done
    runtime.scheduler.advance(1)
    assert wait.done
    assert waits.wait_for_first_update().done
