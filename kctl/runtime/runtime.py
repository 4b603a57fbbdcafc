"""Runtime: clock, scheduler, network, disk, randomness, trace and web in one value, which most
shells take.
"""

from kctl.lazy_dataclass import dataclass
from kctl.runtime.clock import Clock
from kctl.runtime.disk import Disk
from kctl.runtime.entropy import Entropy
from kctl.runtime.network import Network
from kctl.runtime.scheduler import Scheduler
from kctl.runtime.trace import Trace
from kctl.runtime.web import Web


@dataclass(frozen=True, slots=True)
class Runtime:
    """The interfaces of one node to the outside world."""

    clock: Clock
    scheduler: Scheduler
    network: Network
    disk: Disk
    entropy: Entropy
    trace: Trace
    web: Web
