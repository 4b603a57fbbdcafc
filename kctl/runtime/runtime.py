"""Runtime: the doors in one value, the first argument of every shell."""

from dataclasses import dataclass

from kctl.runtime.clock import Clock
from kctl.runtime.disk import Disk
from kctl.runtime.entropy import Entropy
from kctl.runtime.network import Network
from kctl.runtime.scheduler import Scheduler
from kctl.runtime.trace import Trace


@dataclass(frozen=True, slots=True)
class Runtime:
    """One node's world."""

    clock: Clock
    scheduler: Scheduler
    network: Network
    disk: Disk
    entropy: Entropy
    trace: Trace
