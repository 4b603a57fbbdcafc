"""Delays Ctrl-C while the main thread runs an event loop.

Python runs a signal handler between any two steps of the main thread. If it raises there, a
callback of the loop ends half-way: a connection has read a part of a frame, or a task never
finishes. So the default handler of SIGINT, which raises KeyboardInterrupt, is replaced while the
loop runs, and runs afterwards. Other handlers may raise, too, and belong to the program: where
there is one, the main thread does not run the loop.
"""

import _signal  # type: ignore[import-not-found]
import signal
import threading
from collections.abc import Callable
from typing import Any

# The functions below those of `signal`, which makes an enum of each number: 90 us for all of them.
_set = _signal.signal
_get = _signal.getsignal
_SIGINT = int(signal.SIGINT)
_MAIN = threading.main_thread().ident
_NUMBERS = tuple(map(int, signal.valid_signals()))
# What may be installed: nothing of Python's, or what raises KeyboardInterrupt.
_DELAYABLE = {None, int(signal.SIG_DFL), int(signal.SIG_IGN), signal.default_int_handler}

# The handlers for which the answer was yes: comparing costs less than looking each of them up.
_last_seen: list[Any] = []


def may_run_loop() -> bool:
    """Return whether no signal handler that cannot be delayed may raise in this thread."""
    if threading.get_ident() != _MAIN:
        return True
    handlers = list(map(_get, _NUMBERS))
    if handlers == _last_seen:
        return True
    if not set(handlers) <= _DELAYABLE:
        return False
    _last_seen[:] = handlers
    return True


class DelayedInterrupt:
    """While it is entered, Ctrl-C calls what `on_interrupt` got; KeyboardInterrupt is raised at the
    end.

    Where `may_run_loop` holds; elsewhere than in the main thread it does nothing.
    """

    def __init__(self) -> None:
        self._tell: Callable[[], object] | None = None
        self._previous: Any = None
        self._came: tuple[object, ...] | None = None

    def __enter__(self) -> "DelayedInterrupt":
        if threading.get_ident() == _MAIN and (_get(_SIGINT) is signal.default_int_handler):
            self._previous = _set(_SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._previous is None:
            return
        _set(_SIGINT, self._previous)
        if self._came is not None:
            self._previous(*self._came)

    def on_interrupt(self, tell: Callable[[], object]) -> None:
        """Call `tell()` when Ctrl-C comes, or now if it has come."""
        self._tell = tell
        if self._came is not None:
            tell()

    def _note(self, *arguments: object) -> None:
        self._came = arguments
        if self._tell is not None:
            self._tell()
