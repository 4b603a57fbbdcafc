"""kctl config: describe and alter the settings of topics, brokers and broker loggers."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kctl.cli.command import DANGEROUS, READS, remote_command
from kctl.cli.connect import parse_pairs
from kctl.cli.failures import DONE, FAILED
from kctl.cli.items import did_you_mean, row, show_results
from kctl.cli.output import Table
from kctl.cli.session import Session
from kctl.errors import KctlError, UsageError

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.admin.configs import ConfigChanges, ConfigDescription, ConfigEntry, ConfigResource

app = typer.Typer(rich_markup_mode=None)

# The broker that stands for all brokers.
DEFAULT_BROKER = "default"


class Entity(StrEnum):
    """What has settings."""

    TOPIC = "topic"
    BROKER = "broker"
    LOGGER = "logger"


EntityArgument = Annotated[
    Entity, typer.Argument(metavar="TYPE", help="topic, broker or logger.", show_choices=False)
]
_NAME_HELP = "A topic; a broker's number (of a logger too), or `default` for all brokers."


@remote_command(app, "describe", READS)
def describe(
    session: Session,
    entity: EntityArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help=_NAME_HELP)],
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="KEY", help="Only these settings.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Settings at their defaults too.")
    ] = False,
) -> int:
    """Show settings that differ from the defaults, or all.

    \b
    Examples:
      kctl config describe topic orders
      kctl config describe topic orders retention.ms
      kctl config describe broker 0 --all -o json
    """
    from kctl.admin.result import is_unknown_topic

    resource = make_resource(entity, name)

    async def work(admin: "AdminClient") -> "ConfigDescription":
        await _check_broker(admin, resource)
        [found] = await admin.configs.describe([resource], names=keys or None)
        if is_unknown_topic(found.error):
            known = [topic.name for topic in await admin.topics.list_topics()]
            raise KctlError(f"No topic {name}", hint=did_you_mean(name, known))
        return found

    found = session.run(work)
    if found.error is not None:
        raise found.error
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
    name: Annotated[str, typer.Argument(metavar="NAME", help=_NAME_HELP)],
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="KEY=VALUE", help="Set; may be repeated."),
    ] = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", "-d", metavar="KEY", help="Back to the default."),
    ] = None,
    append: Annotated[
        list[str] | None,
        typer.Option("--append", metavar="KEY=ITEM", help="Add an item to a list."),
    ] = None,
    subtract: Annotated[
        list[str] | None,
        typer.Option("--subtract", metavar="KEY=ITEM", help="Take an item from a list."),
    ] = None,
) -> int:
    """Change settings; the others stay as they are.

    What may delete records (a shorter retention, another cleanup.policy) is shown and asked first.

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
    resource = make_resource(entity, name)
    rows = session.run(lambda admin: change_configs(session, admin, resource, changes))
    return DONE if rows is None else show_results(session, rows, "setting")


def make_resource(entity: Entity, name: str) -> "ConfigResource":
    """The resource that TYPE and NAME stand for."""
    from kctl.admin.configs import ConfigResource, ResourceType

    if entity is Entity.TOPIC:
        return ConfigResource(ResourceType.TOPIC, name)
    if entity is Entity.BROKER and name == DEFAULT_BROKER:
        return ConfigResource(ResourceType.BROKER, "")
    if not name.isdigit():
        raise UsageError(
            f"A broker is named by its number, not {name!r}",
            hint="e.g. 0; see kctl cluster describe",
        )
    kind = ResourceType.BROKER if entity is Entity.BROKER else ResourceType.BROKER_LOGGER
    return ConfigResource(kind, name)


async def _check_broker(admin: "AdminClient", resource: "ConfigResource") -> None:
    """A broker that is not there is told at once: requests to it would wait for it to come."""
    from kctl.admin.configs import ResourceType

    if resource.resource_type is ResourceType.TOPIC or not resource.name:
        return
    brokers = [str(it.broker_id) for it in (await admin.cluster.describe()).brokers]
    if resource.name not in brokers:
        raise KctlError(f"No broker {resource.name}", hint=f"there are {', '.join(brokers)}")


async def change_configs(
    session: Session,
    admin: "AdminClient",
    resource: "ConfigResource",
    changes: "ConfigChanges",
) -> list[dict[str, Any]] | None:
    """Alter one resource, after asking if records may be lost by it; one row a setting, or None
    if the person said no."""
    from kctl.admin.config_plan import losses
    from kctl.protocol.error_codes import ErrorCode

    await _check_broker(admin, resource)
    if not session.dry_run:
        [current] = await admin.configs.describe([resource])
        lost = [] if current.error else losses(current, changes)
        if lost:
            plan = [{"setting": it.name, "now": it.old, "then": it.new} for it in lost]
            question = f"This may delete records of {resource.name}. Go on?"
            if not session.confirm(Table(["setting", "now", "then"], plan), question):
                return None
    [result] = await admin.configs.alter({resource: changes}, validate_only=session.dry_run)
    error: object = result.error
    if result.error is not None and result.error.code == ErrorCode.INVALID_CONFIG:
        error = explain(result.error, [name for name, _, _ in changes.operations()])
    status = "would alter" if session.dry_run else "altered"
    return [
        row("setting", name, status, error, operation=what.name.lower(), value=value)
        for name, what, value in changes.operations()
    ]


def explain(error: object, names: list[str]) -> str:
    """The broker's words about a setting, with the name that was probably meant."""
    from kctl.broker.broker_settings import BrokerSettings
    from kctl.broker.topic_configs import TOPIC_CONFIGS

    known = [*TOPIC_CONFIGS, *BrokerSettings.KEYS]
    for name in names:
        if name not in known and name in str(error) and (hint := did_you_mean(name, known)):
            return f"{error} ({hint})"
    return str(error)


def _document(entry: "ConfigEntry") -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source_name,
        "default": entry.is_default,
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
    }
