"""Work in several processes, of which none outlives the one that started them."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

from kctl.errors import KctlError
from kctl.runtime.real import processes
from kctl.runtime.real.processes import UNSAFE_TO_FORK, map_in_processes

PATIENCE_S = 60
# Each item is at work until its process ends.
STUCK = """
import os
import time
from kctl.runtime.real.processes import map_in_processes

def work(item, progress):
    # print() writes a line in two parts if PYTHONUNBUFFERED is set.
    os.write(1, b"%d\\n" % item)
    time.sleep(600)

list(map_in_processes(work, [1, 2, 3], 3, lambda done: None))
"""


def squared(item, progress):
    progress(item)
    return item * item


def test_results_and_progress_of_all_processes_arrive():
    totals = []
    assert sorted(map_in_processes(squared, [1, 2, 3], 2, totals.append)) == [1, 4, 9]
    assert totals[-1] == 6


def failing_or_slow(directory, item, _progress):
    """Item 0 fails once item 1 has begun, which goes on for a while after that."""
    if item:
        (directory / "begun").touch()
        time.sleep(0.5)
        (directory / "finished").touch()
        return item
    while not (directory / "begun").exists():
        time.sleep(0.01)
    raise OSError("no item")


def test_after_an_error_workers_may_finish_their_items(tmp_path):
    with pytest.raises(OSError, match="no item"):
        list(map_in_processes(partial(failing_or_slow, tmp_path), [0, 1], 2, lambda _done: None))
    assert (tmp_path / "finished").exists()


def failing_or_endless(directory, item, _progress):
    """Item 0 fails once item 1 has begun, which takes longer than any patience."""
    if item:
        (directory / "begun").write_text(str(os.getpid()))
        time.sleep(10 * PATIENCE_S)
    while not (directory / "begun").exists():
        time.sleep(0.01)
    raise OSError("no item")


def test_an_item_without_end_does_not_hold_up_an_error(tmp_path):
    with pytest.raises(OSError, match="no item"):
        list(map_in_processes(partial(failing_or_endless, tmp_path), [0, 1], 2, lambda _: None))
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "begun").read_text()), 0)


def failing_or_large(item, _progress):
    """Item 0 fails; the results of the others are larger than a pipe."""
    if item:
        return b"x" * 8_000_000
    raise OSError("no item")


def test_results_that_nothing_reads_do_not_hold_up_an_error():
    for _ in range(5):
        with pytest.raises(OSError, match="no item"):
            list(map_in_processes(failing_or_large, [1, 2, 3, 0, 4, 5], 3, lambda _done: None))


def killed(item, _progress):
    if item == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def test_a_worker_that_is_killed_is_an_error():
    with pytest.raises(KctlError, match="SIGKILL"):
        list(map_in_processes(killed, [1, 2, 3, 4], 2, lambda _done: None))


def unpicklable(_item, _progress):
    return lambda: None


def test_a_result_that_cannot_be_sent_is_an_error():
    with pytest.raises(RuntimeError, match="cannot be sent: function"):
        list(map_in_processes(unpicklable, [1, 2], 2, lambda _done: None))


def test_a_caller_that_stops_early_leaves_no_worker():
    found = map_in_processes(squared, list(range(100)), 2, lambda _done: None)
    next(found)
    found.close()
    assert multiprocessing.active_children() == []


def test_workers_end_when_their_parent_is_killed():
    parent = subprocess.Popen([sys.executable, "-c", STUCK], stdout=subprocess.PIPE, text=True)
    with parent:
        try:
            lines = sorted(parent.stdout.readline() for _ in range(3))
        finally:
            parent.kill()
        assert lines == ["1\n", "2\n", "3\n"]
        # The end of the pipe, which each worker holds open.
        rest, _ = parent.communicate(timeout=PATIENCE_S)
        assert rest == ""


def start_method(_item, _progress):
    return type(multiprocessing.current_process()).__name__


def test_workers_are_not_forked_where_a_file_system_has_threads(monkeypatch):
    """An import hung: forked workers waited for threads of a file system of Hadoop."""
    # Another test may have loaded the module: nothing may be forked here.
    monkeypatch.delitem(sys.modules, UNSAFE_TO_FORK[0], raising=False)
    assert processes._start_method() == "fork"
    monkeypatch.setitem(sys.modules, UNSAFE_TO_FORK[0], type(sys)(UNSAFE_TO_FORK[0]))
    assert set(map_in_processes(start_method, [1, 2], 2, lambda _: None)) == {"SpawnProcess"}
