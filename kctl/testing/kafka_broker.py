"""KafkaBroker: a broker inside this process, which tests start, look into and disturb.

    with KafkaBroker(topics=["orders:3"]) as broker:
        shop = Shop(broker.bootstrap_servers)
        with broker.assert_produces("orders", count=1):
            shop.sell("tea")

Its loop runs on a thread of its own; every method here may be called from any other thread and
blocks it until the broker has done what was asked, which takes milliseconds. Data are in a
temporary directory that goes with the broker. What the broker would log is in `log_lines`.

Invariants: the port stays the same from the first start to the end; what a restart, a snapshot or
a restore drops is connections, and with `restart(clean=False)` the good order on disk, never a
record that was written.
"""

import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kctl.broker.broker import Broker
from kctl.broker.config import BrokerConfig
from kctl.broker.services import Services
from kctl.broker.topic_creation import NewTopic
from kctl.errors import KctlError, StorageError, UsageError
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ErrorCode
from kctl.records.record import Header
from kctl.runtime.future import sleep
from kctl.runtime.real.loop_thread import LoopThread
from kctl.testing.expectation import ProducedRecords
from kctl.testing.kafka_versions import NATIVE, served_as
from kctl.testing.request_faults import (
    FaultKind,
    InjectedFault,
    RequestFaults,
    api_named,
    error_named,
)
from kctl.testing.topic_records import Record, append, end_offsets, records_of

CALL_TIMEOUT_S = 60.0
LOG_LINES_MAX = 1_000
POLL_MS = 2
_COPY_ATTEMPTS = 5

# A single node that does not wait for others; a group's first member need not wait either.
_SETTINGS = {
    "broker.id": "0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
}
_OURS = ("listeners", "port", "host.name", "log.dir", "log.dirs", "zookeeper.connect")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A broker's data at one moment; good as long as the broker that took it is there."""

    directory: Path


class KafkaBroker:
    """One broker; start it with `start` or `with`."""

    def __init__(
        self,
        *,
        topics: Iterable[str] = (),
        settings: Mapping[str, object] | None = None,
        kctl_as_version: str = NATIVE,
    ) -> None:
        """`topics`: "name" or "name:partitions"; `settings`: of Kafka's server.properties.

        `kctl_as_version`: the release of Apache Kafka whose versions of each API it speaks.
        UsageError where one of them makes no sense.
        """
        self.kctl_as_version = kctl_as_version
        self._seeds = [parse_topic(text) for text in _several(topics)]
        self._served = served_as(kctl_as_version)
        self._settings = _checked(settings or {})
        self._config("unused", 0)
        self._faults = RequestFaults()
        self._log = _LogLines()
        self._home: Path | None = None
        self._port = 0
        self._snapshots = 0
        self._loop: LoopThread | None = None
        self._broker: Broker | None = None

    # --- life --------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start it and make its topics; ready for clients when it returns. KctlError."""
        if self._loop is not None:
            raise UsageError("the broker runs already")
        if self._home is None:
            self._home = Path(tempfile.mkdtemp(prefix="kctl-"))
        try:
            self._start()
            self._call(self._running().create_topics, self._seeds)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop it and remove its data; harmless when it does not run."""
        try:
            self._stop()
        finally:
            if self._home is not None:
                shutil.rmtree(self._home, ignore_errors=True)
                self._home = None

    def restart(self, *, clean: bool = True) -> None:
        """Stop and start with the same data and port: clients lose their connections.

        Not `clean`: as after `kill -9`, which leaves what was written, and recovery to do.
        """
        crash_image = None if clean else self._crash_image()
        self._stop()
        if crash_image is not None:
            self._replace_data(crash_image)
        self._start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- what it is --------------------------------------------------------------------------

    @property
    def host(self) -> str:
        """Where it listens."""
        return "127.0.0.1"

    @property
    def port(self) -> int:
        """A free port, chosen at the first start."""
        self._running()
        return self._port

    @property
    def bootstrap_servers(self) -> str:
        """What clients are configured with: "127.0.0.1:PORT"."""
        return f"{self.host}:{self.port}"

    @property
    def log_lines(self) -> list[str]:
        """What the broker had to say, the last lines."""
        return list(self._log.lines)

    @property
    def log_directory(self) -> Path:
        """Where its segment files are, a directory a partition."""
        return self._data / "logs"

    @property
    def topics(self) -> dict[str, int]:
        """Name -> partitions, internal topics left out."""

        def look(services: Services) -> dict[str, int]:
            cache = services.metadata_cache
            return {name: cache.partition_count(name) or 0 for name in cache.topics()}

        found = self._call(look, self._services())
        return {name: count for name, count in found.items() if not name.startswith("__")}

    # --- topics and records ------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int = 1, *, configs: Mapping[str, object] | None = None
    ) -> None:
        """Create a topic and wait until it can be used; KctlError, for one that exists too."""

        async def create(services: Services) -> None:
            overrides: dict[str, str | None] = {k: str(v) for k, v in (configs or {}).items()}
            await services.topic_creator.create(NewTopic(name, partitions, 1, configs=overrides))
            await self._running().create_topics([(name, partitions)])

        self._call(create, self._services())

    def records(self, topic: str, partition: int | None = None) -> list[Record]:
        """All committed records of a topic, or of one of its partitions, in the order of
        partitions, then of offsets. UsageError if there is no such topic."""
        found = self._call(records_of, self._services(), topic, {})
        return [it for it in found if partition is None or it.partition == partition]

    def produce(
        self,
        topic: str,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp: int | None = None,
    ) -> Record:
        """Write one record without a client; returns it as it lies in the topic.

        Text becomes UTF-8; the partition is that of the key, as clients choose it. KctlError.
        """
        services = self._services()
        when_ms = services.runtime.clock.wall_ms() if timestamp is None else timestamp
        record = (_as_bytes(key), _as_bytes(value), headers, when_ms)
        written: Record = self._call(append, services, topic, partition, record)
        return written

    def assert_produces(
        self, topic: str, count: int | None = None, timeout: float = 10.0
    ) -> ProducedRecords:
        """A context whose end waits until its body has brought `count` new records to `topic`.

        AssertionError if there are fewer after `timeout` seconds, or more; without `count`, if
        there are none. `with` gives a list that has the records afterwards. In a coroutine:
        `async with`.
        """
        return ProducedRecords(self, topic, count, timeout)

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Partition -> the offset that its next record gets; empty if there is no such topic."""
        ends: dict[int, int] = self._call(end_offsets, self._services(), topic)
        return ends

    def records_since(self, topic: str, first_offsets: Mapping[int, int]) -> list[Record]:
        """As `records`, from `first_offsets` (partition -> offset) on."""
        found: list[Record] = self._call(records_of, self._services(), topic, dict(first_offsets))
        return found

    def wait_for_records(
        self, topic: str, first_offsets: Mapping[int, int], count: int, timeout: float
    ) -> bool:
        """Wait until `count` records have come since `first_offsets`; whether they have."""

        async def wait(services: Services) -> bool:
            clock = services.runtime.clock
            deadline_ms = clock.monotonic_ms() + int(timeout * 1000)
            while True:
                ends = end_offsets(services, topic)
                if sum(end - first_offsets.get(p, 0) for p, end in ends.items()) >= count:
                    return True
                if clock.monotonic_ms() >= deadline_ms:
                    return False
                await sleep(services.runtime.scheduler, POLL_MS)

        have_come: bool = self._call(wait, self._services(), timeout_s=timeout + CALL_TIMEOUT_S)
        return have_come

    # --- what goes wrong ---------------------------------------------------------------------

    def inject_error(
        self, api: ApiKey | str, error: ErrorCode | str | int, times: int | None = 1
    ) -> "Injection":
        """Refuse the next `times` requests of an API (None: all); nothing is done of them.

        E.g. `inject_error("Produce", "NOT_LEADER_OR_FOLLOWER")`. In a `with`, what is left of it
        ends with the block. UsageError for names that Kafka does not have.
        """
        return self._inject(FaultKind.ERROR, api, times, error_code=error_named(error))

    def inject_latency(
        self, api: ApiKey | str, latency_ms: int, times: int | None = None
    ) -> "Injection":
        """Look at the next `times` requests of an API (None: all) only `latency_ms` milliseconds
        after they came."""
        if latency_ms < 0:
            raise UsageError(f"a latency of {latency_ms} ms")
        return self._inject(FaultKind.LATENCY, api, times, latency_ms=latency_ms)

    def inject_disconnect(
        self, api: ApiKey | str, times: int | None = 1, *, handled: bool = False
    ) -> "Injection":
        """Close the connection instead of answering the next `times` requests of an API (None:
        all). With `handled` the broker has done what was asked: only the answer is lost."""
        kind = FaultKind.LOST_ANSWER if handled else FaultKind.DISCONNECT
        return self._inject(kind, api, times)

    def clear_faults(self) -> None:
        """Nothing that was injected happens any more."""
        self._call(self._faults.clear)

    def request_count(self, api: ApiKey | str) -> int:
        """How many requests of an API have come from clients so far."""
        return self._faults.request_counts.get(api_named(api), 0)

    def _inject(
        self,
        kind: FaultKind,
        api: ApiKey | str,
        times: int | None,
        *,
        error_code: ErrorCode = ErrorCode.NONE,
        latency_ms: int = 0,
    ) -> "Injection":
        if times is not None and times < 1:
            raise UsageError(f"a fault that happens {times} times")
        fault = InjectedFault(kind, api_named(api), times, error_code, latency_ms)
        self._call(self._faults.add, fault)
        return Injection(self, fault)

    def remove_fault(self, fault: InjectedFault) -> None:
        """What `Injection` does at its end."""
        self._call(self._faults.remove, fault)

    # --- snapshots ---------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Keep topics, records, groups and settings as they are now, for `restore`.

        The broker stops for it and starts again: clients lose their connections.
        """
        self._running()
        self._stop()
        try:
            return Snapshot(self._copy_of_data())
        finally:
            self._start()

    def restore(self, snapshot: Snapshot) -> None:
        """Everything is again as when `snapshot` was taken; clients lose their connections.

        A snapshot of another broker will do, while that one runs. UsageError if it is gone.
        """
        self._running()
        if not snapshot.directory.is_dir():
            raise UsageError("the snapshot is gone: it goes with the broker that took it")
        self._stop()
        shutil.rmtree(self._data)
        shutil.copytree(snapshot.directory, self._data)
        self._start()

    # --- inside ------------------------------------------------------------------------------

    @property
    def _data(self) -> Path:
        if self._home is None:
            raise _not_running()
        return self._home / "data"

    def _config(self, directory: str, port: int) -> BrokerConfig:
        properties = {
            **_SETTINGS,
            **self._settings,
            "listeners": f"PLAINTEXT://{self.host}:{port}",
            "log.dirs": f"{directory}/logs",
        }
        return BrokerConfig.from_properties(properties, strict=self._settings)

    def _start(self) -> None:
        config = self._config(str(self._data), self._port)
        loop = self._loop = LoopThread("kctl-broker", self._log)
        broker = self._broker = Broker(
            loop.runtime,
            config,
            str(self._data / "metadata"),
            served=self._served,
            interceptor=self._faults.interceptor(loop.runtime.scheduler),
        )
        try:
            self._call(broker.start)
        except BaseException:
            self._stop()
            raise
        self._port = broker.endpoints[0].port

    def _stop(self) -> None:
        loop, broker = self._loop, self._broker
        self._loop = self._broker = None
        if loop is None:
            return
        try:
            if broker is not None:
                loop.call(self._faults.let_go, timeout_s=CALL_TIMEOUT_S)
                loop.call(broker.shutdown, timeout_s=CALL_TIMEOUT_S)
        finally:
            loop.close(CALL_TIMEOUT_S)

    def _crash_image(self) -> Path:
        """A copy of the data as they are, while the broker runs but does nothing else."""
        image: Path = self._call(self._copy_of_data)
        return image

    def _replace_data(self, directory: Path) -> None:
        shutil.rmtree(self._data)
        directory.rename(self._data)

    def _copy_of_data(self) -> Path:
        self._snapshots += 1
        copy = self._data.with_name(f"snapshot-{self._snapshots}")
        for attempt in range(1, _COPY_ATTEMPTS + 1):
            try:
                shutil.copytree(self._data, copy)
            except (OSError, shutil.Error) as error:
                # A background job of the broker removed what was about to be copied.
                shutil.rmtree(copy, ignore_errors=True)
                if attempt == _COPY_ATTEMPTS:
                    raise StorageError(f"the broker's data cannot be copied: {error}") from error
            else:
                break
        return copy

    def _running(self) -> Broker:
        if self._broker is None:
            raise _not_running()
        return self._broker

    def _services(self) -> Services:
        services = self._running().services
        if services is None:
            raise _not_running()
        return services

    def _call(
        self, function: Callable[..., Any], *args: object, timeout_s: float = CALL_TIMEOUT_S
    ) -> Any:
        if self._loop is None:
            raise _not_running()
        return self._loop.call(function, *args, timeout_s=timeout_s)


class Injection:
    """A fault that was injected; in a `with`, what is left of it ends with the block."""

    def __init__(self, broker: KafkaBroker, fault: InjectedFault) -> None:
        self._broker = broker
        self._fault = fault

    @property
    def hits(self) -> int:
        """Requests that met it so far."""
        return self._fault.hits

    def remove(self) -> None:
        """It happens no more."""
        self._broker.remove_fault(self._fault)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class _LogLines:
    """A Trace that keeps the last lines."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=LOG_LINES_MAX)

    def event(self, name: str, /, **fields: object) -> None:
        """Not kept."""

    def info(self, message: str) -> None:
        """Keep it."""
        self.lines.append(f"INFO {message}")

    def warning(self, message: str) -> None:
        """Keep it."""
        self.lines.append(f"WARN {message}")


def parse_topic(text: str) -> tuple[str, int]:
    """Name and partitions of "orders:3" or "orders"; UsageError."""
    name, colon, count = text.strip().partition(":")
    if not name or (colon and not (count.isdecimal() and int(count) > 0)):
        raise UsageError(f"Not a topic to seed: {text!r}", hint='e.g. "orders:3"')
    return name, int(count) if colon else 1


def _several(topics: Iterable[str]) -> Iterable[str]:
    if isinstance(topics, str):
        raise UsageError(f"topics={topics!r} is a text", hint=f"a list of them: [{topics!r}]")
    return topics


def _checked(settings: Mapping[str, object]) -> dict[str, str]:
    for name in settings:
        if name in _OURS:
            raise UsageError(f"{name} is for the fixture to choose")
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in settings.items()
    }


def _as_bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _not_running() -> KctlError:
    return UsageError("the broker does not run", hint="start() it, or use it in its `with`")
