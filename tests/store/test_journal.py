"""Journal: what a crash at any byte leaves is the tree as of some transaction, or an error."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kctl.errors import CorruptDataError, StorageError
from kctl.runtime.real import make_runtime
from kctl.runtime.real.disk import RealDisk, RealDiskFile
from kctl.store import database, journal_format
from kctl.store.database import SYNCS_BEFORE_SNAPSHOT_MAX
from kctl.store.embedded import EmbeddedStore
from kctl.store.journal import SNAPSHOT_AFTER_TRANSACTIONS, Journal
from kctl.store.journal_format import SnapshotEncoder, complete_snapshot
from kctl.store.tree import ZnodeTree
from kctl.store.znode import Check, Create, Delete, Operation, Set
from kctl.work import at_once
from tests.support.znode_snapshots import encode_snapshot

STORY: list[list[Operation]] = [
    [Create("/a", b"some data")],
    [Create("/a/e", b"", ephemeral=True)],
    [Check("/a", 0), Set("/a", b"more"), Create("/ключ", bytes(range(256)))],
    [Delete("/a/e")],
    [Create("/b", b"")],
]


def write_story(directory: Path) -> list[bytes]:
    """Run the story on disk; return the tree as bytes after 0, 1, 2 ... transactions."""
    journal, tree = Journal.open(RealDisk(), str(directory))
    states = [encode_snapshot(tree)]

    def carry_out(transaction):
        journal.append([transaction])
        tree.apply(transaction)
        states.append(encode_snapshot(tree))

    carry_out(tree.prepare_open_session(7, 0, 1000))
    for operations in STORY:
        carry_out(tree.prepare_multi(operations, 7, 1000))
    carry_out(tree.prepare_close_session(7, 1000))
    journal.close()
    return states


def read(directory: Path) -> tuple[ZnodeTree, str | None]:
    journal, tree = Journal.open(RealDisk(), str(directory))
    journal.close()
    return tree, journal.cut_off


def the_file(directory: Path, prefix: str = "journal-") -> Path:
    (path,) = directory.glob(f"{prefix}*")
    return path


def test_journal_brings_the_tree_back(tmp_path):
    states = write_story(tmp_path)
    tree, cut_off = read(tmp_path)
    assert encode_snapshot(tree) == states[-1]
    assert cut_off is None


def test_journal_cut_at_any_byte_brings_back_what_was_whole_before_it(tmp_path):
    states = write_story(tmp_path)
    path = the_file(tmp_path)
    whole = path.read_bytes()
    reached = set()
    for size in range(len(whole) - 1, -1, -1):
        path.write_bytes(whole[:size])
        tree, cut_off = read(tmp_path)
        state = states.index(encode_snapshot(tree))
        reached.add(state)
        # The second time there is nothing left to cut.
        again, cut_off_again = read(tmp_path)
        assert encode_snapshot(again) == states[state]
        assert cut_off_again is None
        assert (cut_off is None) == (path.read_bytes() == (whole[:size] or whole[:8]))
    assert reached == set(range(len(states) - 1))


def test_journal_continues_after_a_torn_tail(tmp_path):
    write_story(tmp_path)
    path = the_file(tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    journal, tree = Journal.open(RealDisk(), str(tmp_path))
    assert journal.cut_off is not None
    transaction = tree.prepare(Create("/again", b""), 7, 2000)
    journal.append([transaction])
    tree.apply(transaction)
    journal.close()
    again, cut_off = read(tmp_path)
    assert cut_off is None
    assert encode_snapshot(again) == encode_snapshot(tree)


@pytest.mark.parametrize("garbage", [b"\0", bytes(4096), b"\xff" * 100, b"kctlznj1"])
def test_garbage_behind_the_last_record_is_cut_off(tmp_path, garbage):
    states = write_story(tmp_path)
    path = the_file(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole + garbage)
    tree, cut_off = read(tmp_path)
    assert encode_snapshot(tree) == states[-1]
    assert str(len(garbage)) in cut_off
    assert path.read_bytes() == whole


def test_flipped_bit_is_an_error_unless_it_may_be_a_torn_tail(tmp_path):
    states = write_story(tmp_path)
    path = the_file(tmp_path)
    whole = path.read_bytes()
    last = _start_of_last_record(whole)
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        if position < last:
            with pytest.raises(CorruptDataError, match="journal"):
                read(tmp_path)
        else:
            tree, _ = read(tmp_path)
            assert encode_snapshot(tree) == states[-2]


def _start_of_last_record(data: bytes) -> int:
    position = 8
    while True:
        end = position + 8 + int.from_bytes(data[position + 4 : position + 8], "big")
        if end >= len(data):
            return position
        position = end


def test_file_that_is_no_journal_is_refused(tmp_path):
    (tmp_path / "journal-0000000000000001").write_bytes(b"something else")
    with pytest.raises(CorruptDataError, match="no journal"):
        read(tmp_path)


def test_only_the_owner_can_read_the_journal(tmp_path):
    """It contains users' SCRAM credentials, from which a reader can pretend to be the broker."""
    directory = tmp_path / "metadata"
    write_story(directory)
    assert directory.stat().st_mode & 0o777 == 0o700
    # As earlier versions left it.
    directory.chmod(0o755)
    read(directory)
    assert directory.stat().st_mode & 0o777 == 0o700


def test_refused_directory_is_let_go_of(tmp_path):
    path = tmp_path / "journal-0000000000000001"
    path.write_bytes(b"something else")
    with pytest.raises(CorruptDataError):
        read(tmp_path)
    path.unlink()
    assert read(tmp_path)[0].last_zxid == 0


# --- snapshots


def write_story_in_two_parts(directory: Path) -> tuple[list[bytes], dict[str, bytes]]:
    """A snapshot after the story, then one more transaction; and the files before the snapshot."""
    states = write_story(directory)
    old_files = {path.name: path.read_bytes() for path in directory.glob("journal-*")}
    journal, tree = Journal.open(RealDisk(), str(directory))
    snapshot = journal.begin_snapshot(tree)
    transaction = tree.prepare_open_session(8, 0, 3000)
    journal.append([transaction])
    tree.apply(transaction)
    at_once(snapshot.encode())
    snapshot.write()
    journal.close()
    return [*states, encode_snapshot(tree)], old_files


def test_snapshot_replaces_the_journals_before_it(tmp_path):
    states, _ = write_story_in_two_parts(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("."))
    last = len(states) - 2
    assert names == [f"journal-{last + 1:016x}", f"snapshot-{last:016x}"]
    assert encode_snapshot(read(tmp_path)[0]) == states[-1]


def test_crash_before_the_snapshot_is_there_loses_nothing(tmp_path):
    states, old_files = write_story_in_two_parts(tmp_path)
    the_file(tmp_path, "snapshot-").unlink()
    for name, data in old_files.items():
        (tmp_path / name).write_bytes(data)
    assert encode_snapshot(read(tmp_path)[0]) == states[-1]


def test_crash_before_the_old_journals_are_removed_loses_nothing(tmp_path):
    states, old_files = write_story_in_two_parts(tmp_path)
    for name, data in old_files.items():
        (tmp_path / name).write_bytes(data)
    assert encode_snapshot(read(tmp_path)[0]) == states[-1]


def test_crash_before_the_new_journal_is_there_continues_in_the_old_one(tmp_path):
    states, old_files = write_story_in_two_parts(tmp_path)
    the_file(tmp_path).unlink()
    for name, data in old_files.items():
        (tmp_path / name).write_bytes(data)
    journal, tree = Journal.open(RealDisk(), str(tmp_path))
    assert encode_snapshot(tree) == states[-2]
    transaction = tree.prepare_open_session(8, 0, 3000)
    journal.append([transaction])
    journal.close()
    assert encode_snapshot(read(tmp_path)[0]) == states[-1]


def test_missing_journal_between_snapshot_and_journal_is_an_error(tmp_path):
    write_story_in_two_parts(tmp_path)
    the_file(tmp_path, "snapshot-").unlink()
    with pytest.raises(CorruptDataError, match="follows"):
        read(tmp_path)


def test_torn_journal_with_a_newer_one_behind_it_is_an_error(tmp_path):
    _, old_files = write_story_in_two_parts(tmp_path)
    the_file(tmp_path, "snapshot-").unlink()
    for name, data in old_files.items():
        (tmp_path / name).write_bytes(data[:-1])
    with pytest.raises(CorruptDataError, match="damaged"):
        read(tmp_path)


def test_snapshot_damaged_at_any_byte_is_an_error(tmp_path):
    write_story_in_two_parts(tmp_path)
    path = the_file(tmp_path, "snapshot-")
    whole = path.read_bytes()
    damages = [whole[:size] for size in range(len(whole))]
    damages += [bytes([*whole[:n], whole[n] ^ 1, *whole[n + 1 :]]) for n in range(len(whole))]
    for damaged in damages:
        path.write_bytes(damaged)
        with pytest.raises(CorruptDataError, match="snapshot"):
            read(tmp_path)


def test_a_snapshot_is_the_tree_when_it_began_however_the_tree_changes_meanwhile(monkeypatch):
    monkeypatch.setattr(journal_format, "ZNODES_PER_TURN", 2)
    tree = ZnodeTree()
    tree.apply(tree.prepare_open_session(7, 0, 1000))
    for name in "abcdef":
        tree.apply(tree.prepare(Create(f"/{name}", b"old"), 7, 1000))
    before = encode_snapshot(tree)
    changes = [
        Set("/f", b"new"), Set("/f", b"newer"), Create("/e/child", b""), Delete("/e/child"),
        Delete("/d"), Create("/d", b"new"), Set("/d", b"newer"), Set("/a", b"new"),
        Create("/g", b"", ephemeral=True),
    ]  # fmt: skip
    work = SnapshotEncoder(tree).encode()
    next(work)
    for change in changes:
        tree.apply(tree.prepare(change, 7, 2000))
    tree.apply(tree.prepare_close_session(7, 2000))
    assert complete_snapshot(at_once(work)) == before
    assert tree.before_change is None


def test_a_snapshot_of_many_znodes_is_encoded_over_many_turns(monkeypatch):
    monkeypatch.setattr(journal_format, "ZNODES_PER_TURN", 10)
    encoded = []
    encode = journal_format._encode_znode
    monkeypatch.setattr(
        journal_format, "_encode_znode", lambda *znode: encoded.append(1) or encode(*znode)
    )
    tree = ZnodeTree()
    tree.apply(tree.prepare_open_session(7, 0, 1000))
    for number in range(100):
        tree.apply(tree.prepare(Create(f"/{number}", b""), 7, 1000))
    for _ in SnapshotEncoder(tree).encode():
        assert len(encoded) <= 10
        encoded.clear()


def until_snapshot(runtime, store, directory):
    """Run the loop until there is a snapshot and nothing more to do for it."""
    while store.database._is_writing_snapshot:
        runtime.scheduler.run_until(store.turn())
    assert the_file(directory, "snapshot-").exists()


@pytest.mark.parametrize("grows", [0, 1])
def test_writes_are_synced_off_the_loop_before_a_snapshot(tmp_path, monkeypatch, grows):
    runtime = make_runtime()
    store = EmbeddedStore.open(runtime, str(tmp_path))
    store.create("/a", b"")
    synced = []
    fsync = RealDiskFile.fsync

    def recorded(file):
        synced.append(threading.current_thread() is threading.main_thread())
        fsync(file)
        # A journal that grows during each sync is synced again; the next one repeats the rest.
        if grows and len(synced) <= SYNCS_BEFORE_SNAPSHOT_MAX:
            runtime.scheduler.call_soon_threadsafe(store.set, "/a", b"more")

    monkeypatch.setattr(RealDiskFile, "fsync", recorded)
    for turn in range(SNAPSHOT_AFTER_TRANSACTIONS):
        store.set("/a", b"%d" % turn)
    assert not any(synced)
    until_snapshot(runtime, store, tmp_path)
    assert len(synced) >= (SYNCS_BEFORE_SNAPSHOT_MAX if grows else 1)
    assert not any(synced)
    runtime.scheduler.run_until(store.close())
    version = store.database.tree.nodes["/a"].version
    again = EmbeddedStore.open(runtime, str(tmp_path))
    assert again.get("/a").result()[1].version == version
    runtime.scheduler.run_until(again.close())
    runtime.scheduler.close()


def recorded_syncs(monkeypatch, during=lambda: None):
    """Whether each fsync, of a file or a directory, was on the loop."""
    on_loop = []

    def record(owner, name):
        original = getattr(owner, name)

        def recorded(*arguments):
            on_loop.append(threading.current_thread() is threading.main_thread())
            original(*arguments)
            during()

        monkeypatch.setattr(owner, name, recorded)

    record(RealDiskFile, "fsync")
    record(RealDisk, "fsync_directory")
    return on_loop


@pytest.mark.parametrize("is_busy", [False, True])
def test_with_fsync_nothing_is_synced_on_the_loop_for_a_snapshot(tmp_path, monkeypatch, is_busy):
    runtime = make_runtime()
    store = EmbeddedStore.open(runtime, str(tmp_path), fsync=True)
    busy = [True] * 20 if is_busy else []

    def write_during_syncs():
        if busy:
            busy.pop()
            runtime.scheduler.call_soon_threadsafe(store.set, "/a", b"more")

    runtime.scheduler.run_until(store.create("/a", b""))
    on_loop = recorded_syncs(monkeypatch, write_during_syncs)
    for turn in range(SNAPSHOT_AFTER_TRANSACTIONS):
        last = store.set("/a", b"%d" % turn)
    runtime.scheduler.run_until(last)
    while not list(tmp_path.glob("snapshot-*")):
        runtime.scheduler.run_until(store.turn())
    until_snapshot(runtime, store, tmp_path)
    # The next journal begins with the next write.
    runtime.scheduler.run_until(store.set("/a", b"after"))
    assert on_loop
    assert not any(on_loop)
    assert not busy
    runtime.scheduler.run_until(store.close())
    version = store.database.tree.nodes["/a"].version
    again = EmbeddedStore.open(runtime, str(tmp_path))
    data, stat = again.get("/a").result()
    assert (data, stat.version) == (b"after", version)
    runtime.scheduler.run_until(again.close())
    runtime.scheduler.close()


def test_with_fsync_a_store_that_is_never_idle_takes_its_snapshot_too(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "BUSY_SYNCS_MAX", 2)
    runtime = make_runtime()
    store = EmbeddedStore.open(runtime, str(tmp_path), fsync=True)
    runtime.scheduler.run_until(store.create("/a", b""))
    for turn in range(SNAPSHOT_AFTER_TRANSACTIONS):
        store.set("/a", b"%d" % turn)

    def write_during_syncs():
        if not store.database._is_writing_snapshot:
            runtime.scheduler.call_soon_threadsafe(store.set, "/a", b"more")

    on_loop = recorded_syncs(monkeypatch, write_during_syncs)
    while not list(tmp_path.glob("snapshot-*")):
        runtime.scheduler.run_until(store.turn())
    until_snapshot(runtime, store, tmp_path)
    assert not any(on_loop)
    runtime.scheduler.run_until(store.close())
    version = store.database.tree.nodes["/a"].version
    again = EmbeddedStore.open(runtime, str(tmp_path))
    assert again.get("/a").result()[1].version == version
    runtime.scheduler.run_until(again.close())
    runtime.scheduler.close()


def append_sessions(journal, tree, numbers):
    for number in numbers:
        transaction = tree.prepare_open_session(number, 0, 1000)
        journal.append([transaction])
        tree.apply(transaction)


def write_with_a_repeated_tail(directory, repeated_from):
    """A journal of 8 sessions, and the next one, which repeats those from `repeated_from` on and
    has the 9th; return where the synced part of the first one ends."""
    journal, tree = Journal.open(RealDisk(), str(directory))
    append_sessions(journal, tree, range(1, repeated_from))
    journal.begin_tail()
    journal.sync()
    synced_bytes = sum(path.stat().st_size for path in directory.glob("journal-*"))
    append_sessions(journal, tree, range(repeated_from, 9))
    journal.begin_snapshot(tree)
    append_sessions(journal, tree, [9])
    journal.close()
    return synced_bytes


def sessions_after_a_start(directory):
    journal, tree = Journal.open(RealDisk(), str(directory))
    journal.close()
    return sorted(tree.sessions)


def test_what_was_not_synced_is_repeated_in_the_next_journal(tmp_path):
    synced_bytes = write_with_a_repeated_tail(tmp_path, 6)
    old, new = sorted(tmp_path.glob("journal-*"))
    data = old.read_bytes()
    # A power loss leaves any part of what was not synced.
    for size in range(synced_bytes, len(data) + 1):
        old.write_bytes(data[:size])
        assert sessions_after_a_start(tmp_path) == list(range(1, 10))
    # What the next journal does not repeat was durable: its loss is damage.
    old.write_bytes(data[: synced_bytes - 1])
    with pytest.raises(CorruptDataError, match="damaged"):
        read(tmp_path)
    # The name of the next journal may last longer than its contents.
    old.write_bytes(data[:synced_bytes])
    new.write_bytes(b"")
    assert sessions_after_a_start(tmp_path) == list(range(1, 6))


def test_a_journal_without_anything_synced_continues_behind_a_snapshot(tmp_path):
    write_with_a_repeated_tail(tmp_path, 1)
    assert len(list(tmp_path.glob("journal-*"))) == 1
    assert sessions_after_a_start(tmp_path) == list(range(1, 10))


def test_a_next_journal_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    journal, tree = Journal.open(RealDisk(), str(tmp_path))
    append_sessions(journal, tree, [1])
    journal.begin_tail()
    append_sessions(journal, tree, [2])
    with monkeypatch.context() as patch:
        error = StorageError("no space")
        patch.setattr(RealDiskFile, "append", lambda *_: (_ for _ in ()).throw(error))
        with pytest.raises(StorageError):
            journal.begin_snapshot(tree)
    append_sessions(journal, tree, [3])
    journal.close()
    assert len(list(tmp_path.glob("journal-*"))) == 1
    assert sessions_after_a_start(tmp_path) == [1, 2, 3]


def test_a_journal_that_begins_is_in_its_directory_once_it_is_synced(tmp_path, monkeypatch):
    disk = RealDisk()
    journal, tree = Journal.open(disk, str(tmp_path))
    synced = recorded_syncs(monkeypatch)
    for number in range(2):
        transaction = tree.prepare_open_session(number + 1, 0, 1000)
        journal.append([transaction])
        tree.apply(transaction)
        assert not synced
        journal.sync()
        # The file and its directory; later only the file.
        assert len(synced) == 2 - number
        synced.clear()
    journal.close()
    # Nothing is known of what another process has synced.
    journal, _ = Journal.open(disk, str(tmp_path))
    journal.sync()
    assert len(synced) == 2
    journal.close()


def test_store_takes_snapshots_unasked_and_finds_everything_again(tmp_path):
    runtime = make_runtime()
    store = EmbeddedStore.open(runtime, str(tmp_path))
    store.create("/a", b"")
    for turn in range(SNAPSHOT_AFTER_TRANSACTIONS + 10):
        store.set("/a", b"%d" % turn)
    until_snapshot(runtime, store, tmp_path)
    runtime.scheduler.run_until(store.close())
    assert the_file(tmp_path, "snapshot-").exists()
    assert the_file(tmp_path).stat().st_size < 2000

    store = EmbeddedStore.open(runtime, str(tmp_path))
    data, stat = store.get("/a").result()
    assert int(data) == stat.version - 1 == SNAPSHOT_AFTER_TRANSACTIONS + 9
    runtime.scheduler.run_until(store.close())
    runtime.scheduler.close()


_WRITER = """
import sys
import threading
from kctl.runtime.real import make_runtime
from kctl.store.database import SYNCS_BEFORE_SNAPSHOT_MAX
from kctl.store.embedded import EmbeddedStore
store = EmbeddedStore.open(make_runtime(), sys.argv[1])
if store.exists("/n").result() is None:
    store.create("/n", b"")
store.create("/alive", b"", ephemeral=True)
while True:
    print(store.set("/n", b"x" * 50).result().version, flush=True)
"""


def test_kill_9_loses_nothing_that_was_answered(tmp_path):
    command = [sys.executable, "-c", _WRITER, str(tmp_path)]
    for _ in range(3):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            answered = [int(writer.stdout.readline()) for _ in range(200)]
            writer.kill()
            answered += [int(line) for line in writer.stdout if line.endswith(b"\n")]
        tree, _ = read(tmp_path)
        assert tree.get("/n").version >= answered[-1]
        assert tree.get("/alive").ephemeral_owner in tree.sessions
        runtime = make_runtime()
        store = EmbeddedStore.open(runtime, str(tmp_path))
        assert store.exists("/alive").result() is None
        runtime.scheduler.run_until(store.close())
        runtime.scheduler.close()
