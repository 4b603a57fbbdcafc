"""Session: one run of a command against a cluster: its settings, its output, its manners."""

import os
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from kctl.cli.connect import ConnectOptions, ConnectSettings, resolve
from kctl.cli.output import Output, Table
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.runtime.future import Task
    from kctl.runtime.real import RealRuntime

T = TypeVar("T")


class Session:
    """Given to every command that talks to a cluster; connects on first use."""

    def __init__(
        self,
        options: ConnectOptions,
        output: Output,
        *,
        dry_run: bool = False,
        assume_yes: bool = False,
    ) -> None:
        self.output = output
        self.dry_run = dry_run
        self._assume_yes = assume_yes
        self._options = options
        self._settings: ConnectSettings | None = None
        self._runtime: RealRuntime | None = None

    @property
    def settings(self) -> ConnectSettings:
        """Where to connect and how."""
        if self._settings is None:
            self._settings = resolve(self._options, os.environ)
        return self._settings

    @property
    def runtime(self) -> "RealRuntime":
        """This machine."""
        if self._runtime is None:
            from kctl.runtime.real import make_runtime
            from kctl.runtime.trace import NullTrace

            is_debugging = os.environ.get("KCTL_DEBUG") == "1"
            self._runtime = make_runtime(None if is_debugging else NullTrace())
        return self._runtime

    def without_questions(self) -> "Session":
        """This one, as with --yes: for the flags of tools that never ask."""
        self._assume_yes = True
        return self

    def now_ms(self) -> int:
        """Wall time, for times relative to now."""
        return self.runtime.clock.wall_ms()

    def run(
        self,
        work: "Callable[[AdminClient], Coroutine[Any, Any, T]]",
        on_start: "Callable[[Task[T]], object] | None" = None,
    ) -> T:
        """Connect, drive `work` to its end, disconnect; `on_start` is given the task."""
        from kctl.admin.admin_client import AdminClient

        settings, runtime = self.settings, self.runtime
        admin = AdminClient.connect(
            runtime, settings.bootstrap_servers, settings.timeout_ms, settings.properties
        )
        try:
            task = runtime.scheduler.spawn(work(admin))
            if on_start is not None:
                on_start(task)
            return runtime.scheduler.run_until(task)
        finally:
            admin.close()
            runtime.scheduler.close()
            self._runtime = None

    def confirm(self, plan: Table, question: str) -> bool:
        """Show what is about to be destroyed and ask; with --yes, don't. UsageError if there is
        nobody to ask."""
        if self._assume_yes:
            return True
        self.output.plan(plan)
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UsageError(
                f"Not done without --yes, as nobody can be asked: {question}",
                hint="add --yes (-y) to do it",
            )
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            return True
        self.output.say("Nothing was done.")
        return False
