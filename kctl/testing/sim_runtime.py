"""SimRuntime: the doors of one simulated process, all of them drawn from one seed.

Each part of the world has a generator of its own, split off by name, so that what one part draws
does not change what another gets: a broker that asks for one more uuid meets the same network.
"""

from collections.abc import Callable, Sequence
from random import Random  # noqa: TID251 - the seed enters here
from typing import TypeVar

from kctl.runtime.disk import Disk
from kctl.runtime.runtime import Runtime
from kctl.testing.sim_network import HostNetwork, SimNetwork
from kctl.testing.sim_scheduler import NodeScheduler, SimClock, SimScheduler

T = TypeVar("T")


class SimEntropy:
    """All randomness that one name has under one seed."""

    def __init__(self, seed: int, name: str) -> None:
        self._seed = seed
        self._name = name
        self._random = Random(f"{seed}/{name}")

    def split(self, name: str) -> "SimEntropy":
        """Another generator, that draws independently of this one."""
        return SimEntropy(self._seed, f"{self._name}/{name}")

    def random_bytes(self, count: int) -> bytes:
        """`count` random bytes."""
        return self._random.randbytes(count)

    def random_below(self, bound: int) -> int:
        """A whole number in [0, bound)."""
        return int(self._random.random() * bound)

    def between(self, low: int, high: int) -> int:
        """A whole number in [low, high]."""
        return low + self.random_below(high - low + 1)

    def chance(self, thousandths: int) -> bool:
        """True so many times in a thousand."""
        return self._random.random() * 1000 < thousandths

    def choice(self, values: Sequence[T]) -> T:
        """One of `values`."""
        return values[self.random_below(len(values))]

    def sample(self, values: Sequence[T], count: int) -> list[T]:
        """`count` of `values`, in any order."""
        return self._random.sample(list(values), count)


class NodeTrace:
    """What one process tells, on its way to the world's trace."""

    def __init__(self, name: str, tell: Callable[[str, str, str], object]) -> None:
        self._name = name
        self._tell = tell

    def event(self, name: str, /, **fields: object) -> None:
        """Something that happened."""
        words = " ".join(f"{key}={value}" for key, value in fields.items())
        self._tell(self._name, name, words)

    def info(self, message: str) -> None:
        """A line for the operator."""
        self._tell(self._name, "info", message)

    def warning(self, message: str) -> None:
        """A line for the operator about something that needs an eye."""
        self._tell(self._name, "warning", message)


def node_runtime(
    world: SimScheduler,
    network: SimNetwork,
    scheduler: NodeScheduler,
    disk: Disk,
    entropy: SimEntropy,
    tell: Callable[[str, str, str], object],
    wall_skew_ms: int = 0,
) -> Runtime:
    """The Runtime of a process named as its scheduler, on the host of that name."""
    return Runtime(
        clock=SimClock(world, wall_skew_ms),
        scheduler=scheduler,
        network=HostNetwork(network, scheduler, scheduler.name),
        disk=disk,
        entropy=entropy,
        trace=NodeTrace(scheduler.name, tell),
    )
