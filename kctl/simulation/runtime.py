"""SimRuntime: clock, network, disk and randomness of one simulated process, drawn from one seed.

Each part of the world has its own generator, split off by name, so that the draws of one part do
not change those of another: a broker that requests one more uuid meets the same network.
"""

from collections.abc import Callable, Sequence
from random import Random  # noqa: TID251 - the seed enters here
from typing import TypeVar

from kctl.runtime.disk import Disk
from kctl.runtime.runtime import Runtime
from kctl.runtime.web import NoWeb
from kctl.simulation.network import HostNetwork, SimNetwork
from kctl.simulation.scheduler import NodeScheduler, SimClock, SimScheduler

T = TypeVar("T")


class SimEntropy:
    """The randomness of one name under one seed."""

    def __init__(self, seed: int, name: str) -> None:
        self._seed = seed
        self._name = name
        self._random = Random(f"{seed}/{name}")

    def split(self, name: str) -> "SimEntropy":
        """Return another generator, independent of this one."""
        return SimEntropy(self._seed, f"{self._name}/{name}")

    def random_bytes(self, count: int) -> bytes:
        """Return `count` random bytes."""
        return self._random.randbytes(count)

    def random_below(self, bound: int) -> int:
        """Return a whole number in [0, bound)."""
        return int(self._random.random() * bound)

    def between(self, low: int, high: int) -> int:
        """Return a whole number in [low, high]."""
        return low + self.random_below(high - low + 1)

    def chance(self, thousandths: int) -> bool:
        """Return True with a chance of `thousandths` in a thousand."""
        return self._random.random() * 1000 < thousandths

    def choice(self, values: Sequence[T]) -> T:
        """Return one of `values`."""
        return values[self.random_below(len(values))]

    def sample(self, values: Sequence[T], count: int) -> list[T]:
        """Return `count` of `values`, in random order."""
        return self._random.sample(list(values), count)


class NodeTrace:
    """Forwards the trace of one process to the trace of the world."""

    def __init__(self, name: str, record_event: Callable[[str, str, str], object]) -> None:
        self._name = name
        self._record_event = record_event

    def event(self, name: str, /, **fields: object) -> None:
        """Trace an event."""
        text = " ".join(f"{key}={value}" for key, value in fields.items())
        self._record_event(self._name, name, text)

    def info(self, message: str) -> None:
        """Trace a log line."""
        self._record_event(self._name, "info", message)

    def warning(self, message: str, detail: str = "") -> None:
        """Trace a warning."""
        self._record_event(self._name, "warning", f"{message}\n{detail}" if detail else message)


def node_runtime(
    world: SimScheduler,
    network: SimNetwork,
    scheduler: NodeScheduler,
    disk: Disk,
    entropy: SimEntropy,
    record_event: Callable[[str, str, str], object],
    wall_skew_ms: int = 0,
) -> Runtime:
    """Return the Runtime of a process named as its scheduler, on the host of that name."""
    return Runtime(
        clock=SimClock(world, wall_skew_ms),
        scheduler=scheduler,
        network=HostNetwork(network, scheduler, scheduler.name),
        disk=disk,
        entropy=entropy,
        trace=NodeTrace(scheduler.name, record_event),
        web=NoWeb(),
    )
