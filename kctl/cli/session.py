"""Session: one run of a command against a cluster, with its settings, output and questions."""

import os
import shlex
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kctl.cli.connect import (
    ConnectOptions,
    ConnectSettings,
    check_sasl_is_used,
    resolve,
    warnings_of,
)
from kctl.cli.output import Output, Table
from kctl.cli.pipes import write_message
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.runtime.future import Task
    from kctl.runtime.real import RealRuntime

T = TypeVar("T")
A = TypeVar("A")
P = TypeVar("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Question:
    """What the user must confirm: the plan of a dangerous command, and the question below it."""

    plan: Table
    text: str


@dataclass(frozen=True, slots=True)
class Change(Generic[P, R]):
    """A plan and its result, which is None if the plan was not executed."""

    plan: P
    result: R | None
    # Whether the user said no.
    is_declined: bool = False


class Session:
    """The first argument of every remote command; reads the settings on first use."""

    def __init__(
        self,
        options: ConnectOptions,
        output: Output,
        *,
        dry_run: bool = False,
        assume_yes: bool = False,
        writes: bool = False,
        settings: ConnectSettings | None = None,
    ) -> None:
        """Create the session; `settings`, if given, replace what `options` would result in."""
        self.output = output
        self.dry_run = dry_run
        self._assume_yes = assume_yes
        # Whether the command changes something, unless it is a dry run; options may decide.
        self.writes = writes
        self._options = options
        self._settings = settings
        self._runtime: RealRuntime | None = None

    @property
    def settings(self) -> ConnectSettings:
        """Return the addresses and settings of the connection."""
        if self._settings is None:
            self._settings = resolve(self._options, os.environ)
            check_sasl_is_used(self._options, self._settings.properties)
            for line in warnings_of(self._options):
                self.output.say(line)
        return self._settings

    @property
    def names_a_cluster(self) -> bool:
        """Return whether the command line names brokers or a profile."""
        return self._options.bootstrap_server is not None or self._options.profile is not None

    def command(self, words: str, *, zookeeper: str | None = None) -> str:
        """Return the command `kctl WORDS` with the options of this command line that lead to its
        cluster, ready for a shell. `-X` is left out: it may contain a password."""
        options = self._options
        given = {
            "-b": options.bootstrap_server,
            "-C": options.profile,
            "--command-config": options.command_config,
            "--zookeeper": zookeeper,
        }
        named = [text for pair in given.items() if pair[1] is not None for text in pair if text]
        return f"kctl {words} {shlex.join(named)}".rstrip()

    @property
    def runtime(self) -> "RealRuntime":
        """Return the operating system's clock, network and disk; created on first use."""
        if self._runtime is None:
            from kctl.runtime.real import make_runtime
            from kctl.runtime.trace import NullTrace

            is_debugging = os.environ.get("KCTL_DEBUG") == "1"
            self._runtime = make_runtime(None if is_debugging else NullTrace())
        return self._runtime

    def without_questions(self) -> "Session":
        """Write and assume --yes from now on, as Apache Kafka's tools never ask; return this
        session. Raise UsageError if the profile asks for its name."""
        self._assume_yes = self.writes = True
        name = self.settings.guard.name_to_type(assumes_yes=True)
        if name is not None:
            raise UsageError(
                f"The profile {name} asks for its name, and this command never asks",
                hint="add --expect-cluster ID",
            )
        return self

    @property
    def is_writing(self) -> bool:
        """Return whether the command may change the cluster."""
        return self.writes and not self.dry_run

    def now_ms(self) -> int:
        """Return the wall-clock time, in ms since the epoch."""
        return self.runtime.clock.wall_ms()

    def run(
        self,
        work: "Callable[[AdminClient], Coroutine[Any, Any, T]]",
        on_start: "Callable[[Task[T]], object] | None" = None,
        *,
        by_brokers: bool = True,
    ) -> T:
        """Connect, run `work` to its end, disconnect, and return its result.

        Every command's connection passes the profile's ClusterGuard here. `on_start` is called with
        the task, which can be cancelled. Without `by_brokers`, `work` connects to ZooKeeper
        instead, and checks the cluster itself.
        """
        from kctl.admin.admin_client import AdminClient

        settings, runtime = self.settings, self.runtime
        guard = settings.guard
        if self.is_writing:
            guard.check_may_write()
        admin = AdminClient.connect(
            runtime,
            settings.bootstrap_servers,
            settings.timeout_ms,
            settings.properties,
            reads_only=guard.is_read_only,
        )

        async def guarded() -> T:
            if by_brokers:
                await guard.check_connected(admin)
            return await work(admin)

        try:
            task = runtime.scheduler.spawn(guarded())
            if on_start is not None:
                on_start(task)
            return runtime.scheduler.run_until(task)
        finally:
            admin.close()
            runtime.scheduler.close()
            self._runtime = None

    def change(
        self,
        plan: "Callable[[AdminClient], Coroutine[Any, Any, P]]",
        question: Callable[[P], Question | None],
        execute: "Callable[[AdminClient, P], Coroutine[Any, Any, R]]",
        *,
        has_broker_dry_run: bool = False,
    ) -> Change[P, R]:
        """Plan, ask and execute a change over one connection, and return the plan and its result.

        `question` returns None if there is nothing to confirm. With --dry-run nothing is asked, and
        nothing is executed unless the broker itself can validate (`has_broker_dry_run`).
        """

        return self.run(
            lambda admin: self.carry_out(
                admin, plan, question, execute, has_broker_dry_run=has_broker_dry_run
            )
        )

    async def carry_out(
        self,
        target: A,
        plan: Callable[[A], Coroutine[Any, Any, P]],
        question: Callable[[P], Question | None],
        execute: Callable[[A, P], Coroutine[Any, Any, R]],
        *,
        has_broker_dry_run: bool = False,
    ) -> Change[P, R]:
        """Plan, ask and execute a change on `target`; see `change`."""
        planned = await plan(target)
        if self.dry_run and not has_broker_dry_run:
            return Change(planned, None)
        asked = None if self.dry_run else question(planned)
        if asked is not None and not self.confirm(asked.plan, asked.text):
            return Change(planned, None, is_declined=True)
        return Change(planned, await execute(target, planned))

    def confirm(self, plan: Table, question: str) -> bool:
        """Show `plan`, ask `question`, return whether the answer is yes; with --yes, return True.

        A profile may ask for its name instead, see ClusterGuard. Raise UsageError if stdin or
        stderr is not a terminal.
        """
        name = self.settings.guard.name_to_type(self._assume_yes)
        if self._assume_yes and name is None:
            return True
        self.output.plan(plan)
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            missing = "--yes" if name is None else "--yes and --expect-cluster"
            raise UsageError(
                f"Not done without {missing}, as there is no terminal to ask: {question}",
                hint="add --yes (-y) to do it"
                if name is None
                else f"the profile {name} asks for its name: add --expect-cluster ID --yes",
            )
        write_message(sys.stderr, f"{question} [{f'type {name} to do it' if name else 'y/N'}] ")
        answer = sys.stdin.readline().strip()
        if answer == name if name else answer.lower() in ("y", "yes"):
            return True
        self.output.say("Nothing was done.")
        return False
