"""Serving: a broker as a process, until SIGTERM or SIGINT, or until it fails."""

import faulthandler
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from kctl.runtime.future import CancelledError, Future
from kctl.runtime.real import RealRuntime
from kctl.runtime.real.heap_freezer import HeapFreezer
from kctl.runtime.real.signals import StopSignals

STDERR = 2


class Served(Protocol):
    """A broker."""

    # Fails when the broker can no longer serve.
    failed: Future[None]

    async def shutdown(self) -> None:
        """Stop whatever was started."""
        ...


class Serving:
    """The life of one broker; a second signal ends the process at once."""

    def __init__(self, runtime: RealRuntime, broker: Served) -> None:
        self._scheduler = runtime.scheduler
        self._broker = broker
        self._stopping: Future[None] = runtime.scheduler.future()
        self._freezer = HeapFreezer(runtime.scheduler)
        if not faulthandler.is_enabled():
            # A crash of the interpreter or of an extension reports the stacks of all threads.
            faulthandler.enable(STDERR)
        StopSignals(runtime.scheduler, self.stop)
        broker.failed.add_done_callback(lambda _: self.stop())

    def stop(self) -> None:
        """Begin to stop; on the loop."""
        if not self._stopping.done:
            self._stopping.set_result(None)

    def run(
        self, start: Callable[[], Coroutine[Any, Any, None]], on_ready: Callable[[], object]
    ) -> None:
        """Await `start`, call `on_ready`, and serve; then shut down and close the loop.

        Raise what `start` raises, with nothing left running, or the error with which the broker
        failed.
        """
        try:
            self._scheduler.run_until(self._scheduler.spawn(self._serve(start, on_ready), "broker"))
        finally:
            self._freezer.stop()
            self._scheduler.close()

    async def _serve(
        self, start: Callable[[], Coroutine[Any, Any, None]], on_ready: Callable[[], object]
    ) -> None:
        starting = self._scheduler.spawn(start(), "start")
        self._stopping.add_done_callback(lambda _: starting.cancel())
        try:
            await starting
            self._freezer.start()
            on_ready()
            await self._stopping
        except CancelledError:
            # Stopped before everything was started.
            pass
        finally:
            await self._broker.shutdown()
        if self._broker.failed.done:
            self._broker.failed.result()
