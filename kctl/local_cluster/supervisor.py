"""Supervisor: starts the processes of a local cluster, keeps them running, stops them in order.

It holds no data and serves nothing but commands. The store's process comes first and goes last;
brokers start together and stop in sequence, so that each hands its partitions over to the
remaining ones. A process that dies is restarted as `supervision.py` decides, on the same port.

Until all are ready for the first time a death is an error that ends the start.
"""

import signal
from collections.abc import Callable
from functools import partial

from kctl.errors import KctlError, NotFoundError, TimedOutError, UsageError
from kctl.lazy_dataclass import dataclass
from kctl.local_cluster.control import Answer
from kctl.local_cluster.plan import BrokerPlan, ClusterPlan
from kctl.local_cluster.processes import FAILED, READY, SEED, SEEDED, serve_store
from kctl.local_cluster.supervision import Event, ProcessState, Supervision
from kctl.runtime.future import sleep
from kctl.runtime.polling import poll_until
from kctl.runtime.real.children import ChildProcess, Children, Line
from kctl.runtime.runtime import Runtime

START_TIMEOUT_MS = 90_000
# Of a cluster that starts: others have ended, or are stopped by a command.
_ALIVE = frozenset({ProcessState.STARTING, ProcessState.RUNNING})
STOP_TIMEOUT_MS = 60_000
# Time between the stops of two brokers: the others learn that one is gone before the next stops.
LEAVE_MS = 50

# The main function of a process; returns its exit status.
Body = Callable[[Line], int]


@dataclass(slots=True)
class Process:
    """One process of the cluster."""

    name: str
    # Creates its body, given the port to listen on.
    make_body: Callable[[int], Body]
    port: int
    supervision: Supervision
    child: ChildProcess | None = None
    # HOST:PORT, while it is ready.
    address: str | None = None
    # Its last message before it ended.
    failure: str | None = None
    is_seeded: bool = False

    @property
    def state(self) -> ProcessState:
        """Return its state."""
        return self.supervision.state


class Supervisor:
    """Owns the processes; call `start` once, `stop` once."""

    def __init__(
        self,
        runtime: Runtime,
        children: Children,
        plan: ClusterPlan,
        make_broker: Callable[[BrokerPlan, int, str], Body],
    ) -> None:
        """Take `make_broker`, which returns a broker's body for a port and the store's address
        (empty: an external store)."""
        self._runtime = runtime
        self._children = children
        self._plan = plan
        self._is_started = False
        self._is_stopping = False
        self.store: Process | None = None
        if plan.metadata_directory is not None:
            make_store = partial(self._make_store, plan.metadata_directory)
            self.store = Process("store", make_store, plan.store_port, Supervision())
        self.brokers = {
            broker.broker_id: self._broker_process(broker, make_broker) for broker in plan.brokers
        }

    def _make_store(self, directory: str, port: int) -> Body:
        # When a cluster starts none of its brokers runs, whatever an earlier run left.
        gone = [] if self._is_started else list(self.brokers)
        return lambda line: serve_store(line, self._plan, directory, port, gone)

    def _broker_process(
        self, broker: BrokerPlan, make_broker: Callable[[BrokerPlan, int, str], Body]
    ) -> Process:
        return Process(
            f"broker {broker.broker_id}",
            lambda port: make_broker(broker, port, self.zookeeper),
            broker.port,
            Supervision(),
        )

    @property
    def zookeeper(self) -> str:
        """Return the address of the cluster's own metadata store; empty if it has none."""
        store = self.store
        return f"127.0.0.1:{store.port}" if store is not None else ""

    @property
    def bootstrap(self) -> list[str]:
        """Return the addresses of the brokers that are ready."""
        return [each.address for each in self.brokers.values() if each.address is not None]

    # --- start and stop

    async def start(self) -> None:
        """Start all processes and create the requested topics; KctlError after
        stopping all again."""
        try:
            if self.store is not None:
                self._happened(self.store, Event.START)
                await self._until_ready([self.store])
            brokers = list(self.brokers.values())
            for broker in brokers:
                self._happened(broker, Event.START)
            everything = [*brokers, *([self.store] if self.store is not None else [])]
            await self._until_ready(everything)
            if self._plan.seed_topics:
                await self._seed(brokers[0], everything)
                # One that died meanwhile would not be restarted.
                await self._until_ready(everything)
        except BaseException:
            await self.stop()
            raise
        self._is_started = True

    async def _until_ready(self, processes: list[Process]) -> None:
        def is_settled() -> bool:
            states = {each.state for each in processes}
            return self._is_stopping or ProcessState.STARTING not in states or bool(states - _ALIVE)

        await self._until(is_settled, START_TIMEOUT_MS, "are ready")
        not_ready = [each for each in processes if each.state is not ProcessState.RUNNING]
        # One that has ended is the reason why others are not ready yet.
        for each in sorted(not_ready, key=lambda it: it.state in _ALIVE):
            raise KctlError(f"{each.name}: {each.failure or 'it ended before it was ready'}")

    async def _seed(self, broker: Process, everything: list[Process]) -> None:
        assert broker.child is not None
        broker.child.line.say(SEED)

        def has_ended() -> bool:
            return any(each.state is not ProcessState.RUNNING for each in everything)

        await self._until(
            lambda: broker.is_seeded or broker.failure is not None or has_ended(),
            START_TIMEOUT_MS,
            "have their topics",
        )
        if broker.failure is not None:
            raise UsageError(broker.failure)

    async def stop(self) -> None:
        """Stop everything, the store last; kill a process that does not stop in time."""
        self._is_stopping = True
        for broker in reversed(self.brokers.values()):
            if broker.state is not ProcessState.STOPPED:
                await self._stop_one(broker)
                await sleep(self._runtime.scheduler, LEAVE_MS)
        if self.store is not None:
            await self._stop_one(self.store)

    async def _stop_one(self, process: Process) -> None:
        self._happened(process, Event.STOP)
        try:
            await self._until_stopped(process)
        except TimedOutError as error:
            self._runtime.trace.warning(f"{error}: it is killed")
            self._signal(process, signal.SIGKILL)
            await self._until_stopped(process)

    async def _until_stopped(self, process: Process) -> None:
        await self._until(
            lambda: process.state is ProcessState.STOPPED, STOP_TIMEOUT_MS, "have stopped"
        )

    async def _until(self, condition: Callable[[], bool], timeout_ms: int, what: str) -> None:
        if not await poll_until(self._runtime, condition, timeout_ms):
            raise TimedOutError(f"not all processes {what} after {timeout_ms // 1000} s")

    # --- what happens to processes

    def _happened(self, process: Process, event: Event) -> None:
        """Carry out the actions of the process's new state."""
        before = process.state
        after = process.supervision.handle(event, self._runtime.clock.monotonic_ms())
        if event is Event.EXITED:
            process.child = process.address = None
        if after is ProcessState.STARTING and before is not after:
            self._fork(process)
        elif after is ProcessState.WAITING:
            self._died(process)
        elif after in (ProcessState.STOPPING, ProcessState.RESTARTING) and before is not after:
            self._signal(process, signal.SIGTERM)

    def _fork(self, process: Process) -> None:
        process.failure = None

        def on_message(message: str) -> None:
            word, _, rest = message.partition(" ")
            if word == READY:
                process.address = rest
                process.port = int(rest.rpartition(":")[2])
                self._happened(process, Event.READY)
            elif word == FAILED:
                process.failure = rest
            elif word == SEEDED:
                process.is_seeded = True

        def on_exit(status: int) -> None:
            how = f"status {status}" if status >= 0 else f"signal {-status}"
            if process.failure is None and process.state not in _ASKED_TO_END:
                process.failure = f"it ended with {how}"
            self._happened(process, Event.EXITED)

        process.child = self._children.fork(
            process.name, process.make_body(process.port), on_message, on_exit
        )

    def _died(self, process: Process) -> None:
        if not self._is_started:
            return
        pause_ms = process.supervision.next_pause_ms()
        self._runtime.trace.warning(
            f"{process.name}: {process.failure}; restarting in {pause_ms} ms"
        )
        self._runtime.scheduler.call_later(pause_ms, self._pause_over, process)

    def _pause_over(self, process: Process) -> None:
        if process.state is ProcessState.WAITING:
            self._happened(process, Event.PAUSE_OVER)

    def _signal(self, process: Process, number: int) -> None:
        if process.child is not None:
            process.child.signal(number)

    def kill_all(self) -> None:
        """Kill every process at once: the user asked twice."""
        for process in (*self.brokers.values(), *([self.store] if self.store else [])):
            self._signal(process, signal.SIGKILL)

    # --- commands

    async def handle(self, request: Answer) -> Answer:
        """Handle a command of `kctl broker`: list, start, stop, kill, restart."""
        command = request.get("command")
        if command == "list":
            return {"rows": self.rows(), "zookeeper": self.zookeeper or None}
        event = _COMMANDS.get(str(command))
        if event is None:
            raise UsageError(f"no such command: {command}")
        if self._is_stopping or not self._is_started:
            raise KctlError("the cluster is starting or stopping")
        processes = [self._broker(broker_id) for broker_id in request.get("brokers", ())]
        for process in processes:
            self._happened(process, event)
            if command == "kill":
                self._signal(process, signal.SIGKILL)
            await self._until_done(process, event)
        return {"rows": self.rows(), "zookeeper": self.zookeeper or None}

    def _broker(self, broker_id: object) -> Process:
        process = self.brokers.get(broker_id) if isinstance(broker_id, int) else None
        if process is None:
            known = ", ".join(map(str, self.brokers))
            raise NotFoundError(f"no broker {broker_id} in this cluster: there are {known}")
        return process

    async def _until_done(self, process: Process, event: Event) -> None:
        wanted = ProcessState.STOPPED if event is Event.STOP else ProcessState.RUNNING
        await self._until(
            lambda: process.state in (wanted, ProcessState.WAITING), START_TIMEOUT_MS, "obeyed"
        )
        if process.state is not wanted:
            raise KctlError(f"{process.name}: {process.failure}")

    def rows(self) -> list[Answer]:
        """Return the description of each broker."""
        plans = {broker.broker_id: broker for broker in self._plan.brokers}
        return [
            {
                "broker": broker_id,
                "state": process.state.value,
                "pid": process.child.pid if process.child is not None else None,
                "address": process.address,
                "rack": plans[broker_id].rack,
                "deaths": process.supervision.deaths,
                "log_dir": plans[broker_id].log_directory,
            }
            for broker_id, process in self.brokers.items()
        ]


_ASKED_TO_END = (ProcessState.STOPPING, ProcessState.RESTARTING)
_COMMANDS = {
    "start": Event.START,
    "stop": Event.STOP,
    "kill": Event.STOP,
    "restart": Event.RESTART,
}
