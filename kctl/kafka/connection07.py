"""The producer's connections to brokers of Kafka 0.7: one per broker, made when it is needed.

A produce request has no answer. It counts as sent when the operating system has taken all of it; a
broker that dies then loses it without notice. A connection that breaks is noticed when the system
reports it, and the next request makes a new one.

Behind a load balancer a connection would stay with one broker for ever, so it is replaced after
`reconnect.interval` requests, and after `reconnect.time.interval.ms`, first at a random moment.

Kafka 0.7: kafka.producer.{SyncProducer, ProducerPool}
"""

from collections.abc import Mapping

from kctl.errors import TimedOutError, UnreachableError
from kctl.kafka.producer_config import ProducerConfig
from kctl.runtime.future import Future, wait_at_most
from kctl.runtime.network import Transport
from kctl.runtime.runtime import Runtime
from kctl.store.broker07_znodes import BrokerInfo07

# For bytes that brokers should not send, and which are dropped.
_SCRATCH_BYTES = 4096


class ProducerConnection07:
    """A connection to `broker` for produce requests; call `connect` first."""

    def __init__(self, runtime: Runtime, broker: BrokerInfo07) -> None:
        self.broker = broker
        self.requests = 0
        self.is_usable = False
        self._runtime = runtime
        self._transport: Transport | None = None
        self._scratch = bytearray(_SCRATCH_BYTES)
        self._sent: Future[None] | None = None

    async def connect(self, timeout_ms: int) -> None:
        """Connect; raise UnreachableError."""
        try:
            await self._runtime.network.connect(
                self.broker.host, self.broker.port, self._attach, timeout_ms
            )
        except UnreachableError as error:
            raise type(error)(
                f"broker {self.broker.broker_id}: {error}", hint=error.hint
            ) from error
        self.is_usable = True

    async def send(self, frame: bytes, timeout_ms: int) -> None:
        """Send `frame`, whole; raise UnreachableError, after which the connection is not usable."""
        if not self.is_usable or self._transport is None:
            raise self._lost(None)
        self.requests += 1
        self._transport.send([frame])
        if not self._transport.unsent_bytes():
            return
        scheduler = self._runtime.scheduler
        self._sent = scheduler.future()
        self._transport.when_sent(self._all_sent)
        name = f"broker {self.broker.broker_id} at {self.broker.host}:{self.broker.port}"
        late = TimedOutError(f"{name} did not take a request within {timeout_ms} ms")
        try:
            await wait_at_most(scheduler, self._sent, timeout_ms, late)
        except TimedOutError:
            self.abort()
            raise
        finally:
            self._sent = None

    def close(self) -> None:
        """Close, once everything is sent."""
        self.is_usable = False
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self.is_usable = False
        if self._transport is not None:
            self._transport.abort()

    # Receiver

    def get_buffer(self) -> memoryview:
        """Return the buffer for bytes that nothing reads."""
        return memoryview(self._scratch)

    def buffer_updated(self, count: int) -> None:
        """Drop the bytes, which no broker of 0.7 sends to a producer."""

    def connection_lost(self, error: Exception | None) -> None:
        """Note that the broker is gone."""
        self.is_usable = False
        if self._sent is not None and not self._sent.done:
            self._sent.set_error(self._lost(error))

    def _attach(self, transport: Transport) -> "ProducerConnection07":
        self._transport = transport
        return self

    def _all_sent(self) -> None:
        if self._sent is not None and not self._sent.done:
            self._sent.set_result(None)

    def _lost(self, error: Exception | None) -> UnreachableError:
        broker = self.broker
        reason = f": {error}" if error is not None else ""
        return UnreachableError(
            f"the connection to broker {broker.broker_id} at {broker.host}:{broker.port} was"
            f" lost{reason}"
        )


class Pool07:
    """The connections of a producer, by broker."""

    def __init__(self, runtime: Runtime, config: ProducerConfig) -> None:
        self._runtime = runtime
        self._config = config
        self._connections: dict[int, ProducerConnection07] = {}
        # Broker id -> when its connection was made, in monotonic milliseconds.
        self._made_ms: dict[int, int] = {}
        # Broker id -> done when the connection that is being made is there, or has failed.
        self._connecting: dict[int, Future[None]] = {}

    @property
    def broker_ids(self) -> list[int]:
        """Return the brokers that have a connection."""
        return sorted(number for number, it in self._connections.items() if it.is_usable)

    async def send(self, broker: BrokerInfo07, frame: bytes) -> None:
        """Send `frame` to `broker`; raise UnreachableError."""
        connection = await self._connection(broker)
        await connection.send(frame, self._config.socket_timeout_ms)

    def follow(self, brokers: Mapping[int, BrokerInfo07]) -> None:
        """Close the connections to brokers that are gone or have moved."""
        for number, connection in list(self._connections.items()):
            known = brokers.get(number)
            address = (connection.broker.host, connection.broker.port)
            if known is None or (known.host, known.port) != address:
                connection.close()
                del self._connections[number]

    def close(self) -> None:
        """Close all connections, once what they have is sent."""
        self.follow({})

    async def _connection(self, broker: BrokerInfo07) -> ProducerConnection07:
        number = broker.broker_id
        # Requests of several threads overlap: one of them connects.
        while (connecting := self._connecting.get(number)) is not None:
            await connecting
        now_ms = self._runtime.clock.monotonic_ms()
        found = self._connections.get(number)
        if found is not None and found.is_usable and not self._is_due(found, now_ms):
            return found
        self._connections.pop(number, None)
        if found is not None:
            found.close()
        made = ProducerConnection07(self._runtime, broker)
        done = self._connecting[number] = self._runtime.scheduler.future()
        try:
            await made.connect(self._config.connect_timeout_ms)
        finally:
            del self._connecting[number]
            done.set_result(None)
        first = number not in self._made_ms
        self._made_ms[number] = now_ms
        limit_ms = self._config.reconnect_ms
        if first and limit_ms > 0:
            # Producers that started together do not reconnect together.
            self._made_ms[number] -= self._runtime.entropy.random_below(limit_ms)
        self._connections[number] = made
        return made

    def _is_due(self, connection: ProducerConnection07, now_ms: int) -> bool:
        requests_max: int = self._config.reconnect_requests
        limit_ms: int = self._config.reconnect_ms
        if 0 <= requests_max <= connection.requests:
            return True
        return 0 <= limit_ms <= now_ms - self._made_ms[connection.broker.broker_id]
