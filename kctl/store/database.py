"""ZnodeDatabase: a durable tree of znodes and the sessions that share it.

Every write is checked, written to the journal and only then applied in memory; its watches are
passed to their sessions in the order they fired. With `fsync`, no session sees anything that a
power loss could undo: responses and events wait, in order, for the sync that covers them, and all
that arrive during one sync share the next (group commit).

Sessions of this process last until they are closed; sessions with a timeout expire without a sign
of life. After a restart the former are gone, with their ephemerals, and the latter get their full
timeout again. A failed sync is never repeated: from then on every call fails.

ZooKeeper: org.apache.zookeeper.server.ZKDatabase, SyncRequestProcessor.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import inf
from typing import Protocol

from kctl.errors import StorageError
from kctl.runtime.future import Future
from kctl.runtime.runtime import Runtime
from kctl.runtime.scheduler import Timer
from kctl.runtime.turns import fail_loudly, in_turns
from kctl.store.errors import MultiError, SessionExpiredError, StoreError
from kctl.store.journal import Journal, Snapshot
from kctl.store.sessions import SessionTracker
from kctl.store.tree import Transaction, ZnodeTree
from kctl.store.watches import Firing
from kctl.store.znode import Check, Operation, Stat

# Session ids are this plus the zxid that opened them: never zero, never reused.
_SESSION_ID_BASE = 1 << 56
# How often the journal is synced before a snapshot, while it grows: what it receives during the
# last sync is repeated in the next journal, so that nothing is ever synced on the loop.
SYNCS_BEFORE_SNAPSHOT_MAX = 3
# The same with `fsync`, where the syncs are those that responses wait for: a snapshot may wait for
# one during which nothing is written.
BUSY_SYNCS_MAX = 1_000
# Sessions that expire in one turn, each with its ephemerals.
SESSIONS_PER_TURN = 50


class SessionOwner(Protocol):
    """Receives a session's events; called inside `commit`, so it must only record them."""

    def watch_fired(self, firing: Firing) -> None:
        """Handle a watch of the session that fired."""
        ...

    def session_expired(self) -> None:
        """Handle the end of the session, which its owner did not request."""
        ...

    def session_taken(self) -> None:
        """Handle a new owner of the session: see `attach_session`."""
        ...


class ZnodeDatabase:
    """Owns the tree, its journal and all sessions."""

    def __init__(
        self, runtime: Runtime, tree: ZnodeTree, journal: Journal | None, *, fsync: bool = False
    ) -> None:
        """Use `open` or `in_memory` instead."""
        self.tree = tree
        # Set once a sync failed: memory then differs from what a restart would find.
        self.failure: StorageError | None = None
        self._runtime = runtime
        self._scheduler = runtime.scheduler
        self._clock = runtime.clock
        self._journal = journal
        self._fsync = fsync
        self._owners: dict[int, SessionOwner] = {}
        self._tracker = SessionTracker()
        self._expiry_timer: Timer | None = None
        self._expiry_ms: float = inf
        # Some write is not covered by a finished sync.
        self._is_sync_due = False
        self._is_syncing = False
        self._is_writing_snapshot = False
        # The syncs during which writes arrived, since a snapshot was due; with `fsync`.
        self._busy_syncs = 0
        self._is_closed = False
        self._waiting: list[tuple[Callable[..., object], tuple[object, ...]]] = []

    @classmethod
    def open(cls, runtime: Runtime, directory: str, *, fsync: bool = False) -> "ZnodeDatabase":
        """Return the tree in `directory`, created if missing; StorageError, CorruptDataError."""
        journal, tree = Journal.open(runtime.disk, directory)
        if journal.cut_off is not None:
            runtime.trace.warning(journal.cut_off)
        database = cls(runtime, tree, journal, fsync=fsync)
        database._resume_sessions()
        return database

    @classmethod
    def in_memory(cls, runtime: Runtime) -> "ZnodeDatabase":
        """Return an empty tree without files."""
        return cls(runtime, ZnodeTree(), None)

    # --- sessions

    def open_session(self, owner: SessionOwner, timeout_ms: int = 0) -> int:
        """Begin a session; with a timeout it needs `touch` to stay alive."""
        session_id = _SESSION_ID_BASE + self.tree.last_zxid + 1
        self._commit(self.tree.prepare_open_session(session_id, timeout_ms, self._clock.wall_ms()))
        self._owners[session_id] = owner
        self._track(session_id, timeout_ms)
        return session_id

    def attach_session(self, session_id: int, owner: SessionOwner) -> int:
        """Take over a session with a timeout, e.g. one from before a restart; return its timeout.
        SessionExpiredError if it has ended, or belongs to this process."""
        timeout_ms = self.tree.sessions.get(session_id, 0)
        if timeout_ms == 0 or not self.touch(session_id):
            raise SessionExpiredError
        previous = self._owners.get(session_id)
        self._owners[session_id] = owner
        if previous is not None:
            previous.session_taken()
        return timeout_ms

    def detach_session(self, session_id: int, owner: SessionOwner) -> None:
        """Stop notifying `owner`; the session continues until its timeout."""
        if self._owners.get(session_id) is owner:
            del self._owners[session_id]

    def touch(self, session_id: int) -> bool:
        """Extend a session with a timeout; return False if it has ended."""
        return self._tracker.touch(session_id, self._clock.monotonic_ms())

    def close_session(self, session_id: int) -> None:
        """End a session and delete its ephemerals and watches. SessionExpiredError if
        it has ended."""
        self._owners.pop(session_id, None)
        self._tracker.forget(session_id)
        self._commit(self.tree.prepare_close_session(session_id, self._clock.wall_ms()))

    def expire_session(self, session_id: int) -> None:
        """End a session that its owner has not closed."""
        owner = self._owners.get(session_id)
        self.close_session(session_id)
        if owner is not None:
            owner.session_expired()

    # --- writes

    def commit(self, session_id: int, operation: Operation) -> Stat | str | None:
        """Apply one operation; raises its StoreError, or StorageError, with nothing changed."""
        transaction = self.tree.prepare(operation, session_id, self._clock.wall_ms())
        return self._commit(transaction)[0]

    def commit_multi(
        self, session_id: int, operations: Sequence[Operation]
    ) -> list[Stat | str | None]:
        """Apply operations together; raises MultiError, or StorageError, with nothing changed."""
        if not operations:
            return []
        transaction = self.tree.prepare_multi(operations, session_id, self._clock.wall_ms())
        return self._commit(transaction)

    def commit_each(
        self, session_id: int, operations: Iterable[Operation], fence: Check | None
    ) -> list[Stat | str | StoreError | None]:
        """Apply operations one by one, in one write to the journal; return for each its result or
        its error. None of them changes the znode of `fence`.

        Raises MultiError 0 if `fence` has another version, or StorageError, with nothing changed.
        """
        tree = self.tree
        if fence is not None:
            try:
                tree.check(fence)
            except StoreError as error:
                raise MultiError(0, error) from None
        prepared = tree.prepare_each(operations, session_id, self._clock.wall_ms())
        results = self._commit_all([it for it in prepared if isinstance(it, Transaction)])
        return [it if isinstance(it, StoreError) else next(results)[0] for it in prepared]

    def _commit(self, transaction: Transaction) -> list[Stat | str | None]:
        return next(self._commit_all([transaction]))

    def _commit_all(self, transactions: Sequence[Transaction]) -> Iterator[list[Stat | str | None]]:
        """Carry out transactions that follow each other; return the results of each."""
        journal = self._journal
        if self.failure is not None:
            raise self.failure
        if self._is_closed:
            raise SessionExpiredError
        if journal is not None and transactions:
            journal.append(transactions)
            if self._fsync:
                self._schedule_sync()
        results = [self._apply(transaction) for transaction in transactions]
        if journal is not None and not self._fsync and journal.is_snapshot_due(self.tree):
            self._begin_snapshot(journal)
        return iter(results)

    def _apply(self, transaction: Transaction) -> list[Stat | str | None]:
        applied = self.tree.apply(transaction)
        for firing in applied.firings:
            owner = self._owners.get(firing.session_id)
            if owner is not None:
                owner.watch_fired(firing)
        return applied.results

    # --- telling

    @property
    def is_all_durable(self) -> bool:
        """Return whether all writes are as durable as required."""
        return not self._is_sync_due and self.failure is None

    def when_durable(self, callback: Callable[..., object], *args: object) -> None:
        """Call back on the loop, in order, once all earlier writes are durable."""
        if self._is_sync_due:
            self._waiting.append((callback, args))
        else:
            self._scheduler.call_soon(callback, *args)

    def _schedule_sync(self) -> None:
        if not self._is_sync_due:
            self._is_sync_due = True
            # At the end of this turn of the loop, so that all its writes share the sync.
            self._scheduler.call_soon(self._begin_sync)

    def _begin_sync(self) -> None:
        journal = self._journal
        if journal is None or self._is_syncing:
            return
        self._is_syncing = True
        waiting, self._waiting = self._waiting, []
        zxid = self.tree.last_zxid
        journal.begin_tail()
        future = self._scheduler.background(journal.sync)
        future.add_done_callback(lambda done: self._synced(done, zxid, waiting))

    def _synced(
        self,
        done: Future[None],
        zxid: int,
        waiting: Sequence[tuple[Callable[..., object], tuple[object, ...]]],
    ) -> None:
        self._is_syncing = False
        error = done.error()
        if error is not None:
            self._fail(error)
        for callback, args in waiting:
            self._scheduler.call_soon(callback, *args)
        is_all_synced = self.tree.last_zxid == zxid
        if self.failure is None:
            self._snapshot_after_sync(is_all_synced=is_all_synced)
        if self.failure is None and not is_all_synced:
            self._begin_sync()
            return
        self._catch_up()

    def _catch_up(self) -> None:
        self._is_sync_due = False
        waiting, self._waiting = self._waiting, []
        for callback, args in waiting:
            self._scheduler.call_soon(callback, *args)

    def _fail(self, error: BaseException) -> None:
        self.failure = (
            error if isinstance(error, StorageError) else StorageError(f"journal: {error}")
        )
        self._runtime.trace.warning(f"the metadata store stops, its journal failed: {error}")

    # --- snapshots

    def _begin_snapshot(self, journal: Journal) -> None:
        if not self._is_writing_snapshot:
            self._is_writing_snapshot = True
            self._sync_before_snapshot(journal, SYNCS_BEFORE_SNAPSHOT_MAX)

    def _snapshot_after_sync(self, *, is_all_synced: bool) -> None:
        """Begin a snapshot that is due, with `fsync`, once a sync covers all that was written: then
        the next journal need not repeat anything."""
        journal = self._journal
        if journal is None or self._is_writing_snapshot or not journal.is_snapshot_due(self.tree):
            return
        if not is_all_synced and self._busy_syncs < BUSY_SYNCS_MAX:
            self._busy_syncs += 1
            return
        self._busy_syncs = 0
        self._is_writing_snapshot = True
        try:
            self._capture(journal)
        except StorageError as error:
            self._fail(error)

    def _sync_before_snapshot(self, journal: Journal, syncs_left: int) -> None:
        """Sync the journal off the loop, again if it grew meanwhile, and then begin the snapshot:
        thousands of writes may never have been synced."""
        journal.begin_tail()
        synced = partial(self._synced_before_snapshot, journal, journal.length, syncs_left - 1)
        self._scheduler.background(journal.sync).add_done_callback(synced)

    def _synced_before_snapshot(
        self, journal: Journal, length: int, syncs_left: int, done: Future[None]
    ) -> None:
        if self._is_closed or done.error() is not None:
            self._snapshot_written(done)
        elif journal.length > length and syncs_left:
            self._sync_before_snapshot(journal, syncs_left)
        else:
            try:
                self._capture(journal)
            except StorageError as error:
                self._no_snapshot(error)

    def _capture(self, journal: Journal) -> None:
        snapshot = journal.begin_snapshot(self.tree)
        encoded = partial(self._write_snapshot, snapshot)
        in_turns(self._scheduler, snapshot.encode(), encoded, fail_loudly)

    def _write_snapshot(self, snapshot: Snapshot, _: None) -> None:
        # Once the store is closed another process may use the files.
        if not self._is_closed:
            self._scheduler.background(snapshot.write).add_done_callback(self._snapshot_written)

    def _snapshot_written(self, done: Future[None]) -> None:
        self._is_writing_snapshot = False
        if (error := done.error()) is not None:
            self._no_snapshot(error)

    def _no_snapshot(self, error: BaseException) -> None:
        """Continue with the journals that it would have covered."""
        self._is_writing_snapshot = False
        self._runtime.trace.warning(f"no snapshot of the metadata store: {error}")

    # --- expiry

    def _resume_sessions(self) -> None:
        for session_id, timeout_ms in list(self.tree.sessions.items()):
            if timeout_ms == 0:
                self.close_session(session_id)
            else:
                self._track(session_id, timeout_ms)

    def _track(self, session_id: int, timeout_ms: int) -> None:
        if timeout_ms > 0:
            now_ms = self._clock.monotonic_ms()
            self._tracker.track(session_id, timeout_ms, now_ms)
            if now_ms + timeout_ms < self._expiry_ms:
                self._set_expiry_timer()

    def _set_expiry_timer(self) -> None:
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        deadline_ms = self._tracker.next_deadline_ms()
        self._expiry_ms = inf if deadline_ms is None else deadline_ms
        self._expiry_timer = (
            None if deadline_ms is None else self._scheduler.call_at(deadline_ms, self._expire)
        )

    def _expire(self) -> None:
        # The others, whose time has come too, in a turn of their own: the timer is due at once.
        now_ms = self._clock.monotonic_ms()
        for session_id in self._tracker.expire(now_ms, SESSIONS_PER_TURN):
            try:
                self.expire_session(session_id)
            except (SessionExpiredError, StorageError) as error:
                self._runtime.trace.warning(f"session {session_id:#x} did not expire: {error}")
        self._set_expiry_timer()

    # --- end

    def close(self) -> Future[None]:
        """Make the last writes durable and close the files; sessions with a timeout stay."""
        self._is_closed = True
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        closed: Future[None] = self._scheduler.future()
        journal, self._journal = self._journal, None
        if journal is None:
            closed.set_result(None)
        else:
            # After the jobs that run already, so that none finds its file closed.
            job = self._scheduler.background(partial(_close_journal, journal))
            job.add_done_callback(partial(self._journal_closed, closed))
        return closed

    def _journal_closed(self, closed: Future[None], done: Future[None]) -> None:
        error = done.error()
        if error is not None:
            self._fail(error)
        self._catch_up()
        if error is None:
            closed.set_result(None)
        else:
            closed.set_error(error)


def _close_journal(journal: Journal) -> None:
    try:
        journal.sync()
    finally:
        journal.close()
