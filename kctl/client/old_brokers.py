"""Connections to brokers of any release: those of Kafka 0.8 and 0.9 do not know ApiVersions.

A broker that knows ApiVersions answers it, in whatever version, and nothing else happens. An old
one closes the connection (0.8) or stays silent (0.9.0). Then a second connection finds out what it
is, from the newest release to the oldest:

1. It sends a request that came with the release and changes nothing. No answer: an older release.
2. After the answer it sends ApiVersions, and the former request again. Answered: the broker is a
   new one that was slow, or lost the first connection. Closed, or overtaken by the answer to the
   other request: it is an old one. Requests of one connection are answered in order, so neither a
   slow broker nor a lost packet can look like this. A broker that dies just then can, so an old
   one has to look old PROBES times in sequence, each time on a connection of its own.

The release is remembered for a while, and its connections begin without ApiVersions, with the
fixed versions below. `broker.version.fallback` names a release instead of finding it, and
`api.version.request=false` does not try ApiVersions at all; both are librdkafka's settings.

Kafka 0.8.0, 0.8.1.1, 0.8.2.2, 0.9.0.1: kafka.api.RequestKeys,
org.apache.kafka.common.protocol.ApiKeys
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING

from kctl.client.broker_channel import BrokerChannel, NoHandshakeError
from kctl.errors import KctlError, TimedOutError, UnreachableError, UsageError
from kctl.lazy_dataclass import dataclass
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponseKey
from kctl.protocol.negotiation import NegotiatedVersions

if TYPE_CHECKING:
    from kctl.protocol.schema import Message
    from kctl.runtime.runtime import Runtime

Address = tuple[str, int]

# How long ApiVersions may be unanswered before a second connection asks why.
PATIENCE_MS = 1_000
# How often a broker must look old.
PROBES = 3
# How long a release is remembered: a broker may be upgraded.
REMEMBERED_MS = 20 * 60_000


class OldRelease(Enum):
    """Releases without ApiVersions whose APIs differ; the value is the text in messages."""

    V0_9_0 = "0.9.0"
    V0_8_2 = "0.8.2"
    V0_8_1 = "0.8.1"
    V0_8_0 = "0.8.0"

    def versions(self, address: str) -> NegotiatedVersions:
        """Return the versions that a broker of this release at `address` serves to clients."""
        keys = [
            ApiVersionsResponseKey(api_key=int(api), min_version=0, max_version=last)
            for api, last in _LAST_VERSIONS[self].items()
        ]
        return NegotiatedVersions(keys, f"the broker at {address} (Kafka {self.value})")


_AT_FIRST = {
    ApiKey.PRODUCE: 0, ApiKey.FETCH: 0, ApiKey.LIST_OFFSETS: 0, ApiKey.METADATA: 0,
}  # fmt: skip
_SINCE_0_8_1 = _AT_FIRST | {ApiKey.OFFSET_COMMIT: 0, ApiKey.OFFSET_FETCH: 0}
_SINCE_0_8_2 = _AT_FIRST | {
    ApiKey.OFFSET_COMMIT: 1, ApiKey.OFFSET_FETCH: 1, ApiKey.FIND_COORDINATOR: 0,
}  # fmt: skip
_SINCE_0_9_0 = _SINCE_0_8_2 | {
    ApiKey.PRODUCE: 1, ApiKey.FETCH: 1, ApiKey.OFFSET_COMMIT: 2, ApiKey.JOIN_GROUP: 0,
    ApiKey.HEARTBEAT: 0, ApiKey.LEAVE_GROUP: 0, ApiKey.SYNC_GROUP: 0, ApiKey.DESCRIBE_GROUPS: 0,
    ApiKey.LIST_GROUPS: 0,
}  # fmt: skip
_LAST_VERSIONS = {
    OldRelease.V0_9_0: _SINCE_0_9_0,
    OldRelease.V0_8_2: _SINCE_0_8_2,
    OldRelease.V0_8_1: _SINCE_0_8_1,
    OldRelease.V0_8_0: _AT_FIRST,
}


def _request_that_came_with(release: OldRelease) -> "Message":
    """Return a request that came with `release`, in its version 0, and changes nothing.

    0.8.2 answers a Heartbeat without looking at it; FindCoordinator would create a topic there.
    """
    from kctl.protocol.messages.heartbeat import HeartbeatRequest
    from kctl.protocol.messages.list_groups import ListGroupsRequest
    from kctl.protocol.messages.metadata import MetadataRequest
    from kctl.protocol.messages.offset_fetch import OffsetFetchRequest

    requests: dict[OldRelease, Message] = {
        OldRelease.V0_9_0: ListGroupsRequest(),
        OldRelease.V0_8_2: HeartbeatRequest(group_id="kctl", generation_id=-1, member_id=""),
        OldRelease.V0_8_1: OffsetFetchRequest(group_id="kctl", topics=[]),
        OldRelease.V0_8_0: MetadataRequest(topics=[]),
    }
    return requests[release]


class _Found(Enum):
    """What a probe for a release found."""

    OLD = "of that release, it seems"
    OLDER = "does not know its requests"
    # Or the broker knows ApiVersions.
    UNKNOWN = "no answer"


@dataclass(frozen=True, slots=True)
class VersionFallback:
    """What `api.version.request` and `broker.version.fallback` ask for."""

    # Whether ApiVersions is sent.
    asks: bool = True
    # Whether the release of a broker that does not answer is found out.
    probes: bool = True
    # The release that is assumed instead.
    release: OldRelease | None = None

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "VersionFallback":
        """Return what client settings ask for; raise UsageError."""
        asks = properties.get("api.version.request", "true").lower()
        if asks not in ("true", "false"):
            raise UsageError(f"api.version.request={asks} is neither true nor false")
        text = properties.get("broker.version.fallback")
        release = None if text is None else _release_of(text)
        if asks == "false" and release is None:
            raise UsageError(
                "api.version.request=false needs the release of the brokers",
                hint="set broker.version.fallback to 0.9.0, 0.8.2, 0.8.1 or 0.8.0",
            )
        return cls(asks == "true", text is None, release)


def _release_of(text: str) -> OldRelease | None:
    """Return the release that serves what version `text` does; None from 0.10 on."""
    numbers = text.split(".")
    if len(numbers) < 2 or not all(number.isascii() and number.isdigit() for number in numbers):
        raise UsageError(f"broker.version.fallback={text} is not a version", hint="e.g. 0.8.2")
    version = tuple(map(int, numbers))
    if version >= (0, 10):
        return None
    for release in OldRelease:
        if (*version, 0) >= tuple(map(int, release.value.split("."))):
            return release
    raise UsageError(
        f"broker.version.fallback={text} is before 0.8", hint="kctl.kafka reads Kafka 0.7"
    )


class ChannelOpener:
    """Opens channels to brokers of any release; `make` returns a channel that is not connected."""

    def __init__(
        self,
        runtime: "Runtime",
        make: Callable[[Address, OldRelease | None], BrokerChannel],
        fallback: VersionFallback,
        *,
        may_fall_back: bool = True,
    ) -> None:
        self._runtime = runtime
        self._make = make
        self._fallback = fallback
        # Without it a lost handshake is an error: old brokers know no SASL that kctl speaks.
        self._may_fall_back = may_fall_back
        # Address -> release, and until when it is believed, in monotonic milliseconds.
        self._releases: dict[Address, tuple[OldRelease, int]] = {}
        # The channels that are not connected yet, or only look at a broker.
        self._opening: dict[BrokerChannel, None] = {}

    def close(self) -> None:
        """Close the channels that are being opened."""
        for channel in list(self._opening):
            channel.close()

    async def open(self, address: Address, timeout_ms: int) -> BrokerChannel:
        """Return a connected channel to `address`; raise UnreachableError."""
        deadline_ms = self._runtime.clock.monotonic_ms() + timeout_ms
        release = self._known(address)
        if release is None:
            try:
                return await self._open_new(address, timeout_ms)
            except NoHandshakeError:
                if not self._may_fall_back:
                    raise
                release = self._known(address) or await self._recognize(address, deadline_ms)
                if release is None:
                    raise
        return await self._connected(self._make(address, release), self._left_ms(deadline_ms))

    async def _connected(self, channel: BrokerChannel, timeout_ms: int) -> BrokerChannel:
        self._opening[channel] = None
        try:
            await channel.connect(timeout_ms)
        finally:
            del self._opening[channel]
        return channel

    async def _open_new(self, address: Address, timeout_ms: int) -> BrokerChannel:
        """Open a channel with ApiVersions; look for the reason if the broker is silent."""
        channel = self._make(address, None)
        patience = None
        # A caller with less time has no use for what is found.
        if self._may_fall_back and timeout_ms > PATIENCE_MS:
            deadline_ms = self._runtime.clock.monotonic_ms() + timeout_ms
            patience = self._runtime.scheduler.call_later(
                PATIENCE_MS, lambda: self._suspect(channel, address, deadline_ms)
            )
        try:
            return await self._connected(channel, timeout_ms)
        finally:
            if patience is not None:
                patience.cancel()

    def _suspect(self, channel: BrokerChannel, address: Address, deadline_ms: int) -> None:
        async def look() -> None:
            if await self._recognize(address, deadline_ms) is not None:
                channel.give_up_handshake()

        if channel.awaits_versions:
            self._runtime.scheduler.spawn(look(), f"look at {address[0]}:{address[1]}")

    def _known(self, address: Address) -> OldRelease | None:
        if not self._fallback.asks:
            return self._fallback.release
        release, until_ms = self._releases.get(address, (None, 0))
        return release if self._runtime.clock.monotonic_ms() < until_ms else None

    async def _recognize(self, address: Address, deadline_ms: int) -> OldRelease | None:
        """Return the release of a broker that does not answer ApiVersions, and remember it."""
        found = self._fallback.release
        if self._fallback.probes:
            found = await self._probe(address, deadline_ms)
        if found is not None:
            until_ms = self._runtime.clock.monotonic_ms() + REMEMBERED_MS
            self._releases[address] = found, until_ms
        return found

    async def _probe(self, address: Address, deadline_ms: int) -> OldRelease | None:
        for release in OldRelease:
            found = _Found.OLD
            for _ in range(PROBES):
                found = await self._probe_once(address, release, deadline_ms)
                if found is not _Found.OLD:
                    break
            if found is _Found.OLD:
                return release
            if found is _Found.UNKNOWN:
                return None
        return None

    async def _probe_once(
        self, address: Address, release: OldRelease, deadline_ms: int
    ) -> "_Found":
        """Look once whether a broker is of `release`."""
        channel = self._make(address, release)
        self._opening[channel] = None
        try:
            await channel.connect(self._left_ms(deadline_ms))
            try:
                is_old = await self._answers_like(channel, release)
            except TimedOutError:
                return _Found.UNKNOWN
            except UnreachableError:
                # It closed the connection: it does not know the request.
                return _Found.OLDER
        except KctlError:
            # The broker is going away.
            return _Found.UNKNOWN
        finally:
            del self._opening[channel]
            channel.close()
        return _Found.OLD if is_old else _Found.UNKNOWN

    async def _answers_like(self, channel: BrokerChannel, release: OldRelease) -> bool:
        """Return whether the broker is of `release` or an older one that answers as it does; raise
        UnreachableError if it does not answer."""
        message = _request_that_came_with(release)
        await channel.probe(message)
        answer = channel.probe(ApiVersionsRequest())
        channel.probe(message)
        try:
            await answer
        except TimedOutError:
            raise
        except UnreachableError:
            return True
        return False

    def _left_ms(self, deadline_ms: int) -> int:
        return max(deadline_ms - self._runtime.clock.monotonic_ms(), 1)
