"""Journal: the files that make a tree durable, a log of transactions and occasional snapshots.

`journal-<first zxid>` grows by a write per call, before the tree changes; `snapshot-<last
zxid>` makes all journals up to that zxid superfluous. Written data survives a crash of the process;
`sync` makes it survive a crash of the machine too.

Invariants: a newer journal begins with everything of the older that may not be synced; a snapshot
appears whole or not at all; files are removed only when a durable snapshot covers them. So a
journal may end in a torn record only if it is the newest, which is truncated at the next start, or
if the next one repeats what follows; damage anywhere else is an error.

ZooKeeper: org.apache.zookeeper.server.persistence.FileTxnSnapLog.
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import zip_longest

from kctl.errors import CorruptDataError, StorageError
from kctl.runtime.disk import Disk, DiskFile, DiskLock
from kctl.store.journal_format import (
    JOURNAL_MAGIC,
    SnapshotEncoder,
    Torn,
    complete_snapshot,
    decode_snapshot,
    decode_transactions,
    encode_transaction,
)
from kctl.store.tree import Transaction, ZnodeTree
from kctl.work import Work

_JOURNAL = "journal-"
_SNAPSHOT = "snapshot-"
_LOCK = ".lock"

# Replaying this many transactions takes about a tenth of a second.
SNAPSHOT_AFTER_TRANSACTIONS = 10_000


class Journal:
    """Owns the files of one directory."""

    def __init__(self, disk: Disk, directory: str, lock: DiskLock) -> None:
        """Use `Journal.open` instead."""
        self._disk = disk
        self._directory = directory
        self._lock = lock
        self._file: DiskFile | None = None
        # Whether a power loss would leave the file in its directory.
        self._is_name_durable = False
        # Transactions in the journal that no snapshot covers.
        self.length = 0
        # The transactions since `begin_tail`, and the zxid of the first; None: they are not kept.
        self._tail: list[bytes] | None = None
        self._tail_zxid = 0
        # The torn tail that a start truncated, for the operator; None if there was none.
        self.cut_off: str | None = None

    @classmethod
    def open(cls, disk: Disk, directory: str) -> tuple["Journal", ZnodeTree]:
        """Lock the directory and read its files; StorageError, CorruptDataError."""
        disk.make_directory(directory)
        lock = disk.lock(f"{directory}/{_LOCK}")
        # Users' credentials and delegation tokens are in these files. A directory of another owner
        # stays as that owner has made it.
        with suppress(StorageError):
            disk.make_private(directory)
        journal = cls(disk, directory, lock)
        try:
            return journal, journal._recover()
        except BaseException:
            journal.close()
            raise

    def append(self, transactions: Sequence[Transaction]) -> None:
        """Write transactions, at least one, at once; a StorageError leaves the file as it was."""
        encoded = b"".join(map(encode_transaction, transactions))
        first_zxid = transactions[0].zxid
        self._open_file(first_zxid).append([encoded])
        self.length += len(transactions)
        if self._tail is not None:
            if not self._tail:
                self._tail_zxid = first_zxid
            self._tail.append(encoded)

    def begin_tail(self) -> None:
        """Keep what is appended from now on, which a `sync` that begins now may not cover."""
        self._tail = []

    def sync(self) -> None:
        """Make what was written survive a power loss; may run in parallel with `append`."""
        file = self._file
        if file is not None:
            file.fsync()
            if not self._is_name_durable:
                self._disk.fsync_directory(self._directory)
                self._is_name_durable = True

    def is_snapshot_due(self, tree: ZnodeTree) -> bool:
        """Return whether a snapshot now costs little compared with the writes since the last."""
        return self.length >= max(SNAPSHOT_AFTER_TRANSACTIONS, len(tree.nodes))

    def begin_snapshot(self, tree: ZnodeTree) -> "Snapshot":
        """Start a new journal and capture the tree; not while `sync` runs, nor before the last
        snapshot is encoded. Raises StorageError, and the journal continues.

        A `sync` covers what was appended before the last `begin_tail`. The new journal begins with
        the rest, so that this need not wait for the disk; without `begin_tail` it does.
        """
        if self._tail is None:
            self.sync()
        covered = [
            name
            for name in self._disk.list(self._directory)
            if name.startswith((_JOURNAL, _SNAPSHOT))
        ]
        if self._tail and self._name_of(self._tail_zxid) in covered:
            # All of the journal may be unsynced: it continues.
            covered.remove(self._name_of(self._tail_zxid))
        else:
            self._start_next()
        self._tail = None
        self.length = 0
        return Snapshot(self._disk, self._directory, SnapshotEncoder(tree), covered)

    def _start_next(self) -> None:
        """Close the file; begin the next one with the tail, if there is any."""
        file, tail = None, self._tail
        if tail:
            path = f"{self._directory}/{self._name_of(self._tail_zxid)}"
            file = self._disk.open(path, create=True)
            try:
                file.append([JOURNAL_MAGIC, *tail])
            except StorageError:
                file.close()
                self._disk.remove(path)
                raise
        if self._file is not None:
            self._file.close()
        self._file, self._is_name_durable = file, False

    def close(self) -> None:
        """Close the files and release the lock."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._lock.release()

    @staticmethod
    def _name_of(zxid: int) -> str:
        return f"{_JOURNAL}{zxid:016x}"

    def _open_file(self, zxid: int) -> DiskFile:
        if self._file is None:
            path = f"{self._directory}/{self._name_of(zxid)}"
            file = self._disk.open(path, create=True)
            if file.size() == 0:
                file.append([JOURNAL_MAGIC])
            self._file, self._is_name_durable = file, False
        return self._file

    def _recover(self) -> ZnodeTree:
        names = self._disk.list(self._directory)
        snapshots = sorted(name for name in names if name.startswith(_SNAPSHOT))
        journals = sorted(name for name in names if name.startswith(_JOURNAL))
        if snapshots:
            path = f"{self._directory}/{snapshots[-1]}"
            tree = decode_snapshot(self._disk.read_file(path), path)
        else:
            tree = ZnodeTree()
        for name, following in zip_longest(journals, journals[1:]):
            self._replay(name, tree, following)
        return tree

    def _replay(self, name: str, tree: ZnodeTree, following: str | None) -> None:
        path = f"{self._directory}/{name}"
        data = self._disk.read_file(path)
        for transaction in decode_transactions(data, path, _first_zxid(name)):
            if isinstance(transaction, Torn):
                if following is None:
                    self._cut(path, transaction.position, len(data))
                elif _first_zxid(following) > tree.last_zxid + 1:
                    raise CorruptDataError(f"{path}: damaged at byte {transaction.position}")
            elif transaction.zxid > tree.last_zxid:
                if transaction.zxid != tree.last_zxid + 1:
                    raise CorruptDataError(
                        f"{path}: transaction {transaction.zxid:#x} follows {tree.last_zxid:#x}"
                    )
                tree.apply(transaction)
                self.length += 1
        if following is None:
            self._file = self._disk.open(path)
            if self._file.size() == 0:
                self._file.append([JOURNAL_MAGIC])

    def _cut(self, path: str, position: int, size: int) -> None:
        file = self._disk.open(path)
        file.truncate(position)
        file.close()
        if size > position:
            self.cut_off = f"{path}: cut off {size - position} bytes of an unfinished write"


def _first_zxid(name: str) -> int:
    return int(name.removeprefix(_JOURNAL), 16)


class Snapshot:
    """A snapshot to be encoded, and then written; `write` may run off the loop."""

    def __init__(
        self, disk: Disk, directory: str, encoder: SnapshotEncoder, covered: list[str]
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._name = f"{_SNAPSHOT}{encoder.zxid:016x}"
        self._encoder = encoder
        self._parts: list[bytes] = []
        self._covered = covered

    def encode(self) -> Work[None]:
        """Encode the tree as it was when the snapshot began."""
        self._parts = yield from self._encoder.encode()

    def write(self) -> None:
        """Write the snapshot durably, then remove the files that it covers."""
        self._disk.write_file(f"{self._directory}/{self._name}", complete_snapshot(self._parts))
        for name in self._covered:
            if name != self._name:
                self._disk.remove(f"{self._directory}/{name}")
