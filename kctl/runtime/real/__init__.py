"""The runtime on the operating system: the only code that accesses it."""

import sys

from kctl.lazy_dataclass import dataclass
from kctl.runtime.real.clock import RealClock
from kctl.runtime.real.disk import RealDisk
from kctl.runtime.real.entropy import RealEntropy
from kctl.runtime.real.loop import RealScheduler
from kctl.runtime.real.network import RealNetwork
from kctl.runtime.real.poller import Poller
from kctl.runtime.real.trace import LineTrace
from kctl.runtime.real.web import RealWeb
from kctl.runtime.runtime import Runtime
from kctl.runtime.trace import Trace


@dataclass(frozen=True, slots=True)
class RealRuntime(Runtime):
    """A runtime of this machine; its scheduler can be run."""

    scheduler: RealScheduler


def make_runtime(trace: Trace | None = None, poller: Poller | None = None) -> RealRuntime:
    """Return a Runtime on this machine.

    It logs to `trace` (default: standard error) and waits with `poller` (default: the fastest
    available). Its owner runs `scheduler.run_until(...)` or `run_forever()`, and
    `scheduler.close()` at the end.
    """
    clock = RealClock()
    trace = trace or LineTrace(sys.stderr)
    scheduler = RealScheduler(clock, trace, poller)
    return RealRuntime(
        clock=clock,
        scheduler=scheduler,
        network=RealNetwork(scheduler, trace),
        disk=RealDisk(),
        entropy=RealEntropy(),
        trace=trace,
        web=RealWeb(scheduler),
    )
