"""The options of kctl mirror that choose topics and name them in the target."""

from typing import TYPE_CHECKING, Annotated

from kctl.cli.declaration.command import INT32_COUNT
from kctl.cli.declaration.declarations import Option
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.mirror.topics import TopicChoice

NameOption = Annotated[
    str,
    Option(
        "--name",
        metavar="NAME",
        help="The mirror's name: it keeps its position in the target under it.",
    ),
]
DEFAULT_NAME = "default"
ExcludeOption = Annotated[
    list[str] | None,
    Option("--exclude", metavar="PATTERN", help="Names or globs of topics to leave out."),
]
RenameOption = Annotated[
    str,
    Option(
        "--rename",
        metavar="RULE",
        help="identity, prefix (ALIAS.topic) or a template such as 'dc1.{topic}'.",
    ),
]
SourceAliasOption = Annotated[
    str | None, Option("--source-alias", metavar="ALIAS", help="The source's name in topics.")
]


@dataclass(frozen=True)
class TopicOptions:
    """Which topics are mirrored."""

    topics: Annotated[
        list[str] | None,
        Option("--topics", "-t", metavar="PATTERN", help="Names or globs; may be repeated."),
    ] = None
    exclude: ExcludeOption = None
    rename: RenameOption = "identity"
    source_alias: SourceAliasOption = None
    replication_factor: Annotated[
        int | None,
        Option(
            "--replication-factor",
            metavar="N",
            help="Replicas of new topics. [default: the target's default]",
        ),
        INT32_COUNT,
    ] = None
    exclude_config: Annotated[
        list[str] | None,
        Option(
            "--exclude-config",
            metavar="PATTERN",
            help="Names or globs of topic settings to leave out, e.g. those the target lacks.",
        ),
    ] = None

    def choice(self) -> "TopicChoice":
        """Return the choice of topics; raise UsageError if none are named."""
        from kctl.admin.topics import BROKER_DEFAULT
        from kctl.mirror.renames import parse_rename
        from kctl.mirror.topics import TopicChoice

        if not self.topics:
            raise UsageError("Name the topics to mirror", hint="e.g. --topics 'orders*'")
        return TopicChoice(
            tuple(self.topics),
            tuple(self.exclude or ()),
            parse_rename(self.rename, self.source_alias),
            self.replication_factor or BROKER_DEFAULT,
            exclude_configs=tuple(self.exclude_config or ()),
        )
