"""UndoStack: the steps that end what was started, the latest first."""

from collections.abc import Awaitable, Callable

from kctl.errors import KctlError
from kctl.runtime.trace import Trace


class UndoStack:
    """Steps are pushed as parts start; `run` carries them out in reverse order."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._steps: list[Callable[[], Awaitable[object] | None]] = []

    def push(self, step: Callable[[], Awaitable[object] | None]) -> None:
        """Add a step; what it returns is awaited."""
        self._steps.append(step)

    async def run(self) -> None:
        """Carry out every step once; a step that raises KctlError is logged, and the next one
        follows. Does nothing if there is none."""
        while self._steps:
            try:
                result = self._steps.pop()()
                if result is not None:
                    await result
            except KctlError as error:
                self._trace.warning(f"error during shutdown: {error}")
