"""Runs a local cluster from its start to its stop, with its port for commands."""

from collections.abc import Callable

from kctl.local_cluster.control import ControlServer
from kctl.local_cluster.supervisor import Supervisor
from kctl.runtime.future import CancelledError, Future
from kctl.runtime.real import RealRuntime


async def run_supervised(
    runtime: RealRuntime,
    supervisor: Supervisor,
    stopping: Future[None],
    on_ready: Callable[[ControlServer], object],
    on_stop: Callable[[], object],
) -> None:
    """Start all processes, serve commands until `stopping` is done, and stop the processes.

    `on_ready` is called once all are ready and commands are served, `on_stop` before the processes
    are stopped, also if the start fails or is interrupted.
    """
    starting = runtime.scheduler.spawn(supervisor.start(), "start")
    stopping.add_done_callback(lambda _: starting.cancel())
    control: ControlServer | None = None
    try:
        await starting
        control = ControlServer(runtime, supervisor.handle)
        on_ready(control)
        await stopping
    except CancelledError:
        # Stopped before all was started.
        pass
    finally:
        on_stop()
        if control is not None:
            control.close()
        await supervisor.stop()
