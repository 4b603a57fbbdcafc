"""How the process of a command ends while another thread of it still runs."""

import os
import subprocess
import sys

SCRIPT = """
import atexit
import os
import threading

from kctl.cli.pipes import end_process


class Global:
    def __del__(self):
        os.write(1, b"cleaned up ")


kept = Global()
# Without a flush at the end, these words would be lost.
atexit.register(lambda: print("registered", end=" "))
print("printed", end=" ")
{lines}
end_process(3)
"""
LEFT_BEHIND = "threading.Thread(target=threading.Event().wait, daemon=True).start()"


def end_of(*lines):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        [sys.executable, "-c", SCRIPT.format(lines="\n".join(lines))],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_other_threads_python_cleans_up():
    ran = end_of()
    assert (ran.returncode, ran.stdout) == (3, "printed registered cleaned up ")


def test_beside_a_thread_that_runs_nothing_is_freed():
    """The thread would touch what is freed, which may end in a segmentation fault."""
    ran = end_of(LEFT_BEHIND)
    assert (ran.returncode, ran.stdout, ran.stderr) == (3, "printed registered ", "")


def test_output_that_cannot_be_written_is_reported_by_python():
    ran = end_of(LEFT_BEHIND, "os.dup2(os.open('/dev/full', os.O_WRONLY), 1)")
    assert ran.returncode == 120
    assert "No space left on device" in ran.stderr
