"""LoopLoan: which thread runs a loop: its own, or that of a caller which waits for a result.

Passing a call to another thread and its result back takes two switches between threads, longer than
a small request itself takes. So the loop's thread pauses while one caller makes one call after the
other, and the caller runs the loop until its result is there.

    RUNNING   the loop's own thread runs the loop, and takes calls from others
    PAUSED    it waits; a caller may borrow the loop
    LENT      a caller runs the loop

    RUNNING -> PAUSED     two calls came within PAUSE_S, and no other is in progress
    PAUSED -> LENT        a call
    LENT -> PAUSED        its result is there
    PAUSED -> RUNNING     no call for PAUSE_S; or a call of another thread came meanwhile

Invariants: the thread that holds `_runs` runs the loop, and no other does. Work that is passed to
the loop while it is paused resumes it: a thread passes its work, then looks whether the loop is
paused; the loop's thread says that it is paused, then looks for work.

What arrives at a connection of a paused loop, and timers, wait for at most two PAUSE_S.
"""

import threading
from collections.abc import Callable

# How long the loop's thread waits for the next call; while calls come, it looks so often.
PAUSE_S = 0.005


class LoopLoan:
    """The right to run one loop."""

    def __init__(self) -> None:
        self._runs = threading.Lock()
        self._resumes = threading.Event()
        self._is_paused = False
        self._borrower: int | None = None
        # Loans so far.
        self._count = 0

    @property
    def is_free(self) -> bool:
        """Return whether a caller may borrow the loop now."""
        return self._is_paused and not self._resumes.is_set() and self._borrower is None

    @property
    def is_borrower(self) -> bool:
        """Return whether the calling thread has borrowed the loop."""
        return self._borrower == threading.get_ident()

    @property
    def is_lent(self) -> bool:
        """Return whether a caller has borrowed the loop."""
        return self._borrower is not None

    # Callers

    def take(self) -> bool:
        """Borrow the loop if it is free; `give_back` follows."""
        if not self.is_free or not self._runs.acquire(blocking=False):
            return False
        if not self._is_paused:
            self._runs.release()
            return False
        self._borrower = threading.get_ident()
        self._count += 1
        return True

    def give_back(self, *, resumes: bool) -> None:
        """Return the loop; `resumes`: it has other work."""
        self._borrower = None
        self._runs.release()
        if resumes:
            self._resumes.set()

    def work_came(self) -> None:
        """Resume a paused loop, which has got work."""
        if self._is_paused:
            self._resumes.set()

    # The loop's thread

    def run(self, run: Callable[[], object]) -> None:
        """Call `run()`, which runs the loop, when no caller does."""
        with self._runs:
            self._is_paused = False
            self._resumes.clear()
            run()

    def pause(self, has_work: Callable[[], bool]) -> None:
        """Wait while callers borrow the loop, one after the other."""
        self._is_paused = True
        count = -1
        while not has_work() and not self._resumes.wait(PAUSE_S):
            if not self._runs.locked():
                if count == self._count:
                    return
                count = self._count
