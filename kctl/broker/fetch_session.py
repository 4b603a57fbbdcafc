"""Incremental fetch sessions: a client names its partitions once, then only changes.

A session caches, per partition, the client's request and the last response. A full fetch (epoch 0)
may open a session, epoch -1 closes it, any other epoch must be the next one expected; a response
then holds only partitions with records, errors or changes. Partitions with records move to the end
of the session, so that no partition starves when responses are full.

When the cache is full, a session is evicted that has been idle for `EVICTION_MS`, or one that is
smaller than the new one and old enough; a follower's session has precedence over a consumer's.

Requests and sessions of very many partitions are read in turns. The epoch moves in the first of
them, so a second request of the same epoch is refused meanwhile, as it is afterwards.

Kafka 2.7: kafka.server.FetchSession, FetchManager; KIP-227.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

from kctl.lazy_dataclass import dataclass
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.fetch import FetchPartition, FetchRequest
from kctl.work import Work, nested_parts, parts

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
INVALID_SESSION_ID: Final = 0
# How long a session is protected from eviction after its last use.
EVICTION_MS: Final = 120_000
EPOCH_MAX: Final = 2**31 - 1
# Partitions of one session, which is released in one turn. A request that would add more closes it,
# and a full request of more opens none.
SESSION_PARTITIONS_MAX: Final = 50_000
# Partitions of a request or a session that are read in one turn, about 2 ms.
PARTITIONS_PER_TURN: Final = 1_000

Key = tuple[str, int]
Wanted = Sequence[tuple[str, FetchPartition]]


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

    def fill(self, wanted: Wanted) -> None:
        """Add the partitions of the full request that opens the session."""
        for topic, partition in wanted:
            self.partitions[topic, partition.partition] = CachedPartition(topic, partition)

    def update(self, body: FetchRequest) -> None:
        """Apply the changes of an incremental request."""
        for topic in body.topics:
            self._add(topic.topic, topic.partitions)
        for forgotten in body.forgotten_topics_data:
            self._forget(forgotten.topic, forgotten.partitions)

    def updating(self, body: FetchRequest) -> Work[None]:
        """Do the same in turns."""
        added = nested_parts(((it.topic, it.partitions) for it in body.topics), PARTITIONS_PER_TURN)
        for part in added:
            if part is None:
                yield
                # It is closed as it is, so the rest is not added.
                if len(self.partitions) > SESSION_PARTITIONS_MAX:
                    return
            else:
                self._add(*part)
        forgotten = ((it.topic, it.partitions) for it in body.forgotten_topics_data)
        for gone in nested_parts(forgotten, PARTITIONS_PER_TURN):
            if gone is None:
                yield
            else:
                self._forget(*gone)

    def _add(self, topic: str, partitions: Sequence[FetchPartition]) -> None:
        for partition in partitions:
            cached = self.partitions.get((topic, partition.partition))
            if cached is None:
                cached = CachedPartition(topic, partition)
                self.partitions[topic, partition.partition] = cached
            cached.request = partition
            if self.is_follower:
                # Its log has changed, perhaps without the last response, which it must drop if its
                # log or its leader's epoch changed meanwhile. Send everything again.
                cached.was_in_error = True

    def _forget(self, topic: str, numbers: Sequence[int]) -> None:
        for number in numbers:
            self.partitions.pop((topic, number), None)

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


def _requested_in_turns(body: FetchRequest) -> Work[list[tuple[str, FetchPartition]]]:
    wanted: dict[Key, FetchPartition] = {}
    topics = ((it.topic, it.partitions) for it in body.topics)
    for part in nested_parts(topics, PARTITIONS_PER_TURN):
        if part is None:
            yield
        else:
            wanted.update(((part[0], it.partition), it) for it in part[1])
    result: list[tuple[str, FetchPartition]] = []
    remaining = iter(wanted.items())
    while some := list(islice(remaining, PARTITIONS_PER_TURN)):
        yield
        result += [(topic, partition) for (topic, _), partition in some]
    return result


def _is_full(body: FetchRequest, version: int) -> bool:
    return version < 7 or body.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)


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

    def is_wide(self, session_id: int) -> bool:
        """Return whether requests of a session, whatever is in them, are to be read in turns."""
        session = self._sessions.get(session_id)
        return session is not None and len(session.partitions) > PARTITIONS_PER_TURN

    def open_context(self, body: FetchRequest, version: int, now_ms: int) -> FetchContext:
        """Return the context of a request; close, open or continue a session as it requires."""
        if _is_full(body, version):
            context = self._opened(body, version, _requested(body), now_ms)
            if context.session is not None:
                context.session.fill(context.partitions)
            return context
        context = self._continued(body, now_ms)
        session = context.session
        if session is not None:
            session.update(body)
            if self._is_kept(session, context):
                context.partitions = [(it.topic, it.request) for it in session.partitions.values()]
        return context

    def opening_context(self, body: FetchRequest, version: int, now_ms: int) -> Work[FetchContext]:
        """Do the same in turns."""
        if _is_full(body, version):
            wanted = yield from _requested_in_turns(body)
            context = self._opened(body, version, wanted, now_ms)
            if context.session is not None:
                for some in parts(wanted, PARTITIONS_PER_TURN):
                    yield
                    context.session.fill(some)
            return context
        context = self._continued(body, now_ms)
        session = context.session
        if session is not None:
            yield from session.updating(body)
            if self._is_kept(session, context):
                # A copy, because the session may change between two turns.
                for part in parts(list(session.partitions.values()), PARTITIONS_PER_TURN):
                    yield
                    context.partitions += [(it.topic, it.request) for it in part]
        return context

    def _opened(
        self,
        body: FetchRequest,
        version: int,
        wanted: list[tuple[str, FetchPartition]],
        now_ms: int,
    ) -> FetchContext:
        """Return the context of a full request, perhaps with a new session, which is still empty:
        no client knows its id yet."""
        if body.session_id != INVALID_SESSION_ID:
            self._sessions.pop(body.session_id, None)
        context = FetchContext(wanted)
        if version >= 7 and body.session_epoch == INITIAL_EPOCH:
            context.session = self._maybe_create(body, context, now_ms)
        return context

    def _continued(self, body: FetchRequest, now_ms: int) -> FetchContext:
        """Return the context of an incremental request, without its partitions; with an error and
        no session if the session or the epoch is not the expected one."""
        session = self._sessions.get(body.session_id)
        if session is None:
            return FetchContext([], error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        epoch = body.session_epoch
        if session.epoch != epoch:
            return FetchContext([], error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.epoch = epoch + 1 if epoch < EPOCH_MAX else 1
        self._touch(session, now_ms)
        return FetchContext([], session, is_incremental=True)

    def _is_kept(self, session: FetchSession, context: FetchContext) -> bool:
        """Return whether an updated session goes on; remove it from the cache and the context if it
        has no partitions left, or too many."""
        if 0 < len(session.partitions) <= SESSION_PARTITIONS_MAX:
            return True
        self.discard(session)
        context.session, context.is_incremental = None, False
        if session.partitions:
            context.error_code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        return False

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
        count = len(context.partitions)
        if not 0 < count <= SESSION_PARTITIONS_MAX or not self._make_room(
            count, is_follower=is_follower, now_ms=now_ms
        ):
            return None
        session = FetchSession(
            session_id=self._new_session_id(),
            is_follower=is_follower,
            created_ms=now_ms,
            last_used_ms=now_ms,
            epoch=1,
            partitions={},
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
