"""Work in several processes, of which none outlives the one that started them."""

import subprocess
import sys

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
