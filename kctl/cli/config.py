"""kctl config: describes and alters the settings of topics, brokers and broker loggers."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.connect import parse_pairs
from kctl.cli.declaration.command import DANGEROUS, READS, remote_command
from kctl.cli.declaration.declarations import Argument, CommandGroup, Option
from kctl.cli.failures import DONE, FAILED
from kctl.cli.items import row, show_results
from kctl.cli.output import Table
from kctl.cli.session import Question, Session
from kctl.counts import is_whole_number
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.config_plan import ConfigOutcome, ConfigPlan
    from kctl.admin.configs import ConfigChanges, ConfigEntry, ConfigResource

app = CommandGroup()

# The name of the cluster-wide default for brokers.
DEFAULT_BROKER = "default"


class Entity(StrEnum):
    """A kind of resource that has settings."""

    TOPIC = "topic"
    BROKER = "broker"
    LOGGER = "logger"


EntityArgument = Annotated[Entity, Argument(metavar="TYPE", help="topic, broker or logger.")]
_NAME_HELP = "A topic; for broker and logger, the id of a broker; `default` for all brokers."


@remote_command(app, "describe", READS)
def describe(
    session: Session,
    entity: EntityArgument,
    name: Annotated[str, Argument(metavar="NAME", help=_NAME_HELP)],
    keys: Annotated[list[str] | None, Argument(metavar="KEY", help="Only these settings.")] = None,
    everything: Annotated[
        bool, Option("--all", "-a", help="Include settings at their defaults.")
    ] = False,
) -> int:
    """Show the settings that differ from their defaults, or all.

    \b
    Examples:
      kctl config describe topic orders
      kctl config describe topic orders retention.ms
      kctl config describe broker 0 --all -o json
    """
    from kctl.admin.config_plan import describe_configs

    resource = make_resource(entity, name)
    found = session.run(lambda admin: describe_configs(admin, resource, keys or None))
    entries = [entry for entry in found.entries if everything or keys or not entry.is_default]
    documents = [_document(entry) for entry in entries]
    columns = ["name", "value", "source", *(["read_only", "sensitive"] if everything else [])]
    session.output.show(documents, columns, name="name")
    unknown = sorted(set(keys or []) - {entry.name for entry in found.entries})
    for key in unknown:
        session.output.say(f"error: {entity.value} {name} has no setting {key}")
    return FAILED if unknown else DONE


@remote_command(app, "alter", DANGEROUS)
def alter(
    session: Session,
    entity: EntityArgument,
    name: Annotated[str, Argument(metavar="NAME", help=_NAME_HELP)],
    config: Annotated[
        list[str] | None,
        Option("--config", "-c", metavar="KEY=VALUE", help="Set a setting; may be repeated."),
    ] = None,
    delete_config: Annotated[
        list[str] | None,
        Option("--delete-config", "-d", metavar="KEY", help="Reset a setting to its default."),
    ] = None,
    append: Annotated[
        list[str] | None,
        Option("--append", metavar="KEY=ITEM", help="Add an item to a list."),
    ] = None,
    subtract: Annotated[
        list[str] | None,
        Option("--subtract", metavar="KEY=ITEM", help="Remove an item from a list."),
    ] = None,
) -> int:
    """Change settings; the others keep their values.

    A change that may delete records (a shorter retention, another cleanup.policy) is shown and
    must be confirmed.

    \b
    Examples:
      kctl config alter topic orders -c retention.ms=86400000 --yes
      kctl config alter topic orders -d retention.ms --append cleanup.policy=compact
      kctl config alter broker default -c log.cleaner.threads=2
      kctl config alter logger 0 -c kafka.server.KafkaApis=DEBUG
    """
    from kctl.admin.configs import ConfigChanges

    changes = ConfigChanges(
        parse_pairs(config or [], "--config"),
        delete_config or [],
        parse_pairs(append or [], "--append"),
        parse_pairs(subtract or [], "--subtract"),
    )
    if not changes.operations():
        raise UsageError("Nothing to alter", hint="give -c, -d, --append or --subtract")
    outcome = change_configs(session, make_resource(entity, name), changes)
    if outcome is None:
        return DONE
    return show_results(session, config_rows(session, outcome, changes), "setting")


def make_resource(entity: Entity, name: str) -> "ConfigResource":
    """Return the resource for the arguments TYPE and NAME."""
    from kctl.admin.configs import ConfigResource, ResourceType

    if entity is Entity.TOPIC:
        return ConfigResource(ResourceType.TOPIC, name)
    if entity is Entity.BROKER and name == DEFAULT_BROKER:
        return ConfigResource(ResourceType.BROKER, "")
    if not is_whole_number(name):
        raise UsageError(
            f"NAME must be the id of a broker, not {name!r}",
            hint="e.g. 0; see kctl cluster describe",
        )
    kind = ResourceType.BROKER if entity is Entity.BROKER else ResourceType.BROKER_LOGGER
    return ConfigResource(kind, name)


def change_configs(
    session: Session,
    resource: "ConfigResource",
    changes: "ConfigChanges",
    partitions: int | None = None,
) -> "ConfigOutcome | None":
    """Alter one resource, after a confirmation if that may delete records; None if declined."""
    from kctl.admin.config_plan import apply_changes, plan_changes

    def question(plan: "ConfigPlan") -> Question | None:
        if not plan.losses:
            return None
        rows = [{"setting": it.name, "now": it.old, "then": it.new} for it in plan.losses]
        table = Table(["setting", "now", "then"], rows)
        return Question(table, f"This may delete records of {resource.name}. Continue?")

    change = session.change(
        lambda admin: plan_changes(admin, resource, changes, partitions),
        question,
        lambda admin, plan: apply_changes(admin, plan, validate_only=session.dry_run),
        has_broker_dry_run=True,
    )
    return change.result


def config_rows(
    session: Session, outcome: "ConfigOutcome", changes: "ConfigChanges"
) -> list[dict[str, Any]]:
    """Return a row per changed setting."""
    from kctl.admin.config_plan import explain_invalid
    from kctl.cli.profile.secrets import shown_value
    from kctl.protocol.error_codes import ErrorCode

    if outcome.configs is None:
        return []
    error: object = outcome.configs.error
    if outcome.configs.error is not None and outcome.configs.error.code == ErrorCode.INVALID_CONFIG:
        error = explain_invalid(
            outcome.configs.error, [name for name, _, _ in changes.operations()]
        )
    status = "would alter" if session.dry_run else "altered"
    return [
        row(
            "setting",
            name,
            status,
            error,
            operation=what.name.lower(),
            value=shown_value(name, value),
        )
        for name, what, value in changes.operations()
    ]


def _document(entry: "ConfigEntry") -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source_name,
        "default": entry.is_default,
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
    }
