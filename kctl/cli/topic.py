"""kctl topic: create, list, describe, alter, delete."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kctl.cli.command import CHANGES, DANGEROUS, READS, remote_command
from kctl.cli.connect import parse_pairs
from kctl.cli.failures import DONE, FAILED
from kctl.cli.items import counted, did_you_mean, matching, positive, row, show_results
from kctl.cli.output import Table
from kctl.cli.session import Session
from kctl.cli.topic_view import PARTITION_COLUMNS, DescribedTopics, find, heading, known
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient

app = typer.Typer(rich_markup_mode=None)

ConfigOption = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="A setting; may be repeated."),
]


@remote_command(app, "create", CHANGES)
def create(
    session: Session,
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Topics to create.")],
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", metavar="N", help="[default: the broker's]"),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", "-r", metavar="N", help="[default: the broker's]"),
    ] = None,
    replica_assignment: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", help="Brokers of each partition, e.g. 0:1,1:2 (instead of -p and -r)."
        ),
    ] = None,
    config: ConfigOption = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="A topic that exists is fine.")
    ] = False,
) -> int:
    """Create topics.

    \b
    Examples:
      kctl topic create orders -p 12 -r 3
      kctl topic create events -c cleanup.policy=compact --if-not-exists
      kctl topic create orders -n -o json
    """
    from kctl.admin.topics import BROKER_DEFAULT, NewTopic
    from kctl.protocol.error_codes import ErrorCode

    assignment = _parse_assignment(replica_assignment, partitions, replication_factor)
    configs = parse_pairs(config or [], "--config")
    topics = [
        NewTopic(
            name,
            positive(partitions, "--partitions") or BROKER_DEFAULT,
            positive(replication_factor, "--replication-factor") or BROKER_DEFAULT,
            configs,
            assignment,
        )
        for name in dict.fromkeys(names)
    ]
    timeout_ms = session.settings.timeout_ms
    results = session.run(
        lambda admin: admin.topics.create(
            topics, validate_only=session.dry_run, timeout_ms=timeout_ms
        )
    )
    rows = []
    for result in results:
        error: object = result.error
        status = "would create" if session.dry_run else "created"
        if if_not_exists and result.error and result.error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
            error, status = None, "exists"
        elif result.error and result.error.code == ErrorCode.INVALID_CONFIG:
            error = explain_bad_config(result.error, configs)
        numbers = {
            "partitions": known(result.partitions),
            "replication_factor": known(result.replication_factor),
        }
        rows.append(row("topic", result.name, status, error, **numbers))
    return show_results(session, rows, "topic")


@remote_command(app, "list", READS)
def list_topics(
    session: Session,
    patterns: Annotated[
        list[str] | None, typer.Argument(metavar="PATTERN", help="Names or globs.")
    ] = None,
    internal: Annotated[
        bool, typer.Option("--internal", help="Internal topics, such as __consumer_offsets, too.")
    ] = False,
) -> int:
    """List topics.

    \b
    Examples:
      kctl topic list
      kctl topic list 'orders-*' -o name
    """
    topics = session.run(lambda admin: admin.topics.list_topics())
    wanted = set(matching([topic.name for topic in topics], patterns or []))
    documents = [
        {
            "name": topic.name,
            "partitions": len(topic.partitions),
            "replication_factor": topic.replication_factor,
            "internal": topic.is_internal,
        }
        for topic in topics
        if topic.name in wanted and (internal or not topic.is_internal)
    ]
    columns = ["name", "partitions", "replication_factor", *(["internal"] if internal else [])]
    session.output.show(documents, columns, name="name")
    return DONE


@remote_command(app, "describe", READS)
def describe(
    session: Session,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Names or globs. [default: all]"),
    ] = None,
    internal: Annotated[
        bool, typer.Option("--internal", help="Internal topics too, if no names are given.")
    ] = False,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="Where each partition begins and ends.")
    ] = False,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated", help="Only partitions with replicas out of sync.")
    ] = False,
    unavailable: Annotated[
        bool, typer.Option("--unavailable", help="Only partitions without a leader.")
    ] = False,
) -> int:
    """Show the partitions of topics: leader, replicas, who is in sync.

    \b
    Examples:
      kctl topic describe orders --offsets
      kctl topic describe --under-replicated
    """

    async def work(admin: "AdminClient") -> "DescribedTopics":
        topics, missing = await find(admin, names or [], internal=internal)
        found = DescribedTopics(topics, missing)
        await found.look_up(admin, with_offsets=offsets)
        return found

    found = session.run(work)
    is_filtered = under_replicated or unavailable
    documents, tables = [], []
    for topic in found.topics:
        kept = [
            found.partition_document(partition)
            for partition in topic.partitions
            if not is_filtered
            or (under_replicated and partition.is_under_replicated)
            or (unavailable and partition.is_offline)
        ]
        if is_filtered and not kept:
            continue
        document = found.topic_document(topic, kept)
        documents.append(document)
        columns = list(PARTITION_COLUMNS) + (["start_offset", "end_offset"] if offsets else [])
        tables.append(Table(columns, kept, heading(document)))
    session.output.show(documents, name="name", tables=tables)
    if names and not found.topics and not found.missing:
        session.output.say(f"No topic matches {' '.join(names)}")
    for name, hint in found.missing.items():
        session.output.say(f"error: No topic {name}" + (f"\nhint: {hint}" if hint else ""))
    return FAILED if found.missing else DONE


@remote_command(app, "alter", DANGEROUS)
def alter(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The topic.")],
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", metavar="N", help="Enlarge it to N partitions."),
    ] = None,
    config: ConfigOption = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", "-d", metavar="KEY", help="Back to the default."),
    ] = None,
) -> int:
    """Add partitions to a topic, or change its settings.

    What may delete records (a shorter retention, another cleanup.policy) is shown and asked first.

    \b
    Examples:
      kctl topic alter orders -p 24
      kctl topic alter orders -c retention.ms=86400000 --yes
      kctl topic alter orders -d retention.ms
    """
    from kctl.admin.configs import ConfigChanges, ConfigResource, ResourceType
    from kctl.cli.config import change_configs

    changes = ConfigChanges(parse_pairs(config or [], "--config"), delete_config or [])
    positive(partitions, "--partitions")
    if partitions is None and not changes.operations():
        raise UsageError("Nothing to alter", hint="give -p, -c or -d")

    async def work(admin: "AdminClient") -> list[dict[str, Any]] | None:
        rows: list[dict[str, Any]] = []
        if changes.operations():
            resource = ConfigResource(ResourceType.TOPIC, name)
            altered = await change_configs(session, admin, resource, changes)
            if altered is None:
                return None
            rows += [{"topic": name, **item} for item in altered]
        if partitions is not None:
            [result] = await admin.topics.add_partitions(
                {name: partitions}, validate_only=session.dry_run
            )
            status = "would alter" if session.dry_run else "altered"
            what = {"setting": "partitions", "value": str(partitions)}
            rows.append(row("topic", name, status, result.error, **what))
        return rows

    rows = session.run(work)
    return DONE if rows is None else show_results(session, rows, "topic")


@remote_command(app, "delete", DANGEROUS)
def delete(
    session: Session,
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Names or globs.")],
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="A topic that does not exist is fine.")
    ] = False,
) -> int:
    """Delete topics with all their records.

    \b
    Examples:
      kctl topic delete orders --yes
      kctl topic delete 'test-*' --dry-run
    """

    async def work(admin: "AdminClient") -> list[dict[str, Any]] | None:
        topics, missing = await find(admin, names)
        found = [topic.name for topic in topics]
        if not found and not missing:
            session.output.say(f"No topic matches {' '.join(names)}")
        rows = [] if if_exists else [_missing_row(name, hint) for name, hint in missing.items()]
        if session.dry_run:
            return rows + [row("topic", name, "would delete") for name in found]
        plan = [{"topic": t.name, "partitions": len(t.partitions)} for t in topics]
        question = f"Delete {counted(len(found), 'topic')} and all records?"
        if found and not session.confirm(Table(["topic", "partitions"], plan), question):
            return None
        timeout_ms = session.settings.timeout_ms
        results = await admin.topics.delete(found, timeout_ms=timeout_ms)
        return rows + [row("topic", item.name, "deleted", item.error) for item in results]

    rows = session.run(work)
    return DONE if rows is None else show_results(session, rows, "topic")


def _missing_row(name: str, hint: str | None) -> dict[str, Any]:
    return row("topic", name, "", "no such topic" + (f" ({hint})" if hint else ""))


def explain_bad_config(error: object, configs: dict[str, str]) -> str:
    """The broker's words about a setting, with the name that was probably meant."""
    from kctl.broker.topic_configs import TOPIC_CONFIGS

    for name in configs:
        if name not in TOPIC_CONFIGS and (hint := did_you_mean(name, TOPIC_CONFIGS)):
            return f"{error} ({hint})"
    return str(error)


def _parse_assignment(
    text: str | None, partitions: int | None, replication_factor: int | None
) -> dict[int, list[int]]:
    if text is None:
        return {}
    if partitions is not None or replication_factor is not None:
        raise UsageError("--replica-assignment says it all: leave out -p and -r")
    try:
        lists = [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise UsageError(f"Not a replica assignment: {text}", hint="e.g. 0:1,1:2") from None
    return dict(enumerate(lists))
