"""Incremental fetch sessions: a client names its partitions once, then only changes.

A session caches, per partition, the client's request and the last response. A full fetch (epoch 0)
may open a session, epoch -1 closes it, any other epoch must be the next one expected; a response
then holds only partitions with records, errors or changes. Partitions with records move to the end
of the session, so that no partition starves when responses are full.

When the cache is full, a session is evicted that has been idle for `EVICTION_MS`, or one that is
smaller than the new one and old enough; a follower's session has precedence over a consumer's.

Kafka 2.7: kafka.server.FetchSession, FetchManager; KIP-227.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from kctl.lazy_dataclass import dataclass
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.fetch import FetchPartition, FetchRequest

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
INVALID_SESSION_ID: Final = 0
# How long a session is protected from eviction after its last use.
EVICTION_MS: Final = 120_000
EPOCH_MAX: Final = 2**31 - 1

Key = tuple[str, int]


@dataclass(slots=True)
class CachedPartition:
    """One partition of a session: the client's request and the last response."""

    topic: str
    request: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1
    was_in_error: bool = True

    def record_response(
        self, *, error_code: int, high_watermark: int, log_start_offset: int, has_records: bool
    ) -> bool:
        """Record a response; return whether it must be sent."""
        is_news = (
            has_records
            or error_code != 0
            or self.was_in_error
            or high_watermark != self.high_watermark
            or log_start_offset != self.log_start_offset
        )
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset
        self.was_in_error = error_code != 0
        return is_news


@dataclass(slots=True, eq=False)
class FetchSession:
    """The partitions that one client fetches, in the order in which they are served."""

    session_id: int
    is_follower: bool
    created_ms: int
    last_used_ms: int
    epoch: int
    partitions: dict[Key, CachedPartition]

    def update(self, body: FetchRequest) -> None:
        """Apply the changes of an incremental request."""
        for topic in body.topics:
            for partition in topic.partitions:
                cached = self.partitions.get((topic.topic, partition.partition))
                if cached is None:
                    cached = CachedPartition(topic.topic, partition)
                    self.partitions[topic.topic, partition.partition] = cached
                cached.request = partition
                if self.is_follower:
                    # Its log has changed, perhaps without the last response, which it must drop if
                    # its log or its leader's epoch changed meanwhile. Send everything again.
                    cached.was_in_error = True
        for forgotten in body.forgotten_topics_data:
            for number in forgotten.partitions:
                self.partitions.pop((forgotten.topic, number), None)

    def move_to_end(self, keys: Iterable[Key]) -> None:
        """Move served partitions after those that were not."""
        for key in keys:
            cached = self.partitions.pop(key, None)
            if cached is not None:
                self.partitions[key] = cached


@dataclass(slots=True)
class FetchContext:
    """How one Fetch request is read and answered."""

    # The partitions to read, in order.
    partitions: list[tuple[str, FetchPartition]]
    # The session of the response, if any.
    session: FetchSession | None = None
    # Send only changes of `session`.
    is_incremental: bool = False
    # Not 0: reply with this error.
    error_code: int = 0

    @property
    def session_id(self) -> int:
        """Return the session id of the response."""
        return self.session.session_id if self.session else INVALID_SESSION_ID


def _requested(body: FetchRequest) -> list[tuple[str, FetchPartition]]:
    """Return the partitions of a full request, in order; of one named twice, the last values."""
    wanted = {
        (topic.topic, partition.partition): partition
        for topic in body.topics
        for partition in topic.partitions
    }
    return [(topic, partition) for (topic, _), partition in wanted.items()]


class FetchSessionCache:
    """All sessions of a broker; at most `slots` of them."""

    def __init__(self, slots: int, random_below: Callable[[int], int]) -> None:
        self._slots = slots
        self._random_below = random_below
        # In order of last use, oldest first.
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self.evictions = 0

    def __len__(self) -> int:
        """Return the number of open sessions."""
        return len(self._sessions)

    def open_context(self, body: FetchRequest, version: int, now_ms: int) -> FetchContext:
        """Return the context of a request; close, open or continue a session as it requires."""
        epoch = body.session_epoch
        if version < 7 or epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if body.session_id != INVALID_SESSION_ID:
                self._sessions.pop(body.session_id, None)
            context = FetchContext(_requested(body))
            if version >= 7 and epoch == INITIAL_EPOCH:
                context.session = self._maybe_create(body, context, now_ms)
            return context
        session = self._sessions.get(body.session_id)
        if session is None:
            return FetchContext([], error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return FetchContext([], error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.update(body)
        session.epoch = epoch + 1 if epoch < EPOCH_MAX else 1
        self._touch(session, now_ms)
        if not session.partitions:
            # All partitions were removed: the session has nothing left to cache.
            del self._sessions[session.session_id]
            return FetchContext([])
        wanted = [(cached.topic, cached.request) for cached in session.partitions.values()]
        return FetchContext(wanted, session, is_incremental=True)

    def discard(self, session: FetchSession) -> None:
        """Remove a session that its client does not learn of."""
        self._sessions.pop(session.session_id, None)

    def _touch(self, session: FetchSession, now_ms: int) -> None:
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session.session_id)

    def _maybe_create(
        self, body: FetchRequest, context: FetchContext, now_ms: int
    ) -> FetchSession | None:
        is_follower = body.replica_id >= 0
        if not context.partitions or not self._make_room(
            len(context.partitions), is_follower=is_follower, now_ms=now_ms
        ):
            return None
        session = FetchSession(
            session_id=self._new_session_id(),
            is_follower=is_follower,
            created_ms=now_ms,
            last_used_ms=now_ms,
            epoch=1,
            partitions={
                (topic, partition.partition): CachedPartition(topic, partition)
                for topic, partition in context.partitions
            },
        )
        self._sessions[session.session_id] = session
        return session

    def _new_session_id(self) -> int:
        while True:
            session_id = self._random_below(EPOCH_MAX) + 1
            if session_id not in self._sessions:
                return session_id

    def _make_room(self, size: int, *, is_follower: bool, now_ms: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            return self._evict(oldest)
        candidates = (
            session
            for session in self._sessions.values()
            if (is_follower and not session.is_follower)
            or (
                session.is_follower == is_follower
                and now_ms - session.created_ms > EVICTION_MS
                and len(session.partitions) < size
            )
        )
        smallest = min(candidates, key=lambda session: len(session.partitions), default=None)
        return smallest is not None and self._evict(smallest)

    def _evict(self, session: FetchSession) -> bool:
        del self._sessions[session.session_id]
        self.evictions += 1
        return True
