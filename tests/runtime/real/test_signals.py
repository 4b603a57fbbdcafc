"""StopSignals: the first signal asks for a stop, a later one ends the process at once."""

import signal
import subprocess
import sys
import time

import pytest

from kctl.runtime.real.signals import REPEAT_MS, STATUS_BASE

PATIENCE_S = 120

# A loop that obeys the first signal, and one that is busy for good when it comes.
STORY = """
import sys
from kctl.runtime.real import make_runtime
from kctl.runtime.real.signals import StopSignals

scheduler = make_runtime().scheduler

def stop():
    print("asked", flush=True)

def hang():
    print("ready", flush=True)
    while True:
        pass

def obey():
    stop()
    scheduler.stop()

is_busy = sys.argv[1] == "busy"
StopSignals(scheduler, stop if is_busy else obey, lambda: print("ended", flush=True))
scheduler.call_later(60_000, print)
scheduler.call_soon(hang if is_busy else print, *([] if is_busy else ["ready"]))
sys.stdout.reconfigure(line_buffering=True)
scheduler.run_forever()
"""


@pytest.fixture
def start():
    started = []

    def start(how):
        process = subprocess.Popen(
            [sys.executable, "-c", STORY, how],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_later_signal_ends_a_process_whose_loop_is_busy(start, number):
    process = start("busy")
    process.send_signal(signal.SIGTERM)
    time.sleep(2 * REPEAT_MS / 1000)
    assert process.poll() is None
    # On a busy machine both may be seen at the same moment, which is one request: send it again.
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None:
        assert time.monotonic() < deadline
        process.send_signal(number)
        time.sleep(2 * REPEAT_MS / 1000)
    assert process.returncode == STATUS_BASE + number
    said, errors = process.communicate()
    assert said == "ended\n"
    assert f"Second signal ({number.name})" in errors


def test_the_first_signal_is_a_request(start):
    process = start("idle")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0
    assert process.communicate()[0] == "asked\n"
