"""Incremental fetch sessions: a consumer names its partitions once, then only what changed.

A session caches, per partition, what the client asked for and what it was last told. A full fetch
(epoch 0) may open one, epoch -1 closes it, any other epoch must be the one expected next; an
answer then holds only partitions with records, errors or news. Partitions that had something are
moved to the end of the session, so that no partition starves when an answer is full.

When the cache is full, a session is evicted that has been idle for `EVICTION_MS`, or one that is
smaller than the newcomer and old enough; a follower's session wins against a consumer's.

Kafka 2.7: kafka.server.FetchSession, FetchManager; KIP-227.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.fetch import FetchPartition, FetchRequest

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
INVALID_SESSION_ID = 0
# How long a session is safe from eviction after its last use.
EVICTION_MS = 120_000
_EPOCH_MAX = 2**31 - 1

Key = tuple[str, int]


@dataclass(slots=True)
class CachedPartition:
    """One partition of a session: the client's wishes and what it knows."""

    topic: str
    request: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1
    was_in_error: bool = True

    def note_answer(
        self, *, error_code: int, high_watermark: int, log_start_offset: int, has_records: bool
    ) -> bool:
        """Remember what is about to be said; whether it is worth saying."""
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
    """What one client fetches, by partition in the order to be served."""

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
                    # Its log moved on: perhaps without the last answer, which it must drop if its
                    # log or its leader's epoch changed meanwhile. Tell it all again.
                    cached.was_in_error = True
        for forgotten in body.forgotten_topics_data:
            for number in forgotten.partitions:
                self.partitions.pop((forgotten.topic, number), None)

    def move_to_end(self, keys: Iterable[Key]) -> None:
        """What was served goes behind what was not."""
        for key in keys:
            cached = self.partitions.pop(key, None)
            if cached is not None:
                self.partitions[key] = cached


@dataclass(slots=True)
class FetchContext:
    """How one Fetch request is to be read and answered."""

    # What to read, in order.
    partitions: list[tuple[str, FetchPartition]]
    # The session that the answer goes through, if any.
    session: FetchSession | None = None
    # Answer only news of `session`.
    is_incremental: bool = False
    # Not 0: answer just this.
    error_code: int = 0

    @property
    def session_id(self) -> int:
        """What the answer's `session_id` is."""
        return self.session.session_id if self.session else INVALID_SESSION_ID


def _requested(body: FetchRequest) -> Iterator[tuple[str, FetchPartition]]:
    for topic in body.topics:
        for partition in topic.partitions:
            yield topic.topic, partition


class FetchSessionCache:
    """All sessions of a broker; at most `slots` of them."""

    def __init__(self, slots: int, random_below: Callable[[int], int]) -> None:
        self._slots = slots
        self._random_below = random_below
        # In the order last used, longest ago first.
        self._sessions: dict[int, FetchSession] = {}
        self.evictions = 0

    def __len__(self) -> int:
        """How many sessions are open."""
        return len(self._sessions)

    def open_context(self, body: FetchRequest, version: int, now_ms: int) -> FetchContext:
        """What a request stands for; closes, opens or goes on with a session as it asks."""
        epoch = body.session_epoch
        if version < 7 or epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if body.session_id != INVALID_SESSION_ID:
                self._sessions.pop(body.session_id, None)
            context = FetchContext(list(_requested(body)))
            if version >= 7 and epoch == INITIAL_EPOCH:
                context.session = self._maybe_create(body, context, now_ms)
            return context
        session = self._sessions.get(body.session_id)
        if session is None:
            return FetchContext([], error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return FetchContext([], error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.update(body)
        session.epoch = epoch + 1 if epoch < _EPOCH_MAX else 1
        self._touch(session, now_ms)
        if not session.partitions:
            # Everything was forgotten: the session has nothing left to cache.
            del self._sessions[session.session_id]
            return FetchContext([])
        wanted = [(cached.topic, cached.request) for cached in session.partitions.values()]
        return FetchContext(wanted, session, is_incremental=True)

    def _touch(self, session: FetchSession, now_ms: int) -> None:
        session.last_used_ms = now_ms
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)

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
            session_id = self._random_below(_EPOCH_MAX) + 1
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
