"""A clean restart of a cluster, or of one broker after the other, logs no warning."""

import pytest

from kctl.simulation.cluster import Life, SimCluster
from kctl.simulation.invariants import Invariants
from kctl.simulation.network import Weather
from kctl.simulation.workload import Workload

LIMIT_MS = 20_000
# A network without slow or split deliveries: nothing fails but what the restart ends.
CALM = Weather(slow_chance=0, split_chance=0)


class Story:
    """Three brokers with topics, and what they warn about."""

    def __init__(self, seed):
        self.cluster = SimCluster(seed, 3, {}, CALM)
        self.brokers = list(self.cluster.brokers.values())
        self.warnings = []
        self.cluster.on_trace = self._on_trace
        workload = Workload(self.cluster, Invariants(self.cluster), topics=4, rf=3)
        self.start_all()
        workload.start(producers=2, plain_producers=1)
        self.until(lambda: workload.acknowledged >= 30)
        workload.is_over = True
        self.settle()

    def _on_trace(self, process, name, text):
        if name == "warning":
            self.warnings.append(f"{process}: {text}")

    def until(self, condition):
        world = self.cluster.world
        assert world.run_until(condition, world.now_ms + LIMIT_MS)

    def settle(self):
        self.cluster.world.run_for(5_000)

    def start_all(self):
        for broker in self.brokers:
            broker.start()
        self.until(lambda: all(it.life is Life.UP for it in self.brokers))

    def stop(self, *brokers):
        for broker in brokers:
            broker.stop()
        self.until(lambda: all(it.life is Life.DOWN for it in brokers))


@pytest.mark.sim
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_clean_restart_of_all_brokers_is_quiet(seed):
    story = Story(seed)

    story.stop(*story.brokers)
    story.start_all()
    story.settle()
    story.settle()
    story.settle()

    assert story.warnings == []


@pytest.mark.sim
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_rolling_restart_is_quiet(seed):
    story = Story(seed)

    for broker in story.brokers:
        story.stop(broker)
        broker.start()
        story.until(lambda it=broker: it.life is Life.UP)
        story.settle()
    story.settle()

    assert story.warnings == []


@pytest.mark.sim
def test_brokers_that_stay_away_are_reported():
    story = Story(1)

    first, *others = story.brokers

    # What is written while the first is away, it does not have: it cannot lead.
    first.kill()
    story.settle()
    for broker in others:
        broker.kill()
    first.start()
    for _ in range(4):
        story.settle()

    assert any("State changes of" in line for line in story.warnings)
    assert len(story.warnings) <= 5
