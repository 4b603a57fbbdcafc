"""How a simple consumer asks one broker: on the wire of Kafka 0.7, and on that of 0.8 and later.

A wire sends each request once. It answers a fetch with sets whose errors are values; what
concerns a whole request is raised.

Kafka: kafka.consumer.SimpleConsumer of 0.7 to 1.1
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from kctl.client.broker_channel import BrokerChannel
from kctl.client.offsets import OffsetsClient, commit_codes, commit_topics
from kctl.client.old_brokers import ChannelOpener, OldRelease, VersionFallback
from kctl.client.reading_connection07 import RESPONSE_BYTES_MAX, ReadingConnection07
from kctl.client.results import error_of, raise_for
from kctl.client.router import Router
from kctl.client.security import ClientSecurity
from kctl.errors import UnsupportedVersionError, UsageError
from kctl.kafka.message_set import FetchRequest, Format07, FormatToday, MessageSet
from kctl.kafka.offsets import OffsetsStorage
from kctl.model import TopicPartition
from kctl.protocol import kafka07
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.constants import CONSUMER_REPLICA_ID, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages import fetch as fetches
from kctl.protocol.messages import list_offsets as listings
from kctl.protocol.messages.offset_commit import OffsetCommitRequest
from kctl.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kctl.runtime.runtime import Runtime

# Version 0 of OffsetCommit and OffsetFetch: the broker keeps the offsets in ZooKeeper.
_ZOOKEEPER_VERSION = 0
# The only version of ListOffsets that lists several offsets.
_SEVERAL_OFFSETS_VERSION = 0


class SimpleWire(Protocol):
    """One broker, in its own language; sizes of requests are set."""

    async def fetch(
        self, requests: Sequence[FetchRequest], max_wait_ms: int, min_bytes: int
    ) -> list[MessageSet]:
        """Return a set per request, in order."""
        ...

    async def offsets_before(
        self, topic: str, partition: int, time_ms: int, max_offsets: int
    ) -> list[int]:
        """Return offsets of segments before a time, descending."""
        ...

    async def commit(
        self, group: str, offsets: Mapping[TopicPartition, int], storage: OffsetsStorage
    ) -> dict[TopicPartition, int]:
        """Commit; return the error codes."""
        ...

    async def committed(
        self, group: str, partitions: Iterable[TopicPartition], storage: OffsetsStorage
    ) -> dict[TopicPartition, int]:
        """Return the committed offsets of the partitions that have one."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class SimpleWire07:
    """A broker of Kafka 0.7."""

    def __init__(self, runtime: Runtime, host: str, port: int, timeout_ms: int) -> None:
        self._connection = ReadingConnection07(runtime, host, port, timeout_ms)

    async def fetch(
        self, requests: Sequence[FetchRequest], max_wait_ms: int, min_bytes: int
    ) -> list[MessageSet]:
        """See SimpleWire; a single request is a FETCH, several are a MULTIFETCH."""
        if max_wait_ms or min_bytes:
            raise UsageError("a broker of Kafka 0.7 answers at once: it cannot wait for messages")
        parts = [
            kafka07.FetchRequest(it.topic, it.partition, it.offset, _size(it)) for it in requests
        ]
        if len(parts) == 1:
            answers = [kafka07.decode_fetch_answer(await self._connection.ask(parts[0]))]
        else:
            frame = await self._connection.ask(kafka07.MultiFetchRequest(parts))
            answers = kafka07.decode_multifetch_answer(frame)
        if len(answers) != len(requests):
            raise ApiError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"{len(answers)} answers to {len(requests)} fetches"
            )
        return [
            MessageSet(request, bytes(answer.message_set), Format07, error=error_of(answer.error))
            for request, answer in zip(requests, answers, strict=True)
        ]

    async def offsets_before(
        self, topic: str, partition: int, time_ms: int, max_offsets: int
    ) -> list[int]:
        """See SimpleWire."""
        return await self._connection.offsets_before(topic, partition, time_ms, max_offsets)

    async def commit(
        self, group: str, offsets: Mapping[TopicPartition, int], storage: OffsetsStorage
    ) -> dict[TopicPartition, int]:
        """Raise UsageError."""
        del group, offsets, storage
        raise self._no_offsets()

    async def committed(
        self, group: str, partitions: Iterable[TopicPartition], storage: OffsetsStorage
    ) -> dict[TopicPartition, int]:
        """Raise UsageError."""
        del group, partitions, storage
        raise self._no_offsets()

    def close(self) -> None:
        """See SimpleWire."""
        self._connection.close()

    def _no_offsets(self) -> UsageError:
        return UsageError("brokers of Kafka 0.7 keep no offsets of groups: those are in ZooKeeper")


class SimpleWireToday:
    """A broker of Kafka 0.8 or later."""

    def __init__(
        self,
        runtime: Runtime,
        host: str,
        port: int,
        timeout_ms: int,
        *,
        client_id: str,
        properties: Mapping[str, str],
    ) -> None:
        self._runtime = runtime
        self._address = host, port
        self._timeout_ms = timeout_ms
        self._client_id = client_id
        self._security = ClientSecurity.of(properties)
        self._fallback = VersionFallback.of(properties)
        self._opener = ChannelOpener(
            runtime, self._make, self._fallback, may_fall_back=self._security.login is None
        )
        self._channel: BrokerChannel | None = None
        # For coordinators of groups, which are on other brokers.
        self._router: Router | None = None

    async def fetch(
        self, requests: Sequence[FetchRequest], max_wait_ms: int, min_bytes: int
    ) -> list[MessageSet]:
        """See SimpleWire; a Fetch names a partition once, so repeated ones are further requests."""
        channel = await self._open()
        sets: dict[int, MessageSet] = {}
        for group in _rounds(requests):
            message = fetches.FetchRequest(
                replica_id=CONSUMER_REPLICA_ID,
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=RESPONSE_BYTES_MAX,
                topics=_fetch_topics(group.values()),
            )
            response = await channel.send(message, timeout_ms=self._timeout_ms + max_wait_ms)
            raise_for(response.error_code)
            answers = {
                (topic.topic, item.partition): item
                for topic in response.responses
                for item in topic.partition_responses
            }
            for index, request in group.items():
                sets[index] = _set_of(request, answers.get((request.topic, request.partition)))
        return [sets[index] for index in range(len(requests))]

    async def offsets_before(
        self, topic: str, partition: int, time_ms: int, max_offsets: int
    ) -> list[int]:
        """See SimpleWire. Brokers of Kafka 4.0 and later know the two ends of a log only."""
        channel = await self._open()
        asked = listings.ListOffsetPartition(
            partition_index=partition, timestamp=time_ms, max_num_offsets=max_offsets
        )
        request = listings.ListOffsetRequest(
            replica_id=CONSUMER_REPLICA_ID,
            topics=[listings.ListOffsetTopic(name=topic, partitions=[asked])],
        )
        several = channel.speaks(ApiKey.LIST_OFFSETS, _SEVERAL_OFFSETS_VERSION)
        if not several and time_ms not in (LATEST_TIMESTAMP, EARLIEST_TIMESTAMP):
            raise UnsupportedVersionError(
                "brokers since Kafka 4.0 do not list the offsets of segments by time",
                hint="ask for LATEST_TIME or EARLIEST_TIME, or use Consumer.offsets_for_times",
            )
        version = _SEVERAL_OFFSETS_VERSION if several else None
        answer = (await channel.send(request, version)).topics[0].partitions[0]
        raise_for(answer.error_code)
        return list(answer.old_style_offsets) if several else [answer.offset][:max_offsets]

    async def commit(
        self, group: str, offsets: Mapping[TopicPartition, int], storage: OffsetsStorage
    ) -> dict[TopicPartition, int]:
        """See SimpleWire: to ZooKeeper through this broker, or to the group's coordinator."""
        request = OffsetCommitRequest(group_id=group, topics=commit_topics(offsets))
        if storage is OffsetsStorage.ZOOKEEPER:
            channel = await self._open()
            response = await channel.send(request, _ZOOKEEPER_VERSION)
        else:
            router = await self._coordinators()
            response = await router.send_to_coordinator(group, request)
        return commit_codes(response)

    async def committed(
        self, group: str, partitions: Iterable[TopicPartition], storage: OffsetsStorage
    ) -> dict[TopicPartition, int]:
        """See SimpleWire."""
        if storage is OffsetsStorage.KAFKA:
            found = await OffsetsClient(await self._coordinators()).committed(group, partitions)
            for item in found.values():
                if item.error is not None:
                    raise item.error
            return {partition: it.offset for partition, it in found.items() if it.offset >= 0}
        topics: dict[str, list[int]] = {}
        for topic, number in partitions:
            topics.setdefault(topic, []).append(number)
        request = OffsetFetchRequest(
            group_id=group,
            topics=[
                OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
                for topic, numbers in topics.items()
            ],
        )
        channel = await self._open()
        return _stored(await channel.send(request, _ZOOKEEPER_VERSION))

    def close(self) -> None:
        """See SimpleWire."""
        if self._channel is not None:
            self._channel.close()
        if self._router is not None:
            self._router.close()

    async def _open(self) -> BrokerChannel:
        if self._channel is None or not self._channel.is_usable:
            self._channel = await self._opener.open(self._address, self._timeout_ms)
        return self._channel

    def _make(self, address: tuple[str, int], release: OldRelease | None) -> BrokerChannel:
        return BrokerChannel(
            self._runtime,
            *address,
            client_id=self._client_id,
            request_timeout_ms=self._timeout_ms,
            security=self._security,
            explains_refusals=True,
            versions=None if release is None else release.versions(f"{address[0]}:{address[1]}"),
        )

    async def _coordinators(self) -> Router:
        channel = await self._open()
        if not channel.has_api(ApiKey.OFFSET_COMMIT, _ZOOKEEPER_VERSION + 1):
            raise UnsupportedVersionError(
                f"{channel.name} is older than Kafka 0.8.2: it keeps offsets in ZooKeeper",
                hint="use OffsetsStorage.ZOOKEEPER",
            )
        if self._router is None:
            self._router = Router(
                self._runtime,
                [self._address],
                client_id=self._client_id,
                timeout_ms=self._timeout_ms,
                security=self._security,
                fallback=self._fallback,
            )
        return self._router


def _size(request: FetchRequest) -> int:
    if request.fetch_size is None:
        raise ValueError("a fetch without a size")
    return request.fetch_size


def _rounds(requests: Sequence[FetchRequest]) -> list[dict[int, FetchRequest]]:
    """Return the requests by their indexes, in groups in which no partition comes twice."""
    rounds: list[dict[int, FetchRequest]] = []
    times: dict[tuple[str, int], int] = {}
    for index, request in enumerate(requests):
        number = times.get((request.topic, request.partition), 0)
        times[request.topic, request.partition] = number + 1
        if number == len(rounds):
            rounds.append({})
        rounds[number][index] = request
    return rounds


def _fetch_topics(requests: Iterable[FetchRequest]) -> list[fetches.FetchTopic]:
    topics: dict[str, list[fetches.FetchPartition]] = {}
    for request in requests:
        topics.setdefault(request.topic, []).append(
            fetches.FetchPartition(
                partition=request.partition,
                fetch_offset=request.offset,
                partition_max_bytes=_size(request),
            )
        )
    return [fetches.FetchTopic(topic=name, partitions=items) for name, items in topics.items()]


def _set_of(request: FetchRequest, item: Any) -> MessageSet:
    if item is None:
        lack = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker left out a partition")
        return MessageSet(request, b"", FormatToday, error=lack)
    return MessageSet(
        request,
        bytes(item.record_set or b""),
        FormatToday,
        error=error_of(item.error_code),
        high_watermark=item.high_watermark,
    )


def _stored(response: Any) -> dict[TopicPartition, int]:
    """Return the offsets of an OffsetFetch v0, for which a partition without one is an error."""
    found = {}
    for topic in response.topics:
        for item in topic.partitions:
            if item.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                raise ApiError(item.error_code)
            if item.committed_offset >= 0:
                found[TopicPartition(topic.name, item.partition_index)] = item.committed_offset
    return found
