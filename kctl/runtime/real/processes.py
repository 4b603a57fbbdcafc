"""Runs the same work on many items in separate processes, and reports their progress.

For work that is pure computation: one interpreter runs on one core. Items and results are pickled.
A single item, or a single process, runs in this process.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import wait
from multiprocessing.pool import Pool
from multiprocessing.sharedctypes import Synchronized
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
# Called with the item, and a function to call with the amount of additional progress.
Work = Callable[[Item, Callable[[int], object]], Result]

_POLL_SECONDS = 0.1
# How long workers may take to finish their items after an error before they are killed.
_FINISH_SECONDS_MAX = 5

# In a worker: its work, the counter shared by all, and whether the rest is given up.
_worker: "tuple[Work[Any, Any], Synchronized[int], Synchronized[int]] | None" = None


def core_count() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_in_processes(
    work: Work[Item, Result],
    items: Sequence[Item],
    processes: int,
    on_progress: Callable[[int], object],
) -> Iterator[Result]:
    """Yield the results as they arrive; `on_progress` gets the total progress."""
    if min(processes, len(items)) <= 1:
        yield from _map_here(work, items, on_progress)
        return
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    done: Synchronized[int] = context.Value("q", 0)
    is_over: Synchronized[int] = context.Value("b", 0)
    with context.Pool(min(processes, len(items)), _set_up, (work, done, is_over)) as pool:
        try:
            results = pool.imap_unordered(_run, items)
            left = len(items)
            while left:
                try:
                    result = results.next(timeout=_POLL_SECONDS)
                except multiprocessing.TimeoutError:
                    on_progress(done.value)
                    continue
                left -= 1
                on_progress(done.value)
                yield result
        finally:
            is_over.value = 1
            _let_finish(pool)


def _let_finish(pool: Pool) -> None:
    """Wait until the workers have ended by themselves.

    A worker that is killed while it sends a result keeps the lock of the queue, and the pool waits
    for that lock forever: leaving the pool kills only workers that take too long.
    """
    pool.close()
    joining = threading.Thread(target=pool.join, daemon=True)
    joining.start()
    joining.join(_FINISH_SECONDS_MAX)


def _map_here(
    work: Work[Item, Result], items: Sequence[Item], on_progress: Callable[[int], object]
) -> Iterator[Result]:
    total = 0

    def progress(more: int) -> None:
        nonlocal total
        total += more
        on_progress(total)

    for item in items:
        yield work(item, progress)


def _set_up(work: Work[Any, Any], done: "Synchronized[int]", is_over: "Synchronized[int]") -> None:
    global _worker  # noqa: PLW0603 - a worker process does only this
    _worker = work, done, is_over
    # Ctrl-C reaches all processes: the parent ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Exit when the parent is killed: a worker of a pool would wait for work forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _run(item: Any) -> Any:
    assert _worker is not None
    work, done, is_over = _worker
    if is_over.value:
        return None

    def progress(more: int) -> None:
        with done.get_lock():
            done.value += more

    return work(item, progress)
