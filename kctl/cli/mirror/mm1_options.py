"""The options of kctl mirror run that are those of MirrorMaker 1, and its two files."""

from typing import Annotated

from kctl.cli.declaration.declarations import Option
from kctl.cli.mirror.ends import EndOptions, FlowEnds
from kctl.cli.mirror.mm2_options import Flow, Mm2Options
from kctl.cli.mirror.topic_options import TopicOptions
from kctl.cli.text_files import read_text
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Mm1Options:
    """MirrorMaker 1's options, as it takes them."""

    consumer_config: Annotated[
        str | None,
        Option(
            "--consumer.config",
            metavar="FILE",
            help="MirrorMaker 1's consumer.properties, in place of --source.",
        ),
    ] = None
    producer_config: Annotated[
        str | None,
        Option(
            "--producer.config",
            metavar="FILE",
            help="MirrorMaker 1's producer.properties, in place of --target.",
        ),
    ] = None
    whitelist: Annotated[
        str | None,
        Option(
            "--whitelist",
            metavar="REGEX",
            help="Topics as a regular expression of Java, with --consumer.config.",
        ),
    ] = None
    num_streams: Annotated[
        str | None, Option("--num.streams", metavar="N", help="Accepted, without effect.")
    ] = None
    abort_on_send_failure: Annotated[
        str | None,
        Option("--abort.on.send.failure", metavar="BOOLEAN", help="Accepted: always true."),
    ] = None
    offset_commit_interval_ms: Annotated[
        str | None,
        Option("--offset.commit.interval.ms", metavar="MS", help="Accepted, without effect."),
    ] = None

    def flow_of(
        self, ends: EndOptions, topics: TopicOptions, groups: list[str] | None, mm2: Mm2Options
    ) -> Flow | None:
        """Return what the files describe, None if there are none; report what has no effect."""
        files = (self.consumer_config, self.producer_config, self.whitelist)
        if all(it is None for it in (*files, *self._idle().values())):
            return None
        if self.consumer_config is None or self.producer_config is None or self.whitelist is None:
            raise UsageError(
                "MirrorMaker 1's options are --consumer.config, --producer.config and --whitelist:"
                " all three are needed"
            )
        if any(it is not None for it in (*ends.given(), topics.topics, topics.exclude, groups)) or (
            mm2 != Mm2Options()
        ):
            raise UsageError(
                "--consumer.config, --producer.config and --whitelist name clusters and topics:"
                " they cannot be combined with options that do"
            )
        return self._flow(self.consumer_config, self.producer_config, self.whitelist, ends, topics)

    def _flow(
        self, consumer: str, producer: str, whitelist: str, ends: EndOptions, topics: TopicOptions
    ) -> Flow:
        from kctl.admin.topics import BROKER_DEFAULT
        from kctl.configs.broker_config import parse_properties
        from kctl.mirror.mm1_config import parse_files
        from kctl.mirror.renames import parse_rename
        from kctl.mirror.topics import TopicChoice

        found = parse_files(
            parse_properties(read_text(consumer)), parse_properties(read_text(producer)), whitelist
        )
        from_files = FlowEnds(
            timeout=ends.timeout,
            output_format=ends.output_format,
            clients={"source": found.source, "target": found.target},
        )
        idle = [name for name, value in self._idle().items() if value is not None]
        for path, names in zip((consumer, producer), found.without_effect, strict=True):
            idle += [f"{path}: {name}" for name in names]
        for each in idle:
            from_files.session().output.say(f"warning: {each} has no effect")
        choice = TopicChoice(
            (), (), parse_rename(topics.rename, topics.source_alias),
            topics.replication_factor or BROKER_DEFAULT, found.topics,
            exclude_configs=tuple(topics.exclude_config or ()),
        )  # fmt: skip
        return Flow(from_files, choice, None, None)

    def _idle(self) -> dict[str, str | None]:
        """Return the options without effect, by name; None for those that are not given."""
        abort = self.abort_on_send_failure
        return {
            "--num.streams": self.num_streams,
            "--abort.on.send.failure": None if abort in (None, "true") else abort,
            "--offset.commit.interval.ms": self.offset_commit_interval_ms,
        }
