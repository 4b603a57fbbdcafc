"""ZnodeTree: znodes with versions, ephemerals, sequences and one-shot watches. Pure.

A change has two steps, so that it can be made durable between them: `prepare` checks operations
against the tree and numbers them as one Transaction, changing nothing; `apply` carries out a
Transaction and cannot fail. A multi is checked as if its operations happened in sequence, and is
all or nothing.

Invariants: every znode but "/" has a parent; an ephemeral one has no children and its owner is an
open session; zxids rise by one per transaction; a parent counts the children it ever had, and that
count numbers its sequential ones.

ZooKeeper: org.apache.zookeeper.server.DataTree, PrepRequestProcessor.
"""

import re
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from kctl.lazy_dataclass import dataclass
from kctl.store.errors import (
    BadArgumentsError,
    BadVersionError,
    MultiError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    StoreError,
)
from kctl.store.watches import Firing, WatchTable
from kctl.store.znode import ANY_VERSION, Check, Create, Delete, EventType, Operation, Set, Stat

# ZooKeeper's jute.maxbuffer is 1 MiB; this allows an assignment of 100,000 partitions.
MAX_DATA_BYTES = 4 << 20
MAX_PATH_CHARACTERS = 8192
# Znodes whose children are kept sorted between two reads of them: the controller reads all topics
# after each new one.
SORTED_MAX = 16

# As PathUtils.validatePath: no empty, "." or ".." part, no control or private characters.
_VALID_PATH = re.compile(
    r"(?:/(?!\.{1,2}(?:/|\Z))"
    r"[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+)+"
)


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session begins; with `timeout_ms` 0 it lasts as long as the process that owns the tree."""

    timeout_ms: int


@dataclass(frozen=True, slots=True)
class CloseSession:
    """A session ends; the deletions of its ephemerals precede this in the same transaction."""


Change = Operation | OpenSession | CloseSession


class Transaction(NamedTuple):
    """Changes that were checked and happen together."""

    zxid: int
    session_id: int
    time_ms: int
    changes: Sequence[Change]


class Applied(NamedTuple):
    """The results of a transaction: a path per Create, a Stat per Set, else None."""

    results: list[Stat | str | None]
    firings: list[Firing]


class Znode:
    """One znode; `children` are names, None for none."""

    __slots__ = (
        "child_creates",
        "children",
        "ctime_ms",
        "czxid",
        "data",
        "ephemeral_owner",
        "mtime_ms",
        "mzxid",
        "pzxid",
        "version",
    )

    def __init__(self, data: bytes, zxid: int, time_ms: int, ephemeral_owner: int) -> None:
        self.data = data
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime_ms = self.mtime_ms = time_ms
        self.version = 0
        # Children ever created here.
        self.child_creates = 0
        self.children: set[str] | None = None
        self.ephemeral_owner = ephemeral_owner

    def stat(self) -> Stat:
        """Return ZooKeeper's Stat; cversion counts created and deleted children."""
        child_count = len(self.children) if self.children else 0
        return Stat(
            self.czxid,
            self.mzxid,
            self.ctime_ms,
            self.mtime_ms,
            self.version,
            2 * self.child_creates - child_count,
            0,
            self.ephemeral_owner,
            len(self.data),
            child_count,
            self.pzxid,
        )


class _Facts(NamedTuple):
    """The facts of a znode that checks need, as of that point of a multi."""

    version: int
    child_creates: int
    child_count: int
    is_ephemeral: bool


_Outlook = dict[str, _Facts | None]


class ZnodeTree:
    """Owns znodes, open sessions and watches; has no file, clock or connection."""

    def __init__(self) -> None:
        self.last_zxid = 0
        # Path -> znode, parents before children.
        self.nodes: dict[str, Znode] = {"/": Znode(b"", 0, 0, 0)}
        # Open sessions and their timeouts.
        self.sessions: dict[int, int] = {}
        self.watches = WatchTable()
        # Called with the path of an existing znode before it changes.
        self.before_change: Callable[[str], object] | None = None
        self._ephemerals: dict[int, dict[str, None]] = {}
        # Path -> names of its children, sorted; of at most SORTED_MAX znodes that were read.
        self._sorted: dict[str, list[str]] = {}

    # --- reads

    def get(self, path: str) -> Znode:
        """Return the znode; raise NoNodeError."""
        node = self.nodes.get(path)
        if node is None:
            raise NoNodeError(path)
        return node

    def children(self, path: str) -> list[str]:
        """Return names of the children, sorted; raise NoNodeError."""
        names = self._sorted.get(path)
        if names is None:
            names = sorted(self.get(path).children or ())
            if len(self._sorted) >= SORTED_MAX:
                self._sorted.clear()
            self._sorted[path] = names
        elif not names:
            # The znode itself may be gone.
            self.get(path)
        return names.copy()

    def ephemerals(self, session_id: int) -> list[str]:
        """Return the paths of a session's ephemerals, in order of creation."""
        return list(self._ephemerals.get(session_id, ()))

    # --- step one: check

    def prepare(self, operation: Operation, session_id: int, time_ms: int) -> Transaction:
        """Check one operation; raise the error that it would fail with."""
        self._check_session(session_id)
        operation = self._numbered(operation, None)
        self._check(operation, None)
        return Transaction(self.last_zxid + 1, session_id, time_ms, (operation,))

    def prepare_multi(
        self, operations: Sequence[Operation], session_id: int, time_ms: int
    ) -> Transaction:
        """Check operations in order; MultiError has the index of the first that fails."""
        self._check_session(session_id)
        outlook: _Outlook = {}
        numbered = []
        for index, wanted in enumerate(operations):
            try:
                operation = self._numbered(wanted, outlook)
                self._check(operation, outlook)
            except StoreError as error:
                raise MultiError(index, error) from None
            numbered.append(operation)
        return Transaction(self.last_zxid + 1, session_id, time_ms, numbered)

    def prepare_each(
        self, operations: Iterable[Operation], session_id: int, time_ms: int
    ) -> list[Transaction | StoreError]:
        """Check operations in order, each as a transaction of its own that follows the previous
        ones; an operation that fails has its error instead, and changes nothing for the others."""
        self._check_session(session_id)
        outlook: _Outlook = {}
        prepared: list[Transaction | StoreError] = []
        zxid = self.last_zxid
        for wanted in operations:
            try:
                operation = self._numbered(wanted, outlook)
                self._check(operation, outlook)
            except StoreError as error:
                prepared.append(error)
            else:
                zxid += 1
                prepared.append(Transaction(zxid, session_id, time_ms, (operation,)))
        return prepared

    def check(self, check: Check) -> None:
        """Raise NoNodeError or BadVersionError unless the znode has this version."""
        self._facts_at_version(check.path, check.version, None)

    def prepare_open_session(self, session_id: int, timeout_ms: int, time_ms: int) -> Transaction:
        """Begin a session under an id that was never used."""
        return Transaction(self.last_zxid + 1, session_id, time_ms, (OpenSession(timeout_ms),))

    def prepare_close_session(self, session_id: int, time_ms: int) -> Transaction:
        """End a session and delete its ephemerals; SessionExpiredError if it has ended already."""
        self._check_session(session_id)
        changes: list[Change] = [Delete(path) for path in self._ephemerals.get(session_id, ())]
        changes.append(CloseSession())
        return Transaction(self.last_zxid + 1, session_id, time_ms, changes)

    def _check_session(self, session_id: int) -> None:
        if session_id not in self.sessions:
            raise SessionExpiredError

    def _numbered(self, operation: Operation, outlook: _Outlook | None) -> Operation:
        """Return a sequential Create with the path that it gets at that point; raise
        NoNodeError."""
        if not (isinstance(operation, Create) and operation.sequence):
            return operation
        parent = self._facts(_parent_of(operation.path), outlook)
        if parent is None:
            raise NoNodeError(operation.path, f"{operation.path}: no parent znode")
        path = f"{operation.path}{parent.child_creates:010d}"
        return Create(path, operation.data, operation.ephemeral)

    def _check(self, operation: Operation, outlook: _Outlook | None) -> None:
        """Raise the operation's error, or note in `outlook` what it would change."""
        if isinstance(operation, Create):
            self._check_create(operation, outlook)
        elif isinstance(operation, Delete):
            self._check_delete(operation, outlook)
        else:
            facts = self._facts_at_version(operation.path, operation.version, outlook)
            if isinstance(operation, Set):
                _check_data(operation.path, operation.data)
                if outlook is not None:
                    version, creates, count, is_ephemeral = facts
                    outlook[operation.path] = _Facts(version + 1, creates, count, is_ephemeral)

    def _check_create(self, operation: Create, outlook: _Outlook | None) -> None:
        path = operation.path
        if _VALID_PATH.fullmatch(path) is None or len(path) > MAX_PATH_CHARACTERS:
            if path == "/":
                raise NodeExistsError(path)
            raise BadArgumentsError(path)
        _check_data(path, operation.data)
        parent_path = _parent_of(path)
        parent = self._facts(parent_path, outlook)
        if parent is None:
            raise NoNodeError(path, f"{path}: no parent znode")
        if self._facts(path, outlook) is not None:
            raise NodeExistsError(path)
        if parent.is_ephemeral:
            raise NoChildrenForEphemeralsError(path)
        if outlook is not None:
            outlook[path] = _Facts(0, 0, 0, operation.ephemeral)
            version, child_creates, child_count, is_ephemeral = parent
            outlook[parent_path] = _Facts(version, child_creates + 1, child_count + 1, is_ephemeral)

    def _check_delete(self, operation: Delete, outlook: _Outlook | None) -> None:
        path = operation.path
        if path == "/":
            raise BadArgumentsError(path)
        facts = self._facts_at_version(path, operation.version, outlook)
        if facts.child_count:
            raise NotEmptyError(path)
        if outlook is not None:
            outlook[path] = None
            parent_path = _parent_of(path)
            parent = self._facts(parent_path, outlook)
            if parent is not None:
                outlook[parent_path] = parent._replace(child_count=parent.child_count - 1)

    def _facts_at_version(self, path: str, version: int, outlook: _Outlook | None) -> _Facts:
        facts = self._facts(path, outlook)
        if facts is None:
            raise NoNodeError(path)
        if version not in (ANY_VERSION, facts.version):
            raise BadVersionError(path)
        return facts

    def _facts(self, path: str, outlook: _Outlook | None) -> _Facts | None:
        if outlook and path in outlook:
            return outlook[path]
        node = self.nodes.get(path)
        if node is None:
            return None
        child_count = len(node.children) if node.children else 0
        return _Facts(node.version, node.child_creates, child_count, node.ephemeral_owner != 0)

    # --- step two: change

    def apply(self, transaction: Transaction) -> Applied:
        """Carry out a transaction of `prepare`, which must have the next zxid."""
        zxid, session_id, time_ms, changes = transaction
        if zxid != self.last_zxid + 1:
            raise ValueError(f"transaction {zxid:#x} after {self.last_zxid:#x}")
        self.last_zxid = zxid
        results: list[Stat | str | None] = []
        firings: list[Firing] = []
        for change in changes:
            result: Stat | str | None = None
            if isinstance(change, Create):
                owner = session_id if change.ephemeral else 0
                self._create(change.path, change.data, owner, zxid, time_ms)
                self._fire_created(change.path, firings)
                result = change.path
            elif isinstance(change, Set):
                node = self._to_change(change.path)
                node.data = change.data
                node.mzxid = zxid
                node.mtime_ms = time_ms
                node.version += 1
                firings += self.watches.fire(EventType.DATA_CHANGED, change.path)
                result = node.stat()
            elif isinstance(change, Delete):
                self._delete(change.path, zxid)
                firings += self.watches.fire(EventType.DELETED, change.path)
                firings += self.watches.fire(EventType.CHILDREN_CHANGED, _parent_of(change.path))
            elif isinstance(change, OpenSession):
                self.sessions[session_id] = change.timeout_ms
            elif isinstance(change, CloseSession):
                del self.sessions[session_id]
                self.watches.forget_session(session_id)
            results.append(result)
        return Applied(results, firings)

    def _to_change(self, path: str) -> Znode:
        if self.before_change is not None:
            self.before_change(path)
        return self.nodes[path]

    def _create(self, path: str, data: bytes, owner: int, zxid: int, time_ms: int) -> None:
        self.nodes[path] = Znode(data, zxid, time_ms, owner)
        parent_path, _, name = path.rpartition("/")
        parent = self._to_change(parent_path or "/")
        if parent.children is None:
            parent.children = {name}
        else:
            parent.children.add(name)
        names = self._sorted.get(parent_path or "/")
        if names is not None:
            insort(names, name)
        parent.child_creates += 1
        parent.pzxid = zxid
        if owner:
            self._ephemerals.setdefault(owner, {})[path] = None

    def _fire_created(self, path: str, firings: list[Firing]) -> None:
        firings += self.watches.fire(EventType.CREATED, path)
        firings += self.watches.fire(EventType.CHILDREN_CHANGED, _parent_of(path))

    def _delete(self, path: str, zxid: int) -> None:
        node = self.nodes.pop(path)
        parent_path, _, name = path.rpartition("/")
        parent = self._to_change(parent_path or "/")
        if parent.children is not None:
            parent.children.discard(name)
            if not parent.children:
                parent.children = None
        names = self._sorted.get(parent_path or "/")
        if names is not None:
            del names[bisect_left(names, name)]
        parent.pzxid = zxid
        owned = self._ephemerals.get(node.ephemeral_owner)
        if owned is not None:
            owned.pop(path, None)
            if not owned:
                del self._ephemerals[node.ephemeral_owner]

    # --- restoring a snapshot

    def restore(self, zxid: int, nodes: Iterable[tuple[str, Znode]]) -> None:
        """Replace the tree by the state as of `zxid`; `nodes` list parents before children."""
        self.last_zxid = zxid
        self._sorted.clear()
        for path, node in nodes:
            self.nodes[path] = node
            if path == "/":
                continue
            parent_path, _, name = path.rpartition("/")
            parent = self.nodes[parent_path or "/"]
            if parent.children is None:
                parent.children = set()
            parent.children.add(name)
            if node.ephemeral_owner:
                self._ephemerals.setdefault(node.ephemeral_owner, {})[path] = None


def _parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _check_data(path: str, data: bytes) -> None:
    if len(data) > MAX_DATA_BYTES:
        raise BadArgumentsError(path, f"{path}: {len(data)} bytes are too much for a znode")
