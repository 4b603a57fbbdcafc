"""Waiting for a condition of real processes, with a limit that only a broken one reaches."""

import time
from collections.abc import Callable

PATIENCE_S = 120


def wait_for(condition: Callable[[], object], describe: Callable[[], str]) -> None:
    """Return as soon as `condition` holds. AssertionError with `describe()` after PATIENCE_S."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, describe()
        time.sleep(0.05)
