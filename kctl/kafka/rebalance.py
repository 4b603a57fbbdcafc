"""Rebalance: what one member of a group on ZooKeeper owns, and what it does next. Pure.

Theory. Members do not talk to each other. Each computes the whole assignment from what it reads,
and takes its part by creating an ephemeral owner znode per partition, which ZooKeeper lets only one
session do. Views differ for a while, so computed parts may overlap: then the owner znode decides,
and the second one to come waits until the first has read the newer view and let go. Any change of
what was read fires a watch, and a watch begins another round; so as long as ZooKeeper answers,
the members end with the same view, and in it each partition has exactly one owner.

A round:

    READING     read members, partitions, and the owners of what this member should have
    RELEASING   end the delivery of what it should no longer have, commit, delete the owner znodes
    CLAIMING    own what is free, in one multi, and begin its delivery
    WAITING     something is owned by another: the watch on its owner znode begins the next round
    OWNING      all that it should have is its own

What stays with its owner is neither stopped nor touched. A member whose round fails, for whatever
reason, leaves the group, so that others can read its partitions, and returns after a pause.

Invariants, which `kctl.simulation.zookeeper_groups` checks against all members at once:

1. A partition is delivered only while `claims` has it.
2. Each claim was made by the session of `consumer_id`, which is another in each session.
3. Delivery ends before the owner znode is deleted.
4. Without a session (ABSENT, EXPIRED, CLOSED) there are no claims.
5. An offset is committed only under a claim, by the consumer id that made it.

A session that has ended cannot deliver: `Lease` ends before ZooKeeper may let the session end.

Kafka 1.1: kafka.consumer.ZookeeperConsumerConnector.ZKRebalancerListener, of which this differs on
purpose (docs/compatibility.md).
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple

from kctl.errors import KctlError
from kctl.kafka.assignment import Assignment
from kctl.kafka.errors import RebalanceFailedError
from kctl.store.consumer_znodes import ConsumedPartition, OwnerZnode, thread_id


class RebalanceState(Enum):
    """Where a member is in its life and in its round."""

    ABSENT = auto()
    JOINING = auto()
    READING = auto()
    RELEASING = auto()
    CLAIMING = auto()
    WAITING = auto()
    OWNING = auto()
    LEAVING = auto()
    EXPIRED = auto()
    CLOSED = auto()


_S = RebalanceState
# Any state with a session may lose it, and any round may fail.
_ALIVE = (_S.LEAVING, _S.EXPIRED)
_MOVES: dict[RebalanceState, tuple[RebalanceState, ...]] = {
    _S.ABSENT: (_S.JOINING, _S.EXPIRED, _S.CLOSED),
    _S.JOINING: (_S.READING, *_ALIVE),
    _S.READING: (_S.RELEASING, *_ALIVE),
    _S.RELEASING: (_S.CLAIMING, *_ALIVE),
    _S.CLAIMING: (_S.READING, _S.WAITING, _S.OWNING, *_ALIVE),
    _S.WAITING: (_S.READING, *_ALIVE),
    _S.OWNING: (_S.READING, *_ALIVE),
    _S.LEAVING: (_S.ABSENT, _S.EXPIRED),
    _S.EXPIRED: (_S.ABSENT, _S.CLOSED),
    _S.CLOSED: (),
}


class Moves(NamedTuple):
    """What a round changes."""

    # Claims that the znodes no longer show: delivery ends, nothing is committed.
    lost: tuple[ConsumedPartition, ...]
    # Claims that are another's by the assignment: stop, commit, delete.
    release: tuple[ConsumedPartition, ...]
    # Free partitions to own, and by which thread of this member.
    claim: dict[ConsumedPartition, int]
    # Partitions of which a claim of this session exists whose answer was lost.
    adopt: dict[ConsumedPartition, int]
    # Partitions that another consumer still owns.
    blocked: tuple[ConsumedPartition, ...]


class Rebalance:
    """The state of one member; `move` raises RuntimeError for an illegal move."""

    def __init__(self) -> None:
        self.state = RebalanceState.ABSENT
        self.consumer_id = ""
        self.session_id = 0
        # Thread number by partition that this member owns.
        self.claims: dict[ConsumedPartition, int] = {}
        # Partitions that a claim was sent for in this session, and not given up since.
        self._asked: set[ConsumedPartition] = set()

    def move(self, state: RebalanceState) -> None:
        """Go to `state`."""
        if state not in _MOVES[self.state]:
            raise RuntimeError(f"a member goes from {self.state.name} to {state.name}")
        self.state = state

    def join(self, consumer_id: str, session_id: int) -> None:
        """Begin to register as `consumer_id`."""
        self.move(RebalanceState.JOINING)
        self.consumer_id, self.session_id = consumer_id, session_id

    def wanted(self, assignment: Assignment) -> dict[ConsumedPartition, int]:
        """Return this member's part of an assignment, as thread numbers."""
        prefix = thread_id(self.consumer_id, 0)[:-1]
        return {
            it: int(thread[len(prefix) :])
            for it, thread in assignment.items()
            if thread.startswith(prefix) and thread[len(prefix) :].isdigit()
        }

    def to_look_at(self, wanted: Mapping[ConsumedPartition, int]) -> list[ConsumedPartition]:
        """Return the partitions whose owners a round must read."""
        return sorted({*wanted, *self.claims, *self._asked}, key=str)

    def plan(
        self,
        wanted: Mapping[ConsumedPartition, int],
        owners: Mapping[ConsumedPartition, OwnerZnode],
        *,
        stops_all: bool = False,
    ) -> Moves:
        """Return what to change so that this member owns `wanted`, given the owners of
        `to_look_at(wanted)`. With `stops_all`, what stays is released and claimed, too."""
        lost = tuple(it for it in self.claims if not self._is_mine(owners.get(it)))
        release, claim, adopt, blocked = [], {}, {}, []
        for it in self.to_look_at(wanted):
            owner = owners.get(it)
            thread = wanted.get(it)
            if owner is None:
                if thread is not None:
                    claim[it] = thread
            elif not self._is_mine(owner):
                if thread is not None:
                    blocked.append(it)
            elif (
                thread is None
                or owner.thread_id != thread_id(self.consumer_id, thread)
                or (stops_all and it in self.claims)
            ):
                # Also what moves to another thread of this member: it is claimed after it is free.
                release.append(it)
                if thread is not None:
                    claim[it] = thread
            elif it not in self.claims:
                adopt[it] = thread
        return Moves(lost, tuple(release), claim, adopt, tuple(blocked))

    def _is_mine(self, owner: OwnerZnode | None) -> bool:
        return owner is not None and owner.session_id == self.session_id

    def asks_for(self, partitions: Iterable[ConsumedPartition]) -> None:
        """Note claims before they are sent."""
        self._asked.update(partitions)

    def claimed(self, claims: Mapping[ConsumedPartition, int]) -> None:
        """Note claims that exist."""
        if self.state is not RebalanceState.CLAIMING:
            raise RuntimeError(f"claims in {self.state.name}")
        self._asked.difference_update(claims)
        self.claims.update(claims)

    def stopped(self, partitions: Iterable[ConsumedPartition]) -> None:
        """Note that partitions are no longer delivered; their znodes may still exist."""
        for it in partitions:
            if self.claims.pop(it, None) is not None:
                self._asked.add(it)

    def released(self, partitions: Iterable[ConsumedPartition]) -> None:
        """Note that the owner znodes of partitions are gone."""
        self._asked.difference_update(partitions)

    def left(self) -> None:
        """Note that the id znode and all owner znodes of this member are gone."""
        self.move(RebalanceState.ABSENT)
        self._forget()

    def session_ended(self) -> None:
        """Note that the session has ended, and all claims with it."""
        self.move(RebalanceState.EXPIRED)
        self._forget()

    def _forget(self) -> None:
        self.claims.clear()
        self._asked.clear()


class Tries:
    """How often in a row a member has failed to get its part, for `rebalance.max.retries`.

    A round that raises is a try, and so is each back-off in which partitions stay another's. By
    default, without a limit, every error is for the streams at once.
    """

    def __init__(self, limit: int | None, backoff_ms: int) -> None:
        self._limit = limit
        self._backoff_ms = backoff_ms
        self._failed = 0
        # Since when partitions of this member's part are another's, on the monotonic clock.
        self._waits_since_ms: int | None = None

    def succeeded(self) -> None:
        """Note that this member owns its part, all of it."""
        self._failed, self._waits_since_ms = 0, None

    def waits(self, now_ms: int, blocked: Sequence[ConsumedPartition]) -> None:
        """Note that partitions are another's; RebalanceFailedError if they were too long."""
        if self._waits_since_ms is None:
            self._waits_since_ms = now_ms
        waited_ms = now_ms - self._waits_since_ms
        if self._limit is not None and waited_ms >= self._limit * self._backoff_ms:
            what = f"still owns {blocked[0]}" if blocked else "is always faster"
            raise RebalanceFailedError(f"another consumer {what} after {waited_ms} ms")

    def failed(self, error: KctlError) -> KctlError | None:
        """Note that a round raised `error`; return what to raise in the streams, if anything."""
        self._waits_since_ms = None
        if self._limit is None:
            return error
        self._failed += 1
        if self._failed < self._limit and not isinstance(error, RebalanceFailedError):
            return None
        tries, self._failed = self._failed, 0
        if isinstance(error, RebalanceFailedError):
            return error
        return RebalanceFailedError(f"{tries} tries to rebalance have failed, at last: {error}")


class Lease:
    """Until when the session cannot have ended, whatever ZooKeeper has heard meanwhile.

    ZooKeeper ends a session when it hears nothing for the session timeout. What it answers it has
    heard, after the request was sent; so the session lives for the timeout after that moment. The
    lease ends at two thirds of it: clocks differ, and a delivery takes time.
    """

    def __init__(self, timeout_ms: int) -> None:
        self._length_ms = timeout_ms * 2 // 3
        # On the monotonic clock; also read by threads that deliver.
        self.until_ms = 0

    def answered(self, sent_ms: int) -> None:
        """Extend the lease: ZooKeeper has answered a request that was sent at `sent_ms`."""
        self.until_ms = max(self.until_ms, sent_ms + self._length_ms)

    def end(self) -> None:
        """End the lease with its session."""
        self.until_ms = 0

    def is_held(self, now_ms: int) -> bool:
        """Return whether the session is known to live."""
        return now_ms < self.until_ms
