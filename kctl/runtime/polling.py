"""Polling: waits for a condition that nothing announces."""

from collections.abc import Callable

from kctl.runtime.future import sleep
from kctl.runtime.runtime import Runtime

POLL_MS = 5


async def poll_until(
    runtime: Runtime, holds: Callable[[], bool], timeout_ms: int, interval_ms: int = POLL_MS
) -> bool:
    """Call `holds()` at intervals until it is true; return False after `timeout_ms`."""
    deadline_ms = runtime.clock.monotonic_ms() + timeout_ms
    while not holds():
        if runtime.clock.monotonic_ms() > deadline_ms:
            return False
        await sleep(runtime.scheduler, interval_ms)
    return True
