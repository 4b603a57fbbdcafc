"""Router: finds the broker that must answer a request, sends the request, and retries.

The target is any broker, a given broker, the controller, a partition's leader, or the coordinator
of a group or transaction. The router keeps one BrokerChannel per address and one ClusterView. If a
response shows that metadata is outdated (NOT_CONTROLLER, NOT_COORDINATOR, NOT_LEADER_OR_FOLLOWER,
...), or a broker is gone, it refreshes metadata and retries by RetryPolicy until the deadline.

A request whose connection broke may have been carried out; it is retried nevertheless, as Kafka's
admin client does. Callers that must not repeat a request use a BrokerChannel.

Kafka 2.7: org.apache.kafka.clients.admin.KafkaAdminClient, org.apache.kafka.clients.Metadata
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from kctl.client.broker_channel import BrokerChannel, UnansweredError
from kctl.client.cluster_view import BrokerAddress, ClusterView
from kctl.client.old_brokers import ChannelOpener, OldRelease, VersionFallback
from kctl.client.retry import (
    WRONG_CONTROLLER,
    WRONG_COORDINATOR,
    WRONG_LEADER,
    RetryPolicy,
    first_error_among,
)
from kctl.client.security import NO_SECURITY, ClientSecurity
from kctl.errors import KctlError, TimedOutError, UnreachableError
from kctl.model import NO_LEADER, TopicPartition
from kctl.protocol.api_keys import Api, ApiKey
from kctl.protocol.constants import GROUP_KEY_TYPE
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.framing import ReclaimedBuffers
from kctl.protocol.messages.find_coordinator import FindCoordinatorRequest
from kctl.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kctl.protocol.schema import Message
from kctl.runtime.future import Task, gather, sleep
from kctl.runtime.runtime import Runtime

T = TypeVar("T")
Address = tuple[str, int]

DEFAULT_TIMEOUT_MS = 30_000
# An unreachable broker among the bootstrap servers must not use up the whole deadline.
CONNECT_MS_MIN = 1_000
# Rounds in which an unknown topic may still appear, as it may be being created.
UNKNOWN_TOPIC_ROUNDS = 4
# Responses of wrong leaders after which a topic's metadata is discarded, not merged: the topic may
# have been deleted and recreated, with leader epochs that start again.
WRONG_LEADERS_MAX = 3
# Connections in a row that end at their first request, before any broker has answered one: it is
# no broker that restarts.
UNANSWERED_MAX = 4

UNREACHABLE_HINT = "is the broker running, and is the address one of its listeners?"


class Router:
    """The brokers of one cluster, found through `bootstrap_servers`."""

    def __init__(
        self,
        runtime: Runtime,
        bootstrap_servers: Sequence[Address],
        *,
        client_id: str = "kctl",
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        retry: RetryPolicy | None = None,
        security: ClientSecurity = NO_SECURITY,
        reads_only: bool = False,
        fallback: VersionFallback | None = None,
    ) -> None:
        self.runtime = runtime
        self.view = ClusterView()
        # The deadline of a call that does not set one.
        self.timeout_ms = timeout_ms
        self._bootstrap_servers = list(bootstrap_servers)
        self._client_id = client_id
        self._security = security
        self._reads_only = reads_only
        self._retry = retry or RetryPolicy()
        self._fallback = fallback or VersionFallback()
        self._opener = ChannelOpener(
            runtime, self._make_channel, self._fallback,
            may_fall_back=security.login is None,
        )  # fmt: skip
        # Of large responses, which belong to the callers.
        self._buffers = ReclaimedBuffers()
        self._channels: dict[Address, BrokerChannel] = {}
        self._opening: dict[Address, Task[BrokerChannel]] = {}
        self._coordinators: dict[tuple[int, str], BrokerAddress] = {}
        # Topic -> consecutive responses of wrong leaders.
        self._wrong_leaders: dict[str, int] = {}
        self._was_connected = False
        self._is_closed = False

    def another(self) -> "Router":
        """Return a client of the same cluster with connections of its own; close it as well."""
        return Router(
            self.runtime,
            self._bootstrap_servers,
            client_id=self._client_id,
            timeout_ms=self.timeout_ms,
            retry=self._retry,
            security=self._security,
            reads_only=self._reads_only,
            fallback=self._fallback,
        )

    # Requests

    async def send_to_any(
        self, message: Message, version: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        """Send a request to the first broker that can be reached; return the response."""

        async def once(deadline_ms: int, _attempt: int) -> Any:
            channel = await self._any_channel(deadline_ms)
            return await channel.send(message, version, self._left_ms(deadline_ms))

        return await self._persist(once, timeout_ms)

    async def send_to_broker(
        self,
        broker_id: int,
        message: Message,
        version: int | None = None,
        timeout_ms: int | None = None,
    ) -> Any:
        """Send a request to broker `broker_id`; raise UnreachableError if the cluster has no such
        broker."""

        async def once(deadline_ms: int, attempt: int) -> Any:
            if attempt > 1 or broker_id not in self.view.brokers:
                await self._refresh([], deadline_ms)
            address = self.view.brokers.get(broker_id)
            if address is None:
                raise UnreachableError(f"broker {broker_id} is not in the cluster")
            channel = await self._channel(address, deadline_ms)
            return await channel.send(message, version, self._left_ms(deadline_ms))

        return await self._persist(once, timeout_ms)

    async def send_to_controller(
        self, message: Message, version: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        """Send a request to the current controller."""

        async def once(deadline_ms: int, attempt: int) -> Any:
            if attempt > 1 or self.view.controller() is None:
                await self._refresh([], deadline_ms)
            address = self.view.controller()
            if address is None:
                raise ApiError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller")
            channel = await self._channel(address, deadline_ms)
            response = await channel.send(message, version, self._left_ms(deadline_ms))
            return _checked(response, WRONG_CONTROLLER)

        return await self._persist(once, timeout_ms)

    async def send_to_coordinator(
        self,
        key: str,
        message: Message,
        key_type: int = GROUP_KEY_TYPE,
        version: int | None = None,
        timeout_ms: int | None = None,
    ) -> Any:
        """Send a request to the coordinator of group or transactional id `key`."""

        async def once(deadline_ms: int, attempt: int) -> Any:
            if attempt > 1:
                self._coordinators.pop((key_type, key), None)
            address = await self._coordinator(key, key_type, deadline_ms)
            channel = await self._channel(address, deadline_ms)
            response = await channel.send(message, version, self._left_ms(deadline_ms))
            return _checked(response, WRONG_COORDINATOR)

        return await self._persist(once, timeout_ms)

    async def send_to_leader(
        self,
        partition: TopicPartition,
        message: Message,
        version: int | None = None,
        timeout_ms: int | None = None,
    ) -> Any:
        """Send a request that concerns only `partition` to its leader."""

        async def once(deadline_ms: int, attempt: int) -> Any:
            address = await self._leader(partition, deadline_ms, attempt)
            channel = await self._channel(address, deadline_ms)
            response = await channel.send(message, version, self._left_ms(deadline_ms))
            code = first_error_among(response, WRONG_LEADER)
            self._note(partition.topic, code)
            if code is not None:
                raise ApiError(code)
            return response

        return await self._persist(once, timeout_ms)

    async def send_to_leaders(
        self,
        partitions: Iterable[TopicPartition],
        build: Callable[[list[TopicPartition]], Message],
        read: Callable[[Any], Iterable[tuple[TopicPartition, int, T]]],
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, T | KctlError]:
        """Send `build(partitions of one leader)` to every leader at once.

        `read` yields (partition, error code, value) for each partition of a response. Return, per
        partition, its value, or the error that remained at the deadline.
        """
        outcomes: dict[TopicPartition, T | KctlError] = dict.fromkeys(
            partitions, UnreachableError("not asked")
        )
        pending = sorted(outcomes)

        async def once(deadline_ms: int, attempt: int) -> None:
            nonlocal pending
            groups = await self._group_by_leader(pending, outcomes, deadline_ms, attempt)
            asked = [
                self._ask_leader(address, build(group), group, deadline_ms)
                for address, group in groups
            ]
            # Most requests concern one leader: they need no tasks.
            answers = (
                [await it for it in asked]
                if len(asked) == 1
                else await gather(self.runtime.scheduler, asked)
            )
            for group, answer in answers:
                if isinstance(answer, KctlError):
                    outcomes.update((partition, answer) for partition in group)
                else:
                    for partition, code, value in read(answer):
                        outcomes[partition] = ApiError(code) if code else value
                        self._note(partition.topic, code)
            pending = [it for it in pending if _may_get_better(outcomes[it], attempt)]
            if pending:
                error = outcomes[pending[0]]
                raise error if isinstance(error, KctlError) else RuntimeError(pending[0])

        try:
            await self._persist(once, timeout_ms)
        except KctlError as error:
            for partition in pending:
                if not isinstance(outcomes[partition], ApiError):
                    outcomes[partition] = error
        return outcomes

    async def refresh(
        self,
        topics: Iterable[str] | None = (),
        *,
        allow_auto_topic_creation: bool = False,
        timeout_ms: int | None = None,
    ) -> ClusterView:
        """Request metadata of `topics` (None: all) and of the brokers; return the updated view."""
        wanted = None if topics is None else list(topics)

        async def once(deadline_ms: int, _attempt: int) -> None:
            await self._refresh(wanted, deadline_ms, allow_auto_topic_creation)

        await self._persist(once, timeout_ms)
        return self.view

    async def coordinator_of(
        self, key: str, key_type: int = GROUP_KEY_TYPE, timeout_ms: int | None = None
    ) -> BrokerAddress:
        """Return the broker that coordinates group or transactional id `key`."""

        async def once(deadline_ms: int, _attempt: int) -> BrokerAddress:
            return await self._coordinator(key, key_type, deadline_ms)

        return await self._persist(once, timeout_ms)

    async def max_version(self, api: Api, timeout_ms: int | None = None) -> int:
        """Return the highest version of `api` that a broker and kctl support; -1 if none."""

        async def once(deadline_ms: int, _attempt: int) -> int:
            channel = await self._any_channel(deadline_ms)
            return channel.version_of(api) if channel.has_api(api) else -1

        return await self._persist(once, timeout_ms)

    async def channel_to(
        self, address: BrokerAddress, timeout_ms: int | None = None
    ) -> BrokerChannel:
        """Return the open channel to `address`, for callers that send requests themselves."""
        limit_ms = self.timeout_ms if timeout_ms is None else timeout_ms
        return await self._channel(address, self.runtime.clock.monotonic_ms() + limit_ms)

    def ready_channel(self, partition: TopicPartition) -> BrokerChannel | None:
        """Return the channel to the known leader of `partition`, if a request can be sent now."""
        leader = self.view.leader(partition)
        # Wrong leaders are counted by `send_to_leaders`.
        if leader is None or partition.topic in self._wrong_leaders:
            return None
        channel = self._channels.get((leader.host, leader.port))
        return channel if channel is not None and channel.is_ready else None

    def close(self) -> None:
        """Close every connection; requests in flight fail."""
        self._is_closed = True
        self._opener.close()
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.close()

    # Retries

    async def _persist(self, once: Callable[[int, int], Awaitable[T]], timeout_ms: int | None) -> T:
        """Call `once(deadline_ms, attempt)` until it succeeds, fails permanently, or the deadline
        passes."""
        limit_ms = self.timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = self.runtime.clock.monotonic_ms() + limit_ms
        attempt = unanswered = 0
        # The last failure that is not merely the end of the time: it says why time ran out.
        reason: KctlError | None = None
        while True:
            attempt += 1
            try:
                return await once(deadline_ms, attempt)
            except (ApiError, UnreachableError) as error:
                if reason is None or not isinstance(error, TimedOutError):
                    reason = error
                unanswered = unanswered + 1 if isinstance(error, UnansweredError) else 0
                if unanswered >= UNANSWERED_MAX and not self.view.brokers:
                    raise _unanswered(error) from error
                wait_ms = self._retry.wait_ms(attempt, self.runtime.entropy.random_below)
                if self._left_ms(deadline_ms) <= wait_ms and _is_curable(error):
                    raise out_of_time(reason, limit_ms) from error
                if not self._may_retry(error, attempt):
                    raise
                await sleep(self.runtime.scheduler, wait_ms)

    def _may_retry(self, error: KctlError, attempt: int) -> bool:
        if self._is_closed or not _is_curable(error):
            return False
        if isinstance(error, ApiError):
            return self._retry.is_worth_a_retry(error.code, attempt)
        # If no broker ever answered, a wrong address is more likely than a slow broker.
        return self._was_connected and attempt < self._retry.attempts_max

    def _left_ms(self, deadline_ms: int) -> int:
        return max(deadline_ms - self.runtime.clock.monotonic_ms(), 1)

    # Finding brokers

    async def _leader(
        self, partition: TopicPartition, deadline_ms: int, attempt: int
    ) -> BrokerAddress:
        if attempt > 1 or self.view.leader(partition) is None:
            await self._refresh([partition.topic], deadline_ms)
        address = self.view.leader(partition)
        if address is None:
            error = ApiError(self.view.error_of(partition), f"{partition}: no leader is known")
            self._note(partition.topic, error.code)
            if not _may_get_better(error, attempt):
                raise _Incurable(error.code, f"{partition}: {error.code.text}")
            raise error
        return address

    def _note(self, topic: str, code: int | None) -> None:
        """Count wrong leaders of a topic (`code` is the response of a known leader, or that none is
        known), over all calls: short calls do not live long enough to reach the limit alone."""
        if code not in WRONG_LEADER:
            self._wrong_leaders.pop(topic, None)
            return
        count = self._wrong_leaders.get(topic, 0) + 1
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or count >= WRONG_LEADERS_MAX:
            self.view.forget([topic])
            count = 0
        self._wrong_leaders[topic] = count

    async def _group_by_leader(
        self,
        partitions: list[TopicPartition],
        outcomes: dict[TopicPartition, Any],
        deadline_ms: int,
        attempt: int,
    ) -> list[tuple[BrokerAddress, list[TopicPartition]]]:
        topics = sorted({partition.topic for partition in partitions})
        if attempt > 1 or any(self.view.leader(partition) is None for partition in partitions):
            await self._refresh(topics, deadline_ms)
        groups: dict[int, tuple[BrokerAddress, list[TopicPartition]]] = {}
        for partition in partitions:
            address = self.view.leader(partition)
            if address is None:
                code = self.view.error_of(partition)
                self._note(partition.topic, code)
                outcomes[partition] = ApiError(code)
            else:
                groups.setdefault(address.broker_id, (address, []))[1].append(partition)
        return list(groups.values())

    async def _ask_leader(
        self,
        address: BrokerAddress,
        message: Message,
        group: list[TopicPartition],
        deadline_ms: int,
    ) -> tuple[list[TopicPartition], Any]:
        try:
            channel = await self._channel(address, deadline_ms)
            return group, await channel.send(message, None, self._left_ms(deadline_ms))
        except KctlError as error:
            return group, error

    async def _coordinator(self, key: str, key_type: int, deadline_ms: int) -> BrokerAddress:
        known = self._coordinators.get((key_type, key))
        if known is not None:
            return known
        channel = await self._any_channel(deadline_ms)
        if not channel.has_api(ApiKey.FIND_COORDINATOR) and channel.has_api(ApiKey.OFFSET_FETCH):
            # Kafka 0.8.1: every broker reads and writes the offsets of groups in ZooKeeper.
            return BrokerAddress(NO_LEADER, channel.host, channel.port)
        request = FindCoordinatorRequest(key=key, key_type=key_type)
        found = await channel.send(request, None, self._left_ms(deadline_ms))
        if found.error_code:
            raise ApiError(found.error_code, found.error_message)
        address = BrokerAddress(found.node_id, found.host, found.port)
        self._coordinators[key_type, key] = address
        return address

    async def _refresh(
        self, topics: list[str] | None, deadline_ms: int, allow_auto_topic_creation: bool = False
    ) -> None:
        channel = await self._any_channel(deadline_ms)
        version = channel.version_of(ApiKey.METADATA)
        if version < 4 and not allow_auto_topic_creation and topics:
            topics = None  # Before Metadata v4 a request for a topic creates it.
        request = MetadataRequest(allow_auto_topic_creation=allow_auto_topic_creation)
        if topics is not None:
            request.topics = [MetadataRequestTopic(name=name) for name in topics]
        else:
            request.topics = None if version >= 1 else []
        if version < 4:
            request.allow_auto_topic_creation = True
        self.view.update(await channel.send(request, version, self._left_ms(deadline_ms)))

    # Connections

    async def _any_channel(self, deadline_ms: int) -> BrokerChannel:
        for channel in self._channels.values():
            if channel.is_usable:
                return channel
        addresses = [(it.host, it.port) for it in self.view.brokers.values()]
        addresses = list(dict.fromkeys(addresses + self._bootstrap_servers))
        reasons = []
        hint = UNREACHABLE_HINT
        timed_out = False
        for index, address in enumerate(addresses):
            share_ms = self._left_ms(deadline_ms) // (len(addresses) - index)
            try:
                return await self._open(address, max(share_ms, CONNECT_MS_MIN))
            except UnreachableError as error:
                timed_out = timed_out or isinstance(error, TimedOutError)
                reasons.append(str(error))
                hint = error.hint or hint
        family = TimedOutError if timed_out else UnreachableError
        raise family("; ".join(reasons) or "no bootstrap server was given", hint=hint)

    async def _channel(self, address: BrokerAddress, deadline_ms: int) -> BrokerChannel:
        channel = self._channels.get((address.host, address.port))
        if channel is not None and channel.is_usable:
            return channel
        try:
            return await self._open((address.host, address.port), self._left_ms(deadline_ms))
        except UnreachableError as error:
            name = f"broker {address.broker_id} advertises {address.host}:{address.port}"
            raise type(error)(f"{name}, but {error}", hint=error.hint) from error

    async def _open(self, address: Address, timeout_ms: int) -> BrokerChannel:
        channel = self._channels.get(address)
        if channel is not None and channel.is_usable:
            return channel
        opening = self._opening.get(address)
        if opening is None:
            name = f"connect to {address[0]}:{address[1]}"
            opening = self.runtime.scheduler.spawn(self._connect(address, timeout_ms), name)
            if not opening.done:
                self._opening[address] = opening
        return await opening

    async def _connect(self, address: Address, timeout_ms: int) -> BrokerChannel:
        try:
            channel = await self._opener.open(address, timeout_ms)
        finally:
            self._opening.pop(address, None)
        if self._is_closed:
            channel.close()
            raise UnreachableError("the client was closed")
        channel.when_closed(self._forget_channel)
        self._channels[address] = channel
        self._was_connected = True
        return channel

    def _make_channel(self, address: Address, release: OldRelease | None) -> BrokerChannel:
        return BrokerChannel(
            self.runtime,
            address[0],
            address[1],
            client_id=self._client_id,
            request_timeout_ms=self.timeout_ms,
            security=self._security,
            reads_only=self._reads_only,
            explains_refusals=True,
            versions=None if release is None else release.versions(f"{address[0]}:{address[1]}"),
            buffers=self._buffers,
        )

    def _forget_channel(self, channel: BrokerChannel) -> None:
        address = (channel.host, channel.port)
        if self._channels.get(address) is channel:
            del self._channels[address]


class _Incurable(ApiError):
    """An error with a retriable code that has been retried often enough."""


def _is_curable(error: KctlError) -> bool:
    if isinstance(error, ApiError):
        return error.code.retriable and not isinstance(error, _Incurable)
    return isinstance(error, UnreachableError)


def _unanswered(error: KctlError) -> UnreachableError:
    times = f"{UNANSWERED_MAX} times at the first request"
    return UnreachableError(f"{error}, {times}", hint=error.hint)


def _may_get_better(outcome: object, attempt: int) -> bool:
    if isinstance(outcome, ApiError):
        if outcome.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return attempt < UNKNOWN_TOPIC_ROUNDS
        return outcome.code in WRONG_LEADER
    return isinstance(outcome, UnreachableError)


def _checked(response: Any, codes: frozenset[ErrorCode]) -> Any:
    """Return the response, or raise if it shows that the wrong broker was asked."""
    code = first_error_among(response, codes)
    if code is not None:
        raise ApiError(code)
    return response


def out_of_time(error: KctlError, limit_ms: int) -> KctlError:
    """Return the error of a call that was tried for `limit_ms`, the last time with `error`."""
    if isinstance(error, ApiError):
        return error
    return TimedOutError(f"{error} (tried for {limit_ms} ms)", hint=error.hint)
