"""Work in several processes, of which none outlives the one that started them."""

import subprocess
import sys
import time
from functools import partial

import pytest

from kctl.runtime.real.processes import map_in_processes

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


def test_after_an_error_no_worker_is_killed_while_it_may_send_a_result(tmp_path):
    """The pool would wait forever for the lock of a queue that such a worker holds."""
    with pytest.raises(OSError, match="no item"):
        list(map_in_processes(partial(failing_or_slow, tmp_path), [0, 1], 2, lambda _done: None))
    assert (tmp_path / "finished").exists()


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
