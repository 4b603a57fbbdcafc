"""KafkaBroker: a broker inside this process, which tests start, inspect and disturb.

    with KafkaBroker(topics=["orders:3"]) as broker:
        shop = Shop(broker.bootstrap_servers)
        with broker.assert_produces("orders", count=1):
            shop.sell("tea")

Its loop runs on a separate thread. Every method may be called from any other thread, and blocks
until the broker is done, which takes milliseconds. Data are in a temporary directory that is
removed with the broker. `log_lines` holds what the broker logs.

Invariants: the port stays the same from the first start to the end. A restart, a snapshot or a
restore closes connections, and `restart(clean=False)` skips the clean shutdown, but no record that
was acknowledged is lost.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from kctl.broker.broker import Broker
from kctl.broker.services import Services
from kctl.broker.topic_creation import NewTopic
from kctl.configs.authorizer_settings import with_authorizer
from kctl.configs.broker_config import BrokerConfig
from kctl.configs.sasl_settings import check_users, security_settings
from kctl.errors import KctlError, StorageError, UsageError
from kctl.export.options import Isolation
from kctl.lazy_dataclass import dataclass
from kctl.protocol.acl_text import parse_acls
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ErrorCode
from kctl.records.record import Header
from kctl.runtime.future import sleep
from kctl.runtime.real.loop_thread import LoopThread
from kctl.testing.broker_arguments import parse_topic, several
from kctl.testing.broker_certificates import certificates_for, tls_settings
from kctl.testing.client_configs import client_config, java_properties, kafka_python_config
from kctl.testing.expectation import ProducedRecords
from kctl.testing.kafka_versions import NATIVE, served_as
from kctl.testing.log_lines import LogLines
from kctl.testing.request_faults import (
    FaultKind,
    InjectedFault,
    RequestFaults,
    api_named,
    error_named,
)
from kctl.testing.topic_records import Record, append, end_offsets, records_of

__all__ = ["Injection", "KafkaBroker", "Snapshot"]

_CALL_TIMEOUT_S = 60.0
_POLL_MS = 2
_COPY_ATTEMPTS = 5
_READ_COMMITTED = Isolation.READ_COMMITTED

# For a single node: one replica, and the first member of a group does not wait for others.
_SETTINGS = {
    "broker.id": "0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
}
_RESERVED_SETTINGS = ("listeners", "port", "host.name", "log.dir", "log.dirs", "zookeeper.connect")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A broker's data at one moment; valid until the broker that took it is stopped."""

    directory: Path


class KafkaBroker:
    """One broker; start it with `start` or a `with` statement."""

    def __init__(
        self,
        *,
        topics: Iterable[str] = (),
        settings: Mapping[str, object] | None = None,
        kctl_as_version: str = NATIVE,
        users: Mapping[str, str] | None = None,
        acls: Iterable[str] | None = None,
        security: str | None = None,
    ) -> None:
        """Configure a broker; it does not run yet.

        `topics` are "name" or "name:partitions". `settings` are those of Kafka's server.properties.
        `kctl_as_version` is the release of Apache Kafka whose API versions it serves. With `users`,
        name -> password, clients must log in by SASL (`client_config`). `security="SSL"`, or
        "SASL_SSL" with users, makes certificates (extra `security`): clients must trust `ca_file`.
        With `acls`, such as "alice: Read,Describe topic:orders, Read group:*", they may do what
        these allow and nothing else; clients of a broker without users are the user ANONYMOUS.
        UsageError if an argument is invalid.
        """
        self._users = dict(users or {})
        if users is not None:
            check_users(self._users)
        self._certificates = certificates_for(security, has_users=bool(self._users))
        self.kctl_as_version = kctl_as_version
        self._seeds = [parse_topic(text) for text in several("topics", topics)]
        self._served = served_as(kctl_as_version)
        self._acls = [it for text in several("acls", acls or ()) for it in parse_acls(text)]
        self._settings = _checked(settings or {})
        if acls is not None:
            self._settings = with_authorizer(self._settings)
        self._config("unused", 0)
        self._faults = RequestFaults()
        self._log = LogLines()
        self._home: Path | None = None
        self._port = 0
        self._snapshots = 0
        self._loop: LoopThread | None = None
        self._broker: Broker | None = None

    # --- life cycle --------------------------------------------------------------------------

    def start(self) -> Self:
        """Start the broker and create its topics; clients can connect when it returns.

        KctlError if it does not start.
        """
        if self._loop is not None:
            raise UsageError("the broker is already running")
        if self._home is None:
            self._home = Path(tempfile.mkdtemp(prefix="kctl-"))
        try:
            if self._certificates is not None:
                (self._home / "ca.pem").write_text(self._certificates.ca)
            self._start()
            self._call(self._running().create_topics, self._seeds)
            self._call(self._running().set_passwords, self._users)
            acl_cache = self._services().acl_cache
            if acl_cache is not None:
                self._call(acl_cache.add, self._acls)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop the broker and remove its data; do nothing if it does not run."""
        try:
            self._stop()
        finally:
            if self._home is not None:
                shutil.rmtree(self._home, ignore_errors=True)
                self._home = None

    def restart(self, *, clean: bool = True) -> None:
        """Stop the broker and start it with the same data and port: clients lose their connections.

        With `clean=False` it recovers as after `kill -9`, from the data written so far; what it
        receives later is not acknowledged.
        """
        crash_image = None if clean else self._call(self._crash_image)
        self._stop()
        if crash_image is not None:
            self._replace_data(crash_image)
        self._start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- properties --------------------------------------------------------------------------

    @property
    def host(self) -> str:
        """Return the address of the listener."""
        return "127.0.0.1"

    @property
    def port(self) -> int:
        """Return the port, a free one chosen at the first start."""
        self._running()
        return self._port

    @property
    def bootstrap_servers(self) -> str:
        """Return the clients' bootstrap.servers: "127.0.0.1:PORT"."""
        return f"{self.host}:{self.port}"

    @property
    def ca_file(self) -> str | None:
        """Return the file of the CA that signed the broker's certificate; None without TLS."""
        if self._certificates is None or self._home is None:
            return None
        return str(self._home / "ca.pem")

    def client_config(self, user: str | None = None, *, mechanism: str = "PLAIN") -> dict[str, str]:
        """Return the settings of a client that logs in as `user`, for confluent-kafka; UsageError.

        `mechanism` is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. Without users the settings are the
        address only.
        """
        return client_config(self.bootstrap_servers, self._users, user, mechanism, self.ca_file)

    def kafka_python_config(
        self, user: str | None = None, *, mechanism: str = "PLAIN"
    ) -> dict[str, str]:
        """Return the same settings as keyword arguments of kafka-python, and without TLS of
        aiokafka, which takes `ssl_context=ssl.create_default_context(cafile=broker.ca_file)`
        instead of `ssl_cafile`."""
        return kafka_python_config(self.client_config(user, mechanism=mechanism))

    def java_properties(
        self, user: str | None = None, *, mechanism: str = "PLAIN"
    ) -> dict[str, str]:
        """Return the same settings as properties of Apache Kafka's clients and tools."""
        return java_properties(self.client_config(user, mechanism=mechanism))

    @property
    def log_lines(self) -> list[str]:
        """Return the last lines of the broker's log."""
        return list(self._log.lines)

    @property
    def log_directory(self) -> Path:
        """Return the directory of the segment files, with a directory per partition."""
        return self._data / "logs"

    @property
    def topics(self) -> dict[str, int]:
        """Return topic name -> number of partitions, without internal topics."""

        def count_partitions(services: Services) -> dict[str, int]:
            cache = services.metadata_cache
            return {name: cache.partition_count(name) or 0 for name in cache.topics()}

        found = self._call(count_partitions, self._services())
        return {name: count for name, count in found.items() if not name.startswith("__")}

    # --- topics and records ------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int = 1, *, configs: Mapping[str, object] | None = None
    ) -> None:
        """Create a topic and wait until clients can use it; KctlError, also if it exists."""

        async def create(services: Services) -> None:
            overrides: dict[str, str | None] = {k: str(v) for k, v in (configs or {}).items()}
            await services.topic_creator.create(NewTopic(name, partitions, 1, configs=overrides))
            await self._running().create_topics([(name, partitions)])

        self._call(create, self._services())

    def records(
        self, topic: str, partition: int | None = None, *, isolation: str = _READ_COMMITTED
    ) -> list[Record]:
        """Return the records of a topic or of one partition, ordered by partition and offset.

        They are what a consumer with isolation.level=read_committed receives: records of aborted
        transactions are left out, and so is everything after the beginning of an open one.
        `isolation="read_uncommitted"` returns all of them. UsageError if the topic does not exist.
        """
        found = self.records_since(topic, {}, isolation=isolation)
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
        """Write a record without a client, and return it as stored.

        Text is encoded as UTF-8. Without `partition`, the key selects it as in Kafka's clients.
        `timestamp` is in milliseconds. KctlError if the record is rejected.
        """
        services = self._services()
        when_ms = services.runtime.clock.wall_ms() if timestamp is None else timestamp
        record = (_as_bytes(key), _as_bytes(value), headers, when_ms)
        written: Record = self._call(append, services, topic, partition, record)
        return written

    def assert_produces(
        self,
        topic: str,
        count: int | None = None,
        timeout: float = 10.0,
        *,
        isolation: str = _READ_COMMITTED,
    ) -> ProducedRecords:
        """Return a context whose block must write `count` records to `topic`.

        The end of the block waits for them. AssertionError if there are fewer after `timeout`
        seconds, or more; without `count`, if there are none. The value of `with` is a list that
        holds the records afterwards. Records of open and aborted transactions count only with
        `isolation="read_uncommitted"`. In a coroutine, use `async with`.
        """
        return ProducedRecords(self, topic, count, timeout, _isolation(isolation))

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Return partition -> the offset of its next record; empty if the topic does not exist.

        Records and markers of transactions count, whether these are open, committed or aborted.
        """
        ends: dict[int, int] = self._call(end_offsets, self._services(), topic)
        return ends

    def records_since(
        self, topic: str, first_offsets: Mapping[int, int], *, isolation: str = _READ_COMMITTED
    ) -> list[Record]:
        """Return the records from `first_offsets` (partition -> offset) on, as `records` does."""
        found: list[Record] = self._call(
            records_of, self._services(), topic, dict(first_offsets), _isolation(isolation)
        )
        return found

    def wait_for_records(
        self,
        topic: str,
        first_offsets: Mapping[int, int],
        count: int,
        timeout: float,
        *,
        isolation: str = _READ_COMMITTED,
    ) -> bool:
        """Wait until `records_since` returns `count` records; return whether it does."""
        level = _isolation(isolation)
        seen: dict[int, int] = {}

        def are_written(services: Services) -> bool:
            # Offsets are no count of records: markers and aborted records have offsets too.
            nonlocal seen
            ends = end_offsets(services, topic, level)
            if sum(max(0, end - first_offsets.get(p, 0)) for p, end in ends.items()) < count:
                return False
            if ends == seen:
                return count == 0
            seen = ends
            return len(records_of(services, topic, dict(first_offsets), level)) >= count

        async def wait(services: Services) -> bool:
            clock = services.runtime.clock
            deadline_ms = clock.monotonic_ms() + int(timeout * 1000)
            while not are_written(services):
                if clock.monotonic_ms() >= deadline_ms:
                    return False
                await sleep(services.runtime.scheduler, _POLL_MS)
            return True

        were_written: bool = self._call(wait, self._services(), timeout_s=timeout + _CALL_TIMEOUT_S)
        return were_written

    # --- faults ------------------------------------------------------------------------------

    def inject_error(
        self, api: ApiKey | str, error: ErrorCode | str | int, times: int | None = 1
    ) -> "Injection":
        """Reject the next `times` requests of an API (None: all) without handling them.

        For example `inject_error("Produce", "NOT_LEADER_OR_FOLLOWER")`. In a `with` statement the
        fault ends with the block. UsageError for names that Kafka does not have.
        """
        return self._inject(FaultKind.ERROR, api, times, error_code=error_named(error))

    def inject_latency(
        self, api: ApiKey | str, latency_ms: int, times: int | None = None
    ) -> "Injection":
        """Delay the next `times` requests of an API (None: all) by `latency_ms` milliseconds."""
        if latency_ms < 0:
            raise UsageError(f"latency_ms={latency_ms}: a latency cannot be negative")
        return self._inject(FaultKind.LATENCY, api, times, latency_ms=latency_ms)

    def inject_disconnect(
        self, api: ApiKey | str, times: int | None = 1, *, handled: bool = False
    ) -> "Injection":
        """Close the connection instead of responding to the next `times` requests of an API (None:
        all).

        With `handled`, the broker handles the requests, and only the responses are lost.
        """
        kind = FaultKind.LOST_RESPONSE if handled else FaultKind.DISCONNECT
        return self._inject(kind, api, times)

    def clear_faults(self) -> None:
        """Remove all injected faults."""
        self._call(self._faults.clear)

    def request_count(self, api: ApiKey | str) -> int:
        """Return the number of requests of an API received from clients so far."""
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
            raise UsageError(f"times={times}: a fault must occur at least once")
        fault = InjectedFault(kind, api_named(api), times, error_code, latency_ms)
        self._call(self._faults.add, fault)
        return Injection(self, fault)

    def remove_fault(self, fault: InjectedFault) -> None:
        """Remove an injected fault; do nothing if it is used up."""
        self._call(self._faults.remove, fault)

    # --- snapshots ---------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Save topics, records, groups and settings as they are now, for `restore`.

        The broker is restarted: clients lose their connections.
        """
        self._running()
        self._stop()
        try:
            return Snapshot(self._copy_of_data())
        finally:
            self._start()

    def restore(self, snapshot: Snapshot) -> None:
        """Restore the state of `snapshot`; clients lose their connections.

        A snapshot of another broker works while that broker runs. UsageError if the snapshot no
        longer exists.
        """
        self._running()
        if not snapshot.directory.is_dir():
            raise UsageError(
                "the snapshot no longer exists: it is removed with the broker that took it"
            )
        self._stop()
        shutil.rmtree(self._data)
        shutil.copytree(snapshot.directory, self._data)
        self._start()

    # --- internals ---------------------------------------------------------------------------

    @property
    def _data(self) -> Path:
        if self._home is None:
            raise _not_running()
        return self._home / "data"

    def _config(self, directory: str, port: int) -> BrokerConfig:
        properties = {
            **_SETTINGS,
            **self._settings,
            **self._listener(port),
            "log.dirs": f"{directory}/logs",
        }
        return BrokerConfig.from_properties(properties, strict=self._settings)

    def _listener(self, port: int) -> dict[str, str]:
        address = f"{self.host}:{port}"
        tls = None if self._certificates is None else tls_settings(self._certificates)
        return security_settings(address, self._users, tls)

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
                loop.call(self._faults.let_go, timeout_s=_CALL_TIMEOUT_S)
                loop.call(broker.shutdown, timeout_s=_CALL_TIMEOUT_S)
        finally:
            loop.close(_CALL_TIMEOUT_S)

    def _crash_image(self) -> Path:
        """Copy the data on the loop, which is blocked meanwhile; the broker acknowledges nothing
        from then on, since the image would lack it."""
        image = self._copy_of_data()
        self._faults.cut_off()
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
                # A background job of the broker removed a file before it was copied.
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
        self, function: Callable[..., Any], *args: object, timeout_s: float = _CALL_TIMEOUT_S
    ) -> Any:
        if self._loop is None:
            raise _not_running()
        return self._loop.call(self._unless_killed, function, *args, timeout_s=timeout_s)

    def _unless_killed(self, function: Callable[..., Any], *args: object) -> Any:
        if self._faults.is_cut_off:
            raise _not_running()
        return function(*args)


class Injection:
    """An injected fault; in a `with` statement it ends with the block."""

    def __init__(self, broker: KafkaBroker, fault: InjectedFault) -> None:
        self._broker = broker
        self._fault = fault

    @property
    def hits(self) -> int:
        """Return the number of requests that met the fault so far."""
        return self._fault.hits

    def remove(self) -> None:
        """End the fault."""
        self._broker.remove_fault(self._fault)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def _checked(settings: Mapping[str, object]) -> dict[str, str]:
    for name in settings:
        if name in _RESERVED_SETTINGS:
            raise UsageError(f"{name} is set by KafkaBroker")
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in settings.items()
    }


def _isolation(text: str) -> Isolation:
    try:
        return Isolation(text)
    except ValueError:
        raise UsageError(
            f"isolation={text!r}", hint=" or ".join(repr(str(level)) for level in Isolation)
        ) from None


def _as_bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _not_running() -> KctlError:
    return UsageError(
        "the broker is not running", hint="call start(), or use it in a `with` statement"
    )
