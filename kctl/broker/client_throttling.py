"""ClientQuotas: how long a client has to pause because of the quotas that apply to it. Pure.

Four quotas (`QuotaKind`) are set for users, client ids, client ids of users, and their defaults.
The most specific one applies:

    user and client id; user and default client id; user
    default user and client id; both defaults; default user
    client id; default client id; the static default of the broker

All clients to which a quota applies at the same level share one bucket: those of a user, those with
a client id, or those with both. While quotas of a kind have been set at one level only, that level
decides, even for clients without a quota at it.

Clients without a limit are not counted. A bucket that was not used for an hour is removed, and the
one used least recently if there are more than BUCKETS_MAX. A digest replaces a name longer than
NAME_MAX, here and in metrics.

Differences: a byte quota of 0 pauses a client for THROTTLE_MS_MAX (Apache Kafka 2.7.2 does not
pause it: an overflow); the percentage of a request quota is that of one thread, which serves all
requests, and a Fetch that exceeds it is answered in full before its client pauses.

Invariant: `is_enabled` is true exactly while some client has a quota.

Kafka 2.7: kafka.server.{ClientQuotaManager, ClientRequestQuotaManager,
ControllerMutationQuotaManager}; KIP-13, KIP-55, KIP-124, KIP-219, KIP-599.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, StrEnum
from functools import partial
from typing import Any, Final, NamedTuple

from kctl.broker.client_quotas import ClientQuotaEntity
from kctl.broker.request import Request, RequestContext
from kctl.broker.sampled_rate import Pauses, SampledRate, TokenBucket, Windows
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.store.znodes import DEFAULT_ENTITY, desanitize

# After this time without use a bucket holds nothing of interest (Kafka's
# InactiveSensorExpirationTimeSeconds).
BUCKET_IDLE_MS_MAX = 3_600_000
# Of one kind; each has up to 2 KiB.
BUCKETS_MAX = 10_000
# Characters of the name of a user, or of a client id, which a client chooses: up to 32 KB.
NAME_MAX = 255
_PREFIX = 64
_EXPIRED_PER_USE = 2
_NS_PER_PERCENT = 1e9 / 100


class QuotaKind(StrEnum):
    """What is limited, by Kafka's names of the configs."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"


class _Default(Enum):
    """Stands for the default entity, whose name a client may have as well."""

    DEFAULT = 0


_DEFAULT: Final = _Default.DEFAULT
# None: the entity has no such part.
_Name = str | _Default | None
_Entity = tuple[_Name, _Name]

# What the answer to a request may count towards.
_OF_ANSWERS = (QuotaKind.PRODUCE, QuotaKind.FETCH, QuotaKind.REQUEST)

# Requests of brokers and controllers, which no request quota delays.
_EXEMPT = frozenset(
    {
        ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN, ApiKey.WRITE_TXN_MARKERS, ApiKey.ALTER_ISR,
    }
)  # fmt: skip


class Share(NamedTuple):
    """The clients that share one bucket, and their limit per second."""

    user: str
    client_id: str
    limit: float


class Usage(NamedTuple):
    """What the clients of one bucket have used of their quota."""

    kind: QuotaKind
    share: Share
    # Per second: bytes, percent; of mutations, the tokens that are left.
    used: float
    # The average of recent pauses, how often they were paused, and how long they still are.
    throttle_ms: float
    throttled: int
    paused_ms: int


class _Limits:
    """The quotas of one kind."""

    def __init__(self, static: float | None = None) -> None:
        # Of client ids without any other quota.
        self._static = static
        self._limits: dict[_Entity, float] = {}
        # The levels at which a quota was set: (has a user, has a client id).
        self._levels: set[tuple[bool, bool]] = set()
        if static is not None:
            self._levels.add((False, True))

    @property
    def is_enabled(self) -> bool:
        return bool(self._limits) or self._static is not None

    def change(self, entity: _Entity, limit: float | None) -> None:
        if limit is None:
            self._limits.pop(entity, None)
        else:
            self._limits[entity] = limit
            self._levels.add((entity[0] is not None, entity[1] is not None))

    def share(self, user: str, client_id: str) -> Share | None:
        """Return what applies to a client, with bounded names; None: no limit."""
        user, client_id = _bounded(user), _bounded(client_id)
        if len(self._levels) == 1:
            ((has_user, has_client_id),) = self._levels
        else:
            has_user, has_client_id = self._level(user, client_id)
        named_user: str | None = user if has_user else None
        named_client: str | None = client_id if has_client_id else None
        # As in Kafka, an empty client id has no quota of its own level.
        if named_client == "":
            named_client = None
        if named_user is None and named_client is None:
            return None
        limit = self._limit(named_user, named_client)
        return None if limit is None else Share(named_user or "", named_client or "", limit)

    def _level(self, user: str, client_id: str) -> tuple[bool, bool]:
        limits = self._limits
        for owner in (user, _DEFAULT):
            if (owner, client_id) in limits or (owner, _DEFAULT) in limits:
                return True, True
            if (owner, None) in limits:
                return True, False
        return False, True

    def _limit(self, user: str | None, client_id: str | None) -> float | None:
        limits = self._limits
        users: tuple[_Name, ...] = (None,) if user is None else (user, _DEFAULT)
        clients: tuple[_Name, ...] = (None,) if client_id is None else (client_id, _DEFAULT)
        for owner in users:
            for client in clients:
                limit = limits.get((owner, client))
                if limit is not None:
                    return limit
        return self._static if user is None else None


class _Buckets:
    """What the clients of one kind of quota have used, those used least recently first."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        # (user, client id) -> (time of the last use in ms, rate or bucket)
        self._buckets: OrderedDict[tuple[str, str], tuple[int, Any]] = OrderedDict()
        # Of those that were ever paused.
        self._pauses: dict[tuple[str, str], Pauses] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def use(self, share: Share, now_ms: int) -> Any:
        buckets = self._buckets
        key = (share.user, share.client_id)
        found = buckets.get(key)
        bucket = self._make() if found is None else found[1]
        buckets[key] = now_ms, bucket
        if found is None:
            self._expire(now_ms)
        else:
            buckets.move_to_end(key)
        return bucket

    def _expire(self, now_ms: int) -> None:
        buckets = self._buckets
        for _ in range(_EXPIRED_PER_USE):
            oldest = next(iter(buckets))
            is_idle = now_ms - buckets[oldest][0] >= BUCKET_IDLE_MS_MAX
            if is_idle or len(buckets) > BUCKETS_MAX:
                del buckets[oldest]
                self._pauses.pop(oldest, None)

    def paused(self, share: Share, wait_ms: int, now_ms: int) -> None:
        """Count a pause of the clients of a bucket."""
        key = (share.user, share.client_id)
        if wait_ms and key in self._buckets:
            self._pauses.setdefault(key, Pauses()).add(wait_ms, now_ms)

    def all(self) -> list[tuple[tuple[str, str], Any]]:
        """Return each (user, client id) with its bucket."""
        return [(key, bucket) for key, (_, bucket) in self._buckets.items()]

    def pauses(self, key: tuple[str, str]) -> Pauses:
        """Return the pauses of a bucket."""
        return self._pauses.get(key) or Pauses()


class MutationQuota:
    """The mutation quota that applies to one request."""

    def __init__(
        self,
        bucket: TokenBucket,
        limit: float,
        windows: Windows,
        now_ms: Callable[[], int],
        *,
        is_strict: bool,
        on_pause: Callable[[int, int], object] | None = None,
    ) -> None:
        self._on_pause = on_pause
        self._bucket = bucket
        self._limit = limit
        self._windows = windows
        self._now_ms = now_ms
        self._is_strict = is_strict
        self._until_ms = 0

    def record(self, partitions: int) -> None:
        """Count partitions that are about to be created or deleted. A strict quota raises ApiError
        (THROTTLING_QUOTA_EXCEEDED) if it is exceeded already, and counts nothing."""
        now_ms = self._now_ms()
        bucket, limit, windows = self._bucket, self._limit, self._windows
        if self._is_strict:
            if bucket.tokens(limit, now_ms, windows) < 0:
                self._pause(now_ms)
                raise ApiError(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                    "The throttling quota has been exceeded.",
                )
            bucket.take(partitions, limit, now_ms, windows)
        else:
            bucket.take(partitions, limit, now_ms, windows)
            self._pause(now_ms)

    def _pause(self, now_ms: int) -> None:
        wait_ms = self._bucket.throttle_ms(self._limit, now_ms, self._windows)
        self._until_ms = max(self._until_ms, now_ms + wait_ms)
        if self._on_pause is not None:
            self._on_pause(wait_ms, now_ms)

    @property
    def throttle_ms(self) -> int:
        """Return how long the client has to pause, from now on."""
        return max(self._until_ms - self._now_ms(), 0)


class ClientQuotas:
    """The quotas of all clients of one broker, and what they have used."""

    def __init__(
        self,
        windows: Windows | None = None,
        mutation_windows: Windows | None = None,
        *,
        produce_default: float | None = None,
        fetch_default: float | None = None,
    ) -> None:
        """Create it; the defaults are quota.producer.default and quota.consumer.default."""
        self._windows = windows or Windows()
        self._mutation_windows = mutation_windows or Windows()
        self._limits = {
            QuotaKind.PRODUCE: _Limits(produce_default),
            QuotaKind.FETCH: _Limits(fetch_default),
            QuotaKind.REQUEST: _Limits(),
            QuotaKind.MUTATION: _Limits(),
        }
        self._buckets = {
            kind: _Buckets(TokenBucket if kind is QuotaKind.MUTATION else SampledRate)
            for kind in QuotaKind
        }
        self._listeners: list[Callable[[bool], object]] = []
        # Grows with each change: what was looked up before may have changed.
        self.version = 0
        self.is_enabled = any(it.is_enabled for it in self._limits.values())

    def on_switch(self, listener: Callable[[bool], object]) -> None:
        """Call `listener` with `is_enabled`, now and when it changes."""
        self._listeners.append(listener)
        listener(self.is_enabled)

    @property
    def times_requests(self) -> bool:
        """Return whether the time that requests take has to be measured."""
        return self._limits[QuotaKind.REQUEST].is_enabled

    def change(self, entity: ClientQuotaEntity, quotas: Mapping[str, float]) -> None:
        """Replace all quotas of an entity."""
        names = (_name(entity.user), _name(entity.client_id))
        self.version += 1
        for kind, limits in self._limits.items():
            limits.change(names, quotas.get(kind))
        is_enabled = any(it.is_enabled for it in self._limits.values())
        if is_enabled != self.is_enabled:
            self.is_enabled = is_enabled
            for listener in self._listeners:
                listener(is_enabled)

    def counts(self, context: RequestContext, client_id: str) -> bool:
        """Return whether requests of a client may count towards a quota when they are answered."""
        user = context.principal.partition(":")[2]
        return any(self._limits[kind].share(user, client_id) is not None for kind in _OF_ANSWERS)

    def answered(self, request: Request, frame_bytes: int, busy_ns: int, now_ms: int) -> int:
        """Count a request that has its response; return how long its client has to pause, in
        milliseconds, together with what its handler found."""
        pause_ms = request.throttle_ms
        api = request.api_key
        if api is ApiKey.PRODUCE:
            bytes_ms = self._record(QuotaKind.PRODUCE, request, frame_bytes, now_ms)
            if bytes_ms:
                self._paused(QuotaKind.PRODUCE, request, bytes_ms, now_ms)
                pause_ms = max(pause_ms, bytes_ms)
            is_exempt = request.body.acks == 0
        else:
            is_exempt = api in _EXEMPT or (api is ApiKey.FETCH and request.body.replica_id >= 0)
        if busy_ns and not is_exempt:
            percent = busy_ns / _NS_PER_PERCENT
            busy_ms = self._record(QuotaKind.REQUEST, request, percent, now_ms)
            if busy_ms:
                busy_ms = min(busy_ms, self._windows.window_ms)
                self._paused(QuotaKind.REQUEST, request, busy_ms, now_ms)
                pause_ms = max(pause_ms, busy_ms)
        return pause_ms

    def fetched(self, request: Request, response_bytes: int, now_ms: int) -> int:
        """Count a response of Fetch; return 0, or how long its client has to pause: then the
        response must be empty, and nothing is counted."""
        wait_ms = self._record(QuotaKind.FETCH, request, response_bytes, now_ms)
        if wait_ms:
            self._record(QuotaKind.FETCH, request, -response_bytes, now_ms)
            self._paused(QuotaKind.FETCH, request, wait_ms, now_ms)
        return wait_ms

    def fetch_bytes_max(self, request: Request) -> int | None:
        """Return the largest response that does not exceed the quota by itself; None: no limit."""
        share = self._share(QuotaKind.FETCH, request)
        if share is None:
            return None
        window_s = self._windows.window_ms / 1000
        return max(int(min(share.limit * (self._windows.count - 1) * window_s, 0x7FFFFFFF)), 0)

    def mutation_quota(
        self, request: Request, now_ms: Callable[[], int], *, strict_since: int
    ) -> MutationQuota | None:
        """Return the mutation quota of a request, which is strict from a version on; None: no
        limit."""
        share = self._share(QuotaKind.MUTATION, request)
        if share is None:
            return None
        buckets = self._buckets[QuotaKind.MUTATION]
        bucket = buckets.use(share, now_ms())
        return MutationQuota(
            bucket,
            share.limit,
            self._mutation_windows,
            now_ms,
            is_strict=request.api_version >= strict_since,
            on_pause=partial(buckets.paused, share),
        )

    def usage(self, now_ms: int) -> Iterator[Usage | None]:
        """Yield what each bucket with a limit has used, and None for one without; one by one, as
        others may run in between."""
        for kind, buckets in self._buckets.items():
            for key, bucket in buckets.all():
                share = self._limits[kind].share(*key)
                if share is None or share[:2] != key:
                    # The quota was removed, or set at another level.
                    yield None
                    continue
                if kind is QuotaKind.MUTATION:
                    used = bucket.tokens(share.limit, now_ms, self._mutation_windows)
                else:
                    used = bucket.per_second(now_ms, self._windows)
                pauses = buckets.pauses(key)
                paused_ms = max(pauses.until_ms - now_ms, 0)
                yield Usage(kind, share, used, pauses.average_ms(now_ms), pauses.count, paused_ms)

    @property
    def bucket_count(self) -> int:
        """Return how many buckets there are."""
        return sum(map(len, self._buckets.values()))

    def _share(self, kind: QuotaKind, request: Request) -> Share | None:
        user = request.context.principal.partition(":")[2]
        return self._limits[kind].share(user, request.client_id or "")

    def _paused(self, kind: QuotaKind, request: Request, wait_ms: int, now_ms: int) -> None:
        share = self._share(kind, request)
        if share is not None:
            self._buckets[kind].paused(share, wait_ms, now_ms)

    def _record(self, kind: QuotaKind, request: Request, amount: float, now_ms: int) -> int:
        share = self._share(kind, request)
        if share is None:
            return 0
        rate: SampledRate = self._buckets[kind].use(share, now_ms)
        rate.record(amount, now_ms, self._windows)
        return rate.throttle_ms(share.limit, now_ms, self._windows)


def _name(sanitized: str | None) -> _Name:
    if sanitized is None:
        return None
    return _DEFAULT if sanitized == DEFAULT_ENTITY else _bounded(desanitize(sanitized))


def _bounded(name: str) -> str:
    """Return `name`, or its beginning and a digest of it all. What is bounded remains the same."""
    if len(name) <= NAME_MAX:
        return name
    # A local import: few brokers ever need it.
    import hashlib

    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name[:_PREFIX]}...{digest}"
