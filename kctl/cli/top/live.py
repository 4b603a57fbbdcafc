"""The live screen of kctl top: looks at the cluster, reads keys and draws, in turns."""

import os
from typing import TYPE_CHECKING, Any

from kctl.cli.bars import has_blocks
from kctl.cli.session import Session
from kctl.cli.top.screen import Mode, Screen, View
from kctl.cli.units import format_instant
from kctl.errors import UnreachableError

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.broker_metrics import MetricsSource
    from kctl.admin.cluster_activity import Look
    from kctl.runtime.future import Task
    from kctl.runtime.real.terminal_screen import TerminalScreen

# How often keys are read.
_KEYS_MS = 50
# A look that takes longer is noted on the screen.
_SLOW_MS = 2_000
WITH_GROUPS = (View.GROUPS, View.CLIENTS)


def rows_of(view: View, before: "Look | None", now: "Look") -> list[dict[str, Any]]:
    """Return the rows of a view, whose rates are the differences of two looks."""
    from kctl.admin import cluster_activity
    from kctl.mirror import activity

    make = {
        View.TOPICS: cluster_activity.topic_rows,
        View.GROUPS: cluster_activity.group_rows,
        View.BROKERS: cluster_activity.broker_rows,
        View.CLIENTS: cluster_activity.client_rows,
        View.QUOTAS: cluster_activity.quota_rows,
        View.MIRRORS: activity.mirror_rows,
    }[view]
    return make(before, now)


async def look_at(admin: "AdminClient", view: View, metrics: "MetricsSource | None") -> "Look":
    """Return what a view shows, as it is now. Raise UnreachableError; errors of parts are notes."""
    if view is View.MIRRORS:
        from kctl.mirror.activity import look_at_mirrors

        return await look_at_mirrors(admin, metrics)
    from kctl.admin.cluster_activity import look

    return await look(
        admin, with_groups=view in WITH_GROUPS, with_quotas=view is View.QUOTAS, metrics=metrics
    )


async def look_at_twice(
    admin: "AdminClient", view: View, interval_ms: int, metrics: "MetricsSource | None"
) -> "tuple[Look, Look]":
    """Return two looks, `interval_ms` apart."""
    from kctl.runtime.future import sleep

    before = await look_at(admin, view, metrics)
    await sleep(admin.router.runtime.scheduler, interval_ms)
    return before, await look_at(admin, view, metrics)


class Live:
    """Looks, keys and drawing, in turns."""

    def __init__(
        self,
        session: Session,
        screen: Screen,
        every_ms: int,
        metrics: "MetricsSource | None" = None,
    ) -> None:
        self._session = session
        self._screen = screen
        self._terminal: TerminalScreen
        self._every_ms = every_ms
        self._metrics = metrics
        self._before: Look | None = None
        self._now: Look | None = None
        self._blocks = has_blocks()
        self._color = not os.environ.get("NO_COLOR")
        self._drawn: list[str] = []

    async def run(self, admin: "AdminClient") -> None:
        """Take the terminal over until a key ends it. Raise UnreachableError at the first look."""
        from kctl.runtime.future import sleep
        from kctl.runtime.real.terminal_screen import TerminalScreen

        # From the next turn on, signals cancel this task.
        await sleep(admin.router.runtime.scheduler, 0)
        terminal = self._terminal = TerminalScreen()
        try:
            await self._serve(admin)
        finally:
            terminal.close()

    async def _serve(self, admin: "AdminClient") -> None:
        from kctl.runtime.future import sleep

        scheduler, clock = admin.router.runtime.scheduler, admin.router.runtime.clock
        due_ms = clock.monotonic_ms()
        # Keys are served while brokers are slow to answer.
        looking: Task[None] | None = None
        since_ms = due_ms
        # A paused screen, too, needs one look at a new view.
        is_wanted = False
        try:
            while not self._screen.is_over:
                if looking is not None and looking.done:
                    looking.result()
                    looking = None
                now_ms = clock.monotonic_ms()
                is_due = is_wanted or (not self._screen.is_paused and now_ms >= due_ms)
                if looking is None and is_due:
                    looking, is_wanted, since_ms = (
                        scheduler.spawn(self._look(admin), "look"), False, now_ms,
                    )  # fmt: skip
                    due_ms = now_ms + self._every_ms
                waits_ms = 0 if looking is None else now_ms - since_ms
                self._screen.waits_s = waits_ms // 1000 if waits_ms >= _SLOW_MS else 0
                is_wanted = self._serve_keys() or is_wanted
                self._draw()
                await sleep(scheduler, _KEYS_MS)
        finally:
            if looking is not None:
                looking.cancel()

    def _serve_keys(self) -> bool:
        """Do what keys ask for; return whether another view is shown."""
        view = self._screen.view
        keys = self._terminal.keys()
        for key in keys:
            mode = self._screen.mode
            self._screen.press(key)
            if self._screen.mode is not mode:
                # The next key may scroll through the parts.
                self._fill()
        return self._screen.view is not view

    async def _look(self, admin: "AdminClient") -> None:
        screen = self._screen
        view = screen.view
        try:
            found = await look_at(admin, view, self._metrics)
        except UnreachableError as error:
            if self._now is None:
                raise
            screen.note = f"error: {error}"
            return
        if screen.view is not view:
            return
        self._before, self._now = self._now, found
        screen.update(rows_of(screen.view, self._before, found), note="; ".join(found.notes))
        self._fill()

    def _fill(self) -> None:
        """Fill in the parts of the chosen row."""

        from kctl.admin.cluster_activity import group_partition_rows, partition_rows
        from kctl.mirror.activity import mirror_partition_rows

        screen = self._screen
        if screen.mode is not Mode.DETAIL or self._now is None:
            return
        if screen.view is View.TOPICS:
            screen.details = partition_rows(self._before, self._now, screen.detail)
        elif screen.view is View.MIRRORS:
            screen.details = mirror_partition_rows(self._before, self._now, screen.detail)
        else:
            screen.details = group_partition_rows(self._before, self._now, screen.detail)

    def _draw(self) -> None:
        width, height = self._terminal.size
        now = format_instant(self._session.now_ms())[11:19]
        lines = self._screen.lines(width, height, now, color=self._color, blocks=self._blocks)
        if lines != self._drawn:
            self._terminal.draw(lines)
            self._drawn = lines
