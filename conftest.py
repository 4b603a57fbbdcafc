"""Settings of all tests: doctests that need an extra, property tests without deadlines, signals as
a terminal has them, bytecode that is cached, and a collection that takes no longer than it must."""

import gc
import os
import signal
import sys
import warnings
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

NEED_PYSPARK = ["filtered_read.py", "sink.py", "source.py"]
collect_ignore = [
    f"kctl/export/spark/{name}" for name in NEED_PYSPARK if find_spec("pyspark") is None
]
# A program of Python 2.7.
collect_ignore += ["tests/support/samsa_member.py"]

# A test never depends on how long something takes: other processes may be using the machine.
settings.register_profile("kctl", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kctl")

# `nohup pytest` and `pytest &` in a script ignore SIGINT, which processes inherit: tests that
# interrupt a command would wait for it forever.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Without cached bytecode every process that a test starts compiles kctl again: half a second each.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Collecting tests makes objects and no garbage, and what it makes stays: eight thousand tests and
# their modules, which the garbage collector would traverse again and again.
gc.disable()


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Let `-n auto` start half as many processes again as there are cores: for almost a third of
    their time the tests wait, for sockets, threads and other processes."""
    cores = yield
    return cores if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else cores * 3 // 2


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path,
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for doctests only in files that contain a prompt: pytest would import every module, once
    in each process, and search the docstrings of everything in it."""
    collectors = yield
    if file_path.suffix != ".py" or b">>> " in file_path.read_bytes():
        return collectors
    return [it for it in collectors if type(it) is pytest.Module]


def pytest_collection_finish() -> None:
    """Collect garbage from here on, among the objects that the tests make."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    """Collect what kafka-python leaves behind: a socket that its threads did not close would
    otherwise be an error at the very end, outside every test that ignores it."""
    if "kafka" in sys.modules:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
