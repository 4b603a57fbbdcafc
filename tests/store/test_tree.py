"""ZnodeTree against a naive model of ZooKeeper's rules, and what only the tree itself can show."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.store.errors import (
    BadVersionError,
    MultiError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    StoreError,
)
from kctl.store.journal_format import decode_snapshot
from kctl.store.tree import SORTED_MAX, ZnodeTree
from kctl.store.znode import Check, Create, Delete, EventType, Operation, Set
from tests.support.znode_snapshots import encode_snapshot

SESSIONS = (1, 2)


@dataclass
class NaiveZnode:
    """A znode as plain values."""

    data: bytes
    owner: int
    version: int = 0
    created: int = 0
    changes_of_children: int = 0
    children_ever: int = 0


@dataclass
class NaiveTree:
    """All paths in one dictionary, copied before every multi: slow, but obviously correct."""

    znodes: dict[str, NaiveZnode] = field(default_factory=lambda: {"/": NaiveZnode(b"", 0)})

    def children(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        return sorted(
            other[len(prefix) :]
            for other in self.znodes
            if other != "/" and other.startswith(prefix) and "/" not in other[len(prefix) :]
        )

    def do(self, operation: Operation, session_id: int) -> None:
        path = operation.path
        parent = self.znodes.get(path.rpartition("/")[0] or "/")
        there = self.znodes.get(path)
        if isinstance(operation, Create):
            if parent is None:
                raise NoNodeError(path)
            if there is not None:
                raise NodeExistsError(path)
            if parent.owner:
                raise NoChildrenForEphemeralsError(path)
            parent.changes_of_children += 1
            parent.children_ever += 1
            owner = session_id if operation.ephemeral else 0
            self.znodes[path] = NaiveZnode(operation.data, owner)
            return
        if there is None:
            raise NoNodeError(path)
        if operation.version not in (-1, there.version):
            raise BadVersionError(path)
        if isinstance(operation, Set):
            there.data = operation.data
            there.version += 1
        elif isinstance(operation, Delete):
            if self.children(path):
                raise NotEmptyError(path)
            del self.znodes[path]
            parent.changes_of_children += 1

    def do_all(self, operations: list[Operation], session_id: int) -> None:
        before = {path: NaiveZnode(**vars(znode)) for path, znode in self.znodes.items()}
        for index, operation in enumerate(operations):
            try:
                self.do(operation, session_id)
            except StoreError as error:
                self.znodes = before
                raise MultiError(index, error) from None

    def end_session(self, session_id: int) -> None:
        for path in [path for path, znode in self.znodes.items() if znode.owner == session_id]:
            self.do(Delete(path), session_id)


PATHS = st.sampled_from(["/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/deep"])
DATA = st.binary(max_size=3)
VERSIONS = st.sampled_from([-1, -1, 0, 1, 2])
OPERATIONS = st.one_of(
    st.builds(Create, PATHS, DATA, st.booleans()),
    st.builds(Create, PATHS, DATA),
    st.builds(Set, PATHS, DATA, VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)
END_SESSION = st.just("end")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(SESSIONS),
        st.one_of(OPERATIONS, st.lists(OPERATIONS, max_size=5), END_SESSION),
    ),
    max_size=60,
)


def new_tree() -> ZnodeTree:
    tree = ZnodeTree()
    for session_id in SESSIONS:
        tree.apply(tree.prepare_open_session(session_id, 0, 0))
    return tree


def step(tree: ZnodeTree, session_id: int, what: object) -> None:
    if what == "end":
        tree.apply(tree.prepare_close_session(session_id, 0))
        tree.apply(tree.prepare_open_session(session_id, 0, 0))
    elif isinstance(what, list):
        tree.apply(tree.prepare_multi(what, session_id, 0))
    else:
        tree.apply(tree.prepare(what, session_id, 0))


def naive_step(tree: NaiveTree, session_id: int, what: object) -> None:
    if what == "end":
        tree.end_session(session_id)
    elif isinstance(what, list):
        tree.do_all(what, session_id)
    else:
        tree.do(what, session_id)


def outcome(call, *args) -> object:
    try:
        call(*args)
    except MultiError as error:
        return error.index, type(error.error)
    except StoreError as error:
        return type(error)
    return None


def assert_same(tree: ZnodeTree, naive: NaiveTree) -> None:
    assert set(tree.nodes) == set(naive.znodes)
    for path, expected in naive.znodes.items():
        node = tree.get(path)
        stat = node.stat()
        assert tree.children(path) == naive.children(path)
        assert (node.data, stat.version, stat.ephemeral_owner) == (
            expected.data,
            expected.version,
            expected.owner,
        )
        assert (stat.cversion, stat.child_count, node.child_creates) == (
            expected.changes_of_children,
            len(naive.children(path)),
            expected.children_ever,
        )
    for session_id in SESSIONS:
        owned = {path for path, znode in naive.znodes.items() if znode.owner == session_id}
        assert set(tree.ephemerals(session_id)) == owned


@given(STEPS)
def test_tree_behaves_as_the_naive_model(steps):
    tree, naive = new_tree(), NaiveTree()
    for session_id, what in steps:
        zxid = tree.last_zxid
        expected = outcome(naive_step, naive, session_id, what)
        assert outcome(step, tree, session_id, what) == expected
        if expected is not None:
            assert tree.last_zxid == zxid
        assert_same(tree, naive)


def test_names_stay_sorted_while_children_come_and_go():
    tree = new_tree()
    parents = [f"/p{number}" for number in range(2 * SORTED_MAX)]
    for parent in parents:
        step(tree, SESSIONS[0], Create(parent, b""))
        assert tree.children(parent) == []
    for name in ("m", "b", "z", "a", "k"):
        for parent in parents:
            step(tree, SESSIONS[0], Create(f"{parent}/{name}", b""))
            tree.children(parent).append("of the caller")
    for parent in parents:
        step(tree, SESSIONS[0], Delete(f"{parent}/k", -1))
        assert tree.children(parent) == ["a", "b", "m", "z"]


def test_a_znode_that_is_gone_has_no_names():
    tree = new_tree()
    step(tree, SESSIONS[0], Create("/a", b""))
    step(tree, SESSIONS[0], Create("/a/x", b""))
    assert tree.children("/a") == ["x"]
    step(tree, SESSIONS[0], Delete("/a/x", -1))
    step(tree, SESSIONS[0], Delete("/a", -1))
    with pytest.raises(NoNodeError):
        tree.children("/a")
    step(tree, SESSIONS[0], Create("/a", b""))
    assert tree.children("/a") == []


@given(STEPS)
def test_snapshot_brings_the_same_tree_back(steps):
    tree = new_tree()
    for session_id, what in steps:
        outcome(step, tree, session_id, what)
    again = decode_snapshot(encode_snapshot(tree), "snapshot")
    assert again.last_zxid == tree.last_zxid
    assert again.sessions == tree.sessions
    assert list(again.nodes) == list(tree.nodes)
    for path, node in tree.nodes.items():
        assert again.get(path).stat() == node.stat()
        assert again.get(path).data == node.data
        assert again.children(path) == tree.children(path)
        assert again.get(path).child_creates == node.child_creates
    for session_id in SESSIONS:
        assert sorted(again.ephemerals(session_id)) == sorted(tree.ephemerals(session_id))


@given(STEPS)
def test_every_watch_fires_at_most_once_and_only_for_a_change(steps):
    tree = new_tree()
    paths = ["/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/deep"]
    for session_id, what in steps:
        before = {path: (path in tree.nodes, _facts(tree, path)) for path in paths}
        for path in paths:
            tree.watches.watch_data(path, 9, ("data", path))
            if path in tree.nodes:
                tree.watches.watch_children(path, 9, ("children", path))
        fired = _fired(tree, session_id, what)
        assert len(fired) == len(set(fired))
        for kind, path in fired:
            assert (path in tree.nodes, _facts(tree, path)) != before[path], kind
        for path in paths:
            was_there, facts = before[path]
            if was_there != (path in tree.nodes) or facts[0] != _facts(tree, path)[0]:
                assert ("data", path) in fired
        tree.watches.clear()


def _facts(tree: ZnodeTree, path: str) -> tuple[object, object]:
    node = tree.nodes.get(path)
    return (node.mzxid, node.pzxid) if node else (None, None)


def _fired(tree: ZnodeTree, session_id: int, what: object) -> list[object]:
    try:
        if what == "end":
            transaction = tree.prepare_close_session(session_id, 0)
            firings = tree.apply(transaction).firings
            tree.apply(tree.prepare_open_session(session_id, 0, 0))
        elif isinstance(what, list):
            firings = tree.apply(tree.prepare_multi(what, session_id, 0)).firings
        else:
            firings = tree.apply(tree.prepare(what, session_id, 0)).firings
    except StoreError:
        return []
    return [firing.watch for firing in firings]


def test_preparing_changes_nothing():
    tree = new_tree()
    tree.prepare_multi([Create("/a", b""), Set("/a", b"1"), Create("/a/x", b"")], 1, 0)
    tree.prepare_close_session(1, 0)
    assert list(tree.nodes) == ["/"]
    assert tree.last_zxid == len(SESSIONS)
    assert set(tree.sessions) == set(SESSIONS)


def test_transactions_are_applied_in_order_or_not_at_all():
    tree = new_tree()
    first = tree.prepare(Create("/a", b""), 1, 0)
    second = tree.prepare(Create("/b", b""), 1, 0)
    tree.apply(first)
    with pytest.raises(ValueError, match="after"):
        tree.apply(second)
    assert tree.children("/") == ["a"]


def test_session_that_is_not_open_cannot_write():
    tree = new_tree()
    for prepare in (
        lambda: tree.prepare(Create("/a", b""), 99, 0),
        lambda: tree.prepare_multi([Create("/a", b"")], 99, 0),
        lambda: tree.prepare_close_session(99, 0),
    ):
        with pytest.raises(SessionExpiredError):
            prepare()


def test_end_of_a_session_deletes_its_ephemerals_under_one_zxid():
    tree = new_tree()
    for path in ("/e1", "/e2"):
        tree.apply(tree.prepare(Create(path, b"", ephemeral=True), 1, 0))
    tree.watches.watch_data("/e2", 2, "watch")
    tree.watches.watch_data("/e1", 1, "dies with its session")
    zxid = tree.last_zxid
    applied = tree.apply(tree.prepare_close_session(1, 0))
    assert tree.last_zxid == zxid + 1
    assert tree.children("/") == []
    assert [(f.session_id, f.event.type) for f in applied.firings if f.session_id == 2] == [
        (2, EventType.DELETED)
    ]
    assert list(tree.watches.armed()) == []
