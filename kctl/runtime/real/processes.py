"""Runs the same work on many items in separate processes, and reports their progress.

For work that is pure computation: one interpreter runs on one core. Items and results are pickled.
A single item, or a single process, runs in this process.

Each worker has a pipe of its own, over which it receives an item and sends the result, and a
counter that only it changes. Workers share no queue and no lock, so one of them can be killed at
any moment without another process waiting for what it held.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar, cast

from kctl.errors import KctlError

Item = TypeVar("Item")
Result = TypeVar("Result")
# Called with the item, and a function to call with the amount of additional progress.
Work = Callable[[Item, Callable[[int], object]], Result]

# Modules whose objects wait, when a forked process drops or uses them, for threads that only their
# own process has: fsspec drops its file systems in every child (hdfs-native 0.14, tokio).
UNSAFE_TO_FORK = ("hdfs_native",)
_POLL_SECONDS = 0.1
# How long workers may take to finish their items after an error before they are killed.
_FINISH_SECONDS_MAX = 2.0


def core_count() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_in_processes(
    work: Work[Item, Result],
    items: Sequence[Item],
    processes: int,
    on_progress: Callable[[int], object],
) -> Iterator[Result]:
    """Yield the results as they arrive; `on_progress` gets the total progress.

    Raises what the work raises, and KctlError if a worker is killed; no item is begun after that.
    """
    if min(processes, len(items)) <= 1:
        yield from _map_here(work, items, on_progress)
        return
    context = multiprocessing.get_context(_start_method())
    workers: dict[Connection, _Worker] = {}
    left = iter(items)
    try:
        for _ in range(min(processes, len(items))):
            worker = _Worker(context, work)
            workers[worker.connection] = worker
            worker.send(next(left))
        waiting = len(items)
        while waiting:
            ready = wait(list(workers), _POLL_SECONDS)
            on_progress(sum(it.done for it in workers.values()))
            for connection in ready:
                worker = workers[cast("Connection", connection)]
                result = worker.receive()
                waiting -= 1
                for item in left:
                    worker.send(item)
                    break
                on_progress(sum(it.done for it in workers.values()))
                yield result
    finally:
        _end(list(workers.values()))


def _start_method() -> str:
    """Return how workers start: by fork, which shares what is imported, where that is safe."""
    is_safe = not any(name in sys.modules for name in UNSAFE_TO_FORK)
    return "fork" if is_safe and "fork" in multiprocessing.get_all_start_methods() else "spawn"


class _Worker:
    """A process that works on one item at a time."""

    def __init__(self, context: BaseContext, work: Work[Any, Any]) -> None:
        self.connection, theirs = context.Pipe()
        # Without a lock: the worker adds to it, this process reads it.
        self._done: Any = context.RawValue("q", 0)
        # Daemonic: it is killed if this process exits by an exception in between.
        self.process: BaseProcess = context.Process(  # type: ignore[attr-defined]
            target=_work_on_items, args=(theirs, work, self._done), daemon=True
        )
        self.process.start()
        # Processes that are started later do not inherit it, so its end is that of the worker.
        theirs.close()

    @property
    def done(self) -> int:
        """Return the progress of all its items."""
        done: int = self._done.value
        return done

    def send(self, item: Any) -> None:
        """Give the worker its next item."""
        # That a worker is gone shows when its result is received.
        with suppress(BrokenPipeError):
            self.connection.send((item,))

    def receive(self) -> Any:
        """Return the result of its item; raise what the work raised."""
        try:
            result, error, trace = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            raise KctlError(
                f"A worker process ended by itself ({_ended(self.process.exitcode)})",
                hint="SIGKILL often means that memory ran out; fewer --jobs need less",
            ) from None
        if error is not None:
            raise error from _RemoteError(trace)
        return result

    def stop(self) -> None:
        """Make the worker exit after its item."""
        with suppress(OSError):
            self.connection.send(())


class _RemoteError(Exception):
    """Where an error was raised in a worker; the cause of that error."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def _ended(status: int | None) -> str:
    if status is None or status >= 0:
        return f"exit status {status}"
    return signal.Signals(-status).name


def _end(workers: Sequence[_Worker]) -> None:
    """Let the workers finish their items for a while, then kill them.

    What an item has written completely is used by the next run of an export.
    """
    for worker in workers:
        worker.stop()
    open_ends = [it.connection for it in workers]
    deadline = time.monotonic() + _FINISH_SECONDS_MAX
    while open_ends and (left := deadline - time.monotonic()) > 0:
        for connection in cast("list[Connection]", wait(open_ends, left)):
            try:
                connection.recv_bytes()
            except (EOFError, OSError):
                open_ends.remove(connection)
    for worker in workers:
        worker.process.kill()
        worker.process.join()
        worker.connection.close()


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


def _work_on_items(connection: Connection, work: Work[Any, Any], done: Any) -> None:
    """Work on items until a message has none; the worker's whole life."""
    # Ctrl-C reaches all processes: the parent ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def progress(more: int) -> None:
        done.value += more

    with suppress(EOFError, OSError):
        while message := connection.recv():
            _answer(connection, *_result(work, message[0], progress))


def _result(
    work: Work[Any, Any], item: Any, progress: Callable[[int], object]
) -> tuple[Any, Exception | None, str]:
    try:
        return work(item, progress), None, ""
    except Exception as error:  # noqa: BLE001 the parent raises it
        return None, error, traceback.format_exc()


def _answer(connection: Connection, result: Any, error: Exception | None, trace: str) -> None:
    try:
        connection.send((result, error, trace))
    except OSError:
        raise
    except Exception:  # noqa: BLE001 whatever cannot be pickled
        what = f"{error!r}" if error is not None else f"{type(result).__name__}"
        connection.send((None, RuntimeError(f"cannot be sent: {what}"), trace))


def _end_with_parent() -> None:
    """Exit when the parent is killed: a worker would wait for an item forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
