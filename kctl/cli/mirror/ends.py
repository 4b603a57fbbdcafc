"""The options of kctl mirror that name its two clusters, and the connections to both."""

import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from kctl.cli.connect import ConnectOptions, resolve
from kctl.cli.declaration.declarations import Option
from kctl.cli.output import Output, OutputFormat
from kctl.cli.session import Session
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.mirror.logs07 import Logs07
    from kctl.mirror.sources import MirrorSource
    from kctl.runtime.future import Task

T = TypeVar("T")

# What an address never contains, and a path or URL does.
_PATH_CHARACTER = "/"
_SCHEME07 = "kafka-0.7://"
_ZOOKEEPER_SCHEME07 = "zookeeper-0.7://"


@dataclass(frozen=True)
class EndOptions:
    """Where and how to connect, for both sides of a mirror."""

    source: Annotated[
        str | None,
        Option(
            "--source",
            "--from",
            metavar="HOST:PORT,...",
            help="Brokers of the source, log directories, kafka-0.7://HOST:PORT, or "
            "zookeeper-0.7://HOST:PORT[/PATH].",
        ),
    ] = None
    target: Annotated[
        str | None,
        Option("--target", metavar="HOST:PORT,...", help="Brokers of the target cluster."),
    ] = None
    source_config: Annotated[
        str | None,
        Option(
            "--source-config",
            metavar="FILE",
            help="A client.properties file of Apache Kafka for the source.",
        ),
    ] = None
    target_config: Annotated[
        str | None,
        Option(
            "--target-config",
            metavar="FILE",
            help="A client.properties file of Apache Kafka for the target.",
        ),
    ] = None
    source_profile: Annotated[
        str | None,
        Option("--source-profile", metavar="NAME", help="A profile for the source."),
    ] = None
    target_profile: Annotated[
        str | None,
        Option("--target-profile", metavar="NAME", help="A profile for the target."),
    ] = None
    timeout: Annotated[
        str | None,
        Option("--timeout", metavar="DURATION", help="Give up after this time. [default: 30s]"),
    ] = None
    output_format: Annotated[
        OutputFormat, Option("--output", "-o", help="How to print the result.")
    ] = OutputFormat.TABLE

    def session(self, *, writes: bool = False, assume_yes: bool = False) -> Session:
        """Return a session with the target; raise UsageError if the target is not named."""
        return Session(
            self.connect_options("target"),
            Output(self.output_format),
            writes=writes,
            assume_yes=assume_yes,
        )

    def run(
        self,
        session: Session,
        work: "Callable[[AdminClient, AdminClient], Coroutine[Any, Any, T]]",
        on_start: "Callable[[Task[T]], object] | None" = None,
    ) -> T:
        """Connect to both clusters, run `work(source, target)` to its end, disconnect, and return
        its result. The session's profile guards the target; nothing is written to the source."""
        from kctl.mirror.clusters import SourceCluster, with_source

        settings = resolve(self.connect_options("source"), os.environ)
        cluster = SourceCluster(
            settings.bootstrap_servers, settings.timeout_ms, settings.properties
        )
        check = settings.guard.check_connected
        return session.run(lambda target: with_source(target, cluster, check, work), on_start)

    def run_from(
        self,
        session: Session,
        work: "Callable[[MirrorSource, AdminClient], Coroutine[Any, Any, T]]",
        on_start: "Callable[[Task[T]], object] | None" = None,
        topics: Sequence[str] | None = None,
    ) -> T:
        """Do as `run` does, where the source may also be log directories or a server of Kafka 0.7,
        which is asked for `topics`."""
        if (zookeeper := self._after(_ZOOKEEPER_SCHEME07)) is not None:
            from kctl.mirror.zookeeper_logs07 import with_cluster07

            timeout_ms = resolve(self.connect_options("target"), os.environ).timeout_ms
            return session.run(
                lambda target: with_cluster07(zookeeper, timeout_ms, target, work), on_start
            )
        if (server := self._after(_SCHEME07)) is not None:
            from kctl.client.bootstrap_servers import parse_servers
            from kctl.mirror.logs07 import ServerLogs07

            timeout_ms = resolve(self.connect_options("target"), os.environ).timeout_ms
            [(host, port)] = parse_servers(server)
            logs = ServerLogs07(session.runtime, host, port, topics or [], timeout_ms)
            return self._run_from07(session, logs, work, on_start)
        if (directories := self.directories("source")) is not None:
            from kctl.records.bulk import require_bulk

            require_bulk("A mirror of a directory")
            from kctl.mirror.directory_logs07 import DirectoryLogs07, is_of_kafka07
            from kctl.mirror.directory_source import DirectorySource

            if is_of_kafka07(directories):
                return self._run_from07(session, DirectoryLogs07(directories), work, on_start)
            found = DirectorySource(directories, session.runtime)
            return session.run(lambda target: work(found, target), on_start)
        from kctl.mirror.cluster_source import ClusterSource

        return self.run(
            session, lambda source, target: work(ClusterSource(source), target), on_start
        )

    def _run_from07(
        self,
        session: Session,
        logs: "Logs07",
        work: "Callable[[MirrorSource, AdminClient], Coroutine[Any, Any, T]]",
        on_start: "Callable[[Task[T]], object] | None",
    ) -> T:
        from kctl.mirror.source07 import Source07, with_logs

        old = Source07(session.runtime, logs)
        return session.run(lambda target: with_logs(old, target, work), on_start)

    def directories(self, side: str) -> list[str] | None:
        """Return the paths or URLs that the option `side` names; None if it names brokers."""
        given: str | None = getattr(self, side)
        if (
            given is None
            or _PATH_CHARACTER not in given
            or given.startswith((_SCHEME07, _ZOOKEEPER_SCHEME07))
        ):
            return None
        return given.split(",")

    @property
    def has_servers07(self) -> bool:
        """Return whether the source is a server of Kafka 0.7, or several."""
        return self._after(_SCHEME07) is not None or self._after(_ZOOKEEPER_SCHEME07) is not None

    def _after(self, scheme: str) -> str | None:
        """Return the address of the source if it has this scheme."""
        if self.source is None or not self.source.startswith(scheme):
            return None
        return self.source.removeprefix(scheme)

    def given(self) -> tuple[str | None, ...]:
        """Return the options that name clusters."""
        return (
            self.source, self.target, self.source_config, self.target_config,
            self.source_profile, self.target_profile,
        )  # fmt: skip

    def connect_options(self, side: str) -> ConnectOptions:
        """Return where and how to connect to the side `source` or `target`; raise UsageError if it
        is not named."""
        given = {
            "source": (self.source, self.source_profile, self.source_config),
            "target": (self.target, self.target_profile, self.target_config),
        }
        servers, profile, config = given[side]
        if servers is None and profile is None and config is None:
            raise UsageError(
                f"Name the {side} cluster", hint=f"e.g. --{side} kafka.example.org:9092"
            )
        if servers is not None and servers.startswith((_SCHEME07, _ZOOKEEPER_SCHEME07)):
            raise UsageError(
                f"--{side} {servers}: this command needs a cluster of Kafka 0.8 or later",
                hint="kctl mirror run and plan take servers of Kafka 0.7 as --source",
            )
        if self.directories(side) is not None:
            raise UsageError(
                f"--{side} {servers}: a directory has no brokers",
                hint="kctl mirror run, plan and verify read directories",
            )
        return ConnectOptions(
            bootstrap_server=servers, profile=profile, command_config=config, timeout=self.timeout,
            end=side,
        )  # fmt: skip


@dataclass(frozen=True)
class FlowEnds(EndOptions):
    """Both sides as an option file of MirrorMaker 2 describes them."""

    # Client settings by side; they may contain secrets.
    clients: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)

    def connect_options(self, side: str) -> ConnectOptions:
        """Return where and how to connect to the side `source` or `target`."""
        client = dict(self.clients[side])
        return ConnectOptions(
            bootstrap_server=client.pop("bootstrap.servers"),
            properties=[f"{name}={value}" for name, value in client.items()],
            timeout=self.timeout,
            end=side,
        )
