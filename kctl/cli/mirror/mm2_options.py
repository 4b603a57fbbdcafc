"""The options of kctl mirror run about MirrorMaker 2: its option file, and its own topics."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from kctl.cli.declaration.declarations import Option
from kctl.cli.mirror.ends import EndOptions, FlowEnds
from kctl.cli.mirror.topic_options import TopicOptions
from kctl.cli.text_files import read_text
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.mirror.mm2_formats import Mm2Settings
    from kctl.mirror.topics import TopicChoice


@dataclass(frozen=True)
class Flow:
    """What is mirrored, from the options or from a file."""

    ends: EndOptions
    choice: "TopicChoice"
    groups: Callable[[str], bool] | None
    mm2: "Mm2Settings | None"


@dataclass(frozen=True)
class Mm2Options:
    """MirrorMaker 2's option file and topics."""

    mm2_config: Annotated[
        str | None,
        Option(
            "--mm2-config",
            metavar="FILE",
            help="MirrorMaker 2's option file, in place of clusters, topics and groups.",
        ),
    ] = None
    flow: Annotated[
        str | None,
        Option("--flow", metavar="A->B", help="The flow in the file of --mm2-config."),
    ] = None
    mm2_topics: Annotated[
        bool,
        Option(
            "--mm2-topics",
            help="Keep MirrorMaker 2's offset syncs, checkpoints and heartbeats in the target.",
        ),
    ] = False
    target_alias: Annotated[
        str | None,
        Option("--target-alias", metavar="ALIAS", help="The target's name in heartbeats."),
    ] = None

    def flow_of(self, ends: EndOptions, topics: TopicOptions, groups: list[str] | None) -> Flow:
        """Return what is mirrored; report what has no effect in a file. Raise UsageError."""
        if self.mm2_config is None:
            return self._from_options(ends, topics, groups)
        return self._from_file(self.mm2_config, ends, topics, groups)

    def _from_options(
        self, ends: EndOptions, topics: TopicOptions, patterns: list[str] | None
    ) -> Flow:
        from kctl.admin.selection import matching

        if self.flow is not None:
            raise UsageError("--flow names a flow in the file of --mm2-config")
        is_directory = ends.directories("source") is not None
        if patterns and ends.has_servers07:
            raise UsageError(
                "--groups: the groups of Kafka 0.7 keep their offsets in ZooKeeper",
                hint="kctl group migrate --mirror moves them",
            )
        if self.mm2_topics and (is_directory or ends.has_servers07):
            raise UsageError("--mm2-topics needs a cluster as --source")
        groups = (lambda name: bool(matching([name], patterns))) if patterns else None
        mm2 = None
        if self.mm2_topics:
            from kctl.mirror.mm2_config import default_groups
            from kctl.mirror.mm2_formats import Mm2Settings

            if not topics.source_alias or not self.target_alias:
                raise UsageError(
                    "--mm2-topics needs a name for each side",
                    hint="e.g. --source-alias dc1 --target-alias dc2",
                )
            mm2 = Mm2Settings(topics.source_alias, self.target_alias, groups or default_groups())
        choice = replace(topics.choice(), has_mm2_topics=mm2 is not None)
        return Flow(ends, choice, groups, mm2)

    def _from_file(
        self, path: str, ends: EndOptions, topics: TopicOptions, groups: list[str] | None
    ) -> Flow:
        options = (
            *ends.given(), topics.topics, topics.exclude, topics.source_alias, groups,
            self.target_alias,
        )  # fmt: skip
        if any(it is not None for it in options) or topics.rename != "identity":
            raise UsageError(
                "--mm2-config names clusters, topics and groups: it cannot be combined with"
                " options that do"
            )
        from kctl.configs.broker_config import parse_properties
        from kctl.mirror.mm2_config import parse_flow
        from kctl.mirror.renames import parse_rename
        from kctl.mirror.topics import TopicChoice

        properties = parse_properties(read_text(path))
        flow = parse_flow(properties, self.flow, has_mm2_topics=self.mm2_topics)
        from_file = FlowEnds(
            timeout=ends.timeout,
            output_format=ends.output_format,
            clients={"source": flow.source, "target": flow.target},
        )
        for name in flow.without_effect:
            from_file.session().output.say(f"warning: {path}: {name} has no effect")
        choice = TopicChoice(
            (), (), parse_rename(flow.rename, flow.source_alias),
            topics.replication_factor or flow.replication_factor, flow.topics,
            flow.mm2 is not None, tuple(topics.exclude_config or ()),
        )  # fmt: skip
        return Flow(from_file, choice, flow.groups, flow.mm2)
