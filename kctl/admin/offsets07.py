"""Offsets of brokers of Kafka 0.7, which are positions in bytes, by 0.7's own protocol.

Kafka 0.7: kafka.tools.{GetOffsetShell, ConsumerOffsetChecker}
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from kctl.client.reading_connection07 import ReadingConnection07
from kctl.client.router import UNREACHABLE_HINT
from kctl.errors import KctlError, TimedOutError, UnreachableError
from kctl.protocol.kafka07 import EARLIEST_TIME, LATEST_TIME
from kctl.runtime.future import gather
from kctl.runtime.runtime import Runtime
from kctl.store import znodes
from kctl.store.broker07_znodes import decode_broker, is_broker07
from kctl.store.consumer_znodes import BrokerPartition, ConsumedPartition
from kctl.store.znode_client import ZnodeClient

T = TypeVar("T")

# A broker that has failed so often in a row is not asked for further partitions.
FAILURES_MAX = 3


class LogEnds07(NamedTuple):
    """Where the log of a partition begins and ends; None where it is unknown, with the reason."""

    start: int | None
    end: int | None
    error: KctlError | None = None


class Offsets07(NamedTuple):
    """Offsets by topic and partition, descending, and the errors of the other partitions."""

    offsets: dict[tuple[str, int], list[int]]
    errors: dict[tuple[str, int], KctlError]


async def offsets_before(
    runtime: Runtime,
    host: str,
    port: int,
    partitions: Iterable[tuple[str, int]],
    time_ms: int,
    max_offsets: int,
    timeout_ms: int,
) -> Offsets07:
    """Return what the broker at `host:port` answers for a time (or LATEST_TIME, EARLIEST_TIME).

    A request without an answer within `timeout_ms` is an error of its partition. Raise
    UnreachableError if there is no connection.
    """
    found = Offsets07({}, {})

    async def ask(connection: ReadingConnection07, topic: str, partition: int) -> list[int]:
        return await connection.offsets_before(topic, partition, time_ms, max_offsets)

    connection = ReadingConnection07(runtime, host, port, timeout_ms)
    try:
        await connection.open()
    except UnreachableError as error:
        raise UnreachableError(str(error), hint=UNREACHABLE_HINT) from None
    async for item, outcome in _each(connection, partitions, ask):
        if isinstance(outcome, KctlError):
            found.errors[item] = outcome
        else:
            found.offsets[item] = outcome
    return found


async def log_ends(
    runtime: Runtime,
    store: ZnodeClient,
    partitions: Iterable[ConsumedPartition],
    timeout_ms: int,
) -> dict[ConsumedPartition, LogEnds07]:
    """Return the ends of logs, asked of the brokers that are registered in `store`, at once.

    All `partitions` are of Kafka 0.7. A broker that is not registered or does not answer within
    `timeout_ms` is an error of its partitions.
    """
    by_broker: dict[int, list[ConsumedPartition]] = {}
    for it in partitions:
        assert isinstance(it.partition, BrokerPartition)
        by_broker.setdefault(it.partition.broker_id, []).append(it)
    registered = await store.get_all(map(znodes.broker_path, by_broker))
    answers = await gather(
        runtime.scheduler,
        [
            _ends_on(runtime, broker_id, answer[0] if answer else None, wanted, timeout_ms)
            for (broker_id, wanted), answer in zip(by_broker.items(), registered, strict=True)
        ],
    )
    return {it: ends for found in answers for it, ends in found.items()}


async def _ends_on(
    runtime: Runtime,
    broker_id: int,
    registration: bytes | None,
    partitions: list[ConsumedPartition],
    timeout_ms: int,
) -> Mapping[ConsumedPartition, LogEnds07]:
    try:
        if registration is None or not is_broker07(registration):
            raise KctlError(f"No broker {broker_id} of Kafka 0.7 is registered")
        broker = decode_broker(broker_id, registration)
    except KctlError as error:
        return dict.fromkeys(partitions, LogEnds07(None, None, error))
    connection = ReadingConnection07(runtime, broker.host, broker.port, timeout_ms)
    found: dict[ConsumedPartition, LogEnds07] = {}
    numbers = [
        (topic, place.partition)
        for topic, place in partitions
        if isinstance(place, BrokerPartition)
    ]
    async for (topic, number), outcome in _each(connection, numbers, _ends):
        found[ConsumedPartition(topic, BrokerPartition(broker_id, number))] = (
            outcome if isinstance(outcome, LogEnds07) else LogEnds07(None, None, outcome)
        )
    return found


async def _each(
    connection: ReadingConnection07,
    partitions: Iterable[tuple[str, int]],
    ask: Callable[[ReadingConnection07, str, int], Awaitable[T]],
) -> AsyncIterator[tuple[tuple[str, int], T | KctlError]]:
    """Yield what `ask` returns for each partition, or its error; close the connection.

    A broker closes the connection of a request for a partition that it cannot have, so that a
    failure alone does not mean that it is gone.
    """
    failures: list[KctlError] = []
    try:
        for topic, partition in partitions:
            if len(failures) >= FAILURES_MAX:
                yield (topic, partition), failures[-1]
                continue
            try:
                outcome = await ask(connection, topic, partition)
            except KctlError as error:
                # What is silent is waited for once.
                failures += [error] * (FAILURES_MAX if isinstance(error, TimedOutError) else 1)
                yield (topic, partition), error
            else:
                failures.clear()
                yield (topic, partition), outcome
    finally:
        connection.close()


async def _ends(connection: ReadingConnection07, topic: str, partition: int) -> LogEnds07:
    ends = [
        await connection.offsets_before(topic, partition, time_ms, 1)
        for time_ms in (EARLIEST_TIME, LATEST_TIME)
    ]
    start, end = (found[0] if found else None for found in ends)
    return LogEnds07(start, end)
