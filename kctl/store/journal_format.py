"""The format of the store's journal and snapshots. Pure.

Journal file: MAGIC, then records `crc32 u32, length u32, zxid i64, session i64, time i64, count
u32, changes`; length counts from zxid on, the CRC covers length and all that follows. A change is
`kind u8, path length u32, data length u32, path, data`. Snapshot file: magic, zxid, sessions,
znodes with parents before children, CRC-32 of all that precedes. Integers are big-endian.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

from kctl.errors import CorruptDataError
from kctl.store.tree import Change, CloseSession, OpenSession, Transaction, Znode, ZnodeTree
from kctl.store.znode import Create, Delete, Set
from kctl.work import Work

JOURNAL_MAGIC = b"kctlznj1"
SNAPSHOT_MAGIC = b"kctlzns1"

_FRAME = struct.Struct(">II")
_HEADER = struct.Struct(">qqqI")
_CHANGE = struct.Struct(">BII")
_INT = struct.Struct(">I")
_ZXID = struct.Struct(">q")
_SNAPSHOT_HEADER = struct.Struct(">qII")
_SESSION = struct.Struct(">qI")
_ZNODE = struct.Struct(">IIqqqqqIIq")

_CREATE, _CREATE_EPHEMERAL, _SET, _DELETE, _OPEN_SESSION, _CLOSE_SESSION = range(1, 7)

# How many transactions ahead to look for a whole record after a damaged one.
_LOOK_AHEAD = 64
# Znodes of a snapshot encoded between two turns of the loop.
ZNODES_PER_TURN = 1_000


class Torn(NamedTuple):
    """The journal's last record is not whole; everything before `position` is."""

    position: int


def encode_transaction(transaction: Transaction) -> bytes:
    """Return one record. Checks change nothing and are left out."""
    zxid, session_id, time_ms, changes = transaction
    parts = [b""]
    count = 0
    for change in changes:
        encoded = _encode_change(change)
        if encoded:
            parts.append(encoded)
            count += 1
    parts[0] = _HEADER.pack(zxid, session_id, time_ms, count)
    body = b"".join(parts)
    length = _INT.pack(len(body))
    return _INT.pack(crc32(body, crc32(length))) + length + body


def _encode_change(change: Change) -> bytes:
    if isinstance(change, Create):
        kind = _CREATE_EPHEMERAL if change.ephemeral else _CREATE
        path = change.path.encode()
        return _CHANGE.pack(kind, len(path), len(change.data)) + path + change.data
    if isinstance(change, Set):
        path = change.path.encode()
        return _CHANGE.pack(_SET, len(path), len(change.data)) + path + change.data
    if isinstance(change, Delete):
        path = change.path.encode()
        return _CHANGE.pack(_DELETE, len(path), 0) + path
    if isinstance(change, OpenSession):
        return _CHANGE.pack(_OPEN_SESSION, 0, _INT.size) + _INT.pack(change.timeout_ms)
    if isinstance(change, CloseSession):
        return _CHANGE.pack(_CLOSE_SESSION, 0, 0)
    return b""


def decode_transactions(data: bytes, path: str, first_zxid: int) -> Iterator[Transaction | Torn]:
    """Yield the transactions of a journal file; Torn, at most once and last, where they end early.

    CorruptDataError if whole records follow a damaged one: then it is not a torn tail but damage to
    durable data.
    """
    if data[: len(JOURNAL_MAGIC)] != JOURNAL_MAGIC:
        if not JOURNAL_MAGIC.startswith(data[: len(JOURNAL_MAGIC)]):
            raise CorruptDataError(f"{path} is no journal of znodes")
        yield Torn(0)
        return
    position = len(JOURNAL_MAGIC)
    next_zxid = first_zxid
    while position < len(data):
        end = _end_of_record(data, position)
        if end is None:
            _check_tail(data, position, next_zxid, path)
            yield Torn(position)
            return
        transaction = _decode_record(data, position + _FRAME.size)
        next_zxid = transaction.zxid + 1
        yield transaction
        position = end


def _end_of_record(data: bytes, position: int) -> int | None:
    """Return where the record ends, or None if it is not whole."""
    start = position + _FRAME.size
    if start > len(data):
        return None
    crc, length = _FRAME.unpack_from(data, position)
    end: int = start + length
    if length < _HEADER.size or end > len(data):
        return None
    if crc32(memoryview(data)[position + _INT.size : end]) != crc:
        return None
    return end


def _check_tail(data: bytes, position: int, next_zxid: int, path: str) -> None:
    for zxid in range(next_zxid, next_zxid + _LOOK_AHEAD):
        for start in _places_of_zxid(data, position, zxid):
            if start > position and _end_of_record(data, start) is not None:
                raise CorruptDataError(
                    f"{path}: the journal is damaged at byte {position} and whole again at {start}",
                    hint="restore the file, or start with another data directory",
                )


def _places_of_zxid(data: bytes, position: int, zxid: int) -> Iterator[int]:
    """Yield where records of this zxid may start, at or after `position`."""
    wanted = _ZXID.pack(zxid)
    found = data.find(wanted, position + _FRAME.size)
    while found >= 0:
        yield found - _FRAME.size
        found = data.find(wanted, found + 1)


def _decode_record(data: bytes, position: int) -> Transaction:
    zxid, session_id, time_ms, count = _HEADER.unpack_from(data, position)
    position += _HEADER.size
    changes: list[Change] = []
    for _ in range(count):
        kind, path_length, data_length = _CHANGE.unpack_from(data, position)
        path_end = position + _CHANGE.size + path_length
        path = data[position + _CHANGE.size : path_end].decode()
        position = path_end + data_length
        changes.append(_change(kind, path, data[path_end:position]))
    return Transaction(zxid, session_id, time_ms, changes)


def _change(kind: int, path: str, data: bytes) -> Change:
    if kind == _SET:
        return Set(path, data)
    if kind == _DELETE:
        return Delete(path)
    if kind == _OPEN_SESSION:
        return OpenSession(_INT.unpack(data)[0])
    if kind == _CLOSE_SESSION:
        return CloseSession()
    if kind not in (_CREATE, _CREATE_EPHEMERAL):
        raise CorruptDataError(f"the journal of znodes holds a change of unknown kind {kind}")
    return Create(path, data, kind == _CREATE_EPHEMERAL)


class SnapshotEncoder:
    """Encodes a tree as it is now, over several turns of the loop in which it may change.

    A znode that is about to change is encoded at once. Invariant: of a znode in `_nodes`, either
    `_early` has the encoding, or it has not changed since.
    """

    def __init__(self, tree: ZnodeTree) -> None:
        self._tree = tree
        self._nodes = dict(tree.nodes)
        self._early: dict[str, bytes] = {}
        self._sessions = tuple(tree.sessions.items())
        self.zxid = tree.last_zxid
        tree.before_change = self._keep

    def _keep(self, path: str) -> None:
        node = self._nodes.get(path)
        # Another znode of that path may have been created since.
        if node is not None and path not in self._early and node is self._tree.nodes[path]:
            self._early[path] = _encode_znode(path, node)

    def encode(self) -> Work[list[bytes]]:
        """Return the parts of a snapshot, without its CRC; call this once."""
        header = _SNAPSHOT_HEADER.pack(self.zxid, len(self._sessions), len(self._nodes))
        parts = [SNAPSHOT_MAGIC, header]
        parts += [_SESSION.pack(*session) for session in self._sessions]
        for number, (path, node) in enumerate(self._nodes.items(), 1):
            parts.append(self._early.get(path) or _encode_znode(path, node))
            if number % ZNODES_PER_TURN == 0:
                yield
        self._tree.before_change = None
        return parts


def _encode_znode(path: str, node: Znode) -> bytes:
    encoded_path = path.encode()
    fields = _ZNODE.pack(
        len(encoded_path),
        len(node.data),
        node.czxid,
        node.mzxid,
        node.pzxid,
        node.ctime_ms,
        node.mtime_ms,
        node.version,
        node.child_creates,
        node.ephemeral_owner,
    )
    return fields + encoded_path + node.data


def complete_snapshot(parts: Sequence[bytes]) -> bytes:
    """Return the file with the parts of a SnapshotEncoder."""
    body = b"".join(parts)
    return body + _INT.pack(crc32(body))


def decode_snapshot(data: bytes, path: str) -> ZnodeTree:
    """Return the tree of a snapshot; raise CorruptDataError."""
    body = memoryview(data)[: -_INT.size]
    if data[: len(SNAPSHOT_MAGIC)] != SNAPSHOT_MAGIC or _INT.unpack(data[-_INT.size :])[0] != crc32(
        body
    ):
        raise CorruptDataError(
            f"{path} is no snapshot of znodes, or a damaged one",
            hint="restore the file, or start with another data directory",
        )
    position = len(SNAPSHOT_MAGIC)
    zxid, session_count, node_count = _SNAPSHOT_HEADER.unpack_from(data, position)
    position += _SNAPSHOT_HEADER.size
    tree = ZnodeTree()
    for _ in range(session_count):
        session_id, timeout_ms = _SESSION.unpack_from(data, position)
        tree.sessions[session_id] = timeout_ms
        position += _SESSION.size
    tree.restore(zxid, _decode_znodes(data, position, node_count))
    return tree


def _decode_znodes(data: bytes, position: int, count: int) -> Iterator[tuple[str, Znode]]:
    for _ in range(count):
        (
            path_length,
            data_length,
            czxid,
            mzxid,
            pzxid,
            ctime_ms,
            mtime_ms,
            version,
            creates,
            owner,
        ) = _ZNODE.unpack_from(data, position)
        path_end = position + _ZNODE.size + path_length
        path = data[position + _ZNODE.size : path_end].decode()
        position = path_end + data_length
        node = Znode(data[path_end:position], czxid, ctime_ms, owner)
        node.mzxid = mzxid
        node.pzxid = pzxid
        node.mtime_ms = mtime_ms
        node.version = version
        node.child_creates = creates
        yield path, node
