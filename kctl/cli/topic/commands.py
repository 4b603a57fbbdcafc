"""kctl topic: creates, lists, describes, alters and deletes topics, and registers purge."""

from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.connect import parse_pairs
from kctl.cli.declaration.command import (
    CHANGES,
    DANGEROUS,
    INT16_MAX,
    INT32_COUNT,
    READS,
    Range,
    remote_command,
)
from kctl.cli.declaration.declarations import Argument, CommandGroup, Option
from kctl.cli.failures import DONE, FAILED
from kctl.cli.items import positive, row, show_results
from kctl.cli.output import OutputFormat, Table
from kctl.cli.session import Question, Session
from kctl.cli.topic.offsets07 import offsets_07
from kctl.cli.topic.purge import purge
from kctl.cli.topic.states import StateOptions
from kctl.cli.topic.view import (
    heading,
    known,
    partition_columns,
    plotted_sizes,
    table_rows,
    topic_document,
)
from kctl.cli.units import format_bytes
from kctl.counts import counted
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.selection import SelectedTopics
    from kctl.admin.topic_sizes import TopicSizes

app = CommandGroup()
remote_command(app, "purge", DANGEROUS)(purge)
remote_command(app, "offsets-07", READS)(offsets_07)

ConfigOption = Annotated[
    list[str] | None,
    Option("--config", "-c", metavar="KEY=VALUE", help="A setting; may be repeated."),
]


@remote_command(app, "create", CHANGES)
def create(
    session: Session,
    names: Annotated[list[str], Argument(metavar="NAME", help="Topics to create.")],
    partitions: Annotated[
        int | None,
        Option("--partitions", "-p", metavar="N", help="[default: the broker's]"),
        INT32_COUNT,
    ] = None,
    replication_factor: Annotated[
        int | None,
        Option("--replication-factor", "-r", metavar="N", help="[default: the broker's]"),
        Range(1, INT16_MAX),
    ] = None,
    replica_assignment: Annotated[
        str | None,
        Option(
            metavar="LIST", help="Brokers of each partition, e.g. 0:1,1:2 (instead of -p and -r)."
        ),
    ] = None,
    config: ConfigOption = None,
    if_not_exists: Annotated[
        bool, Option("--if-not-exists", help="Ignore topics that exist.")
    ] = False,
) -> int:
    """Create topics.

    \b
    Examples:
      kctl topic create orders -p 12 -r 3
      kctl topic create events -c cleanup.policy=compact --if-not-exists
      kctl topic create orders -n -o json
    """
    from kctl.admin.config_plan import explain_invalid
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
            error = explain_invalid(result.error, list(configs))
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
        list[str] | None, Argument(metavar="PATTERN", help="Names or globs.")
    ] = None,
    internal: Annotated[
        bool,
        Option("--internal", help="Include internal topics, such as __consumer_offsets."),
    ] = False,
    size: Annotated[
        bool,
        Option("--size", help="Show the size of all replicas; the largest topics first."),
    ] = False,
    *,
    states: StateOptions,
) -> int:
    """List topics, or only those with partitions in a state such as --under-replicated.

    \b
    Examples:
      kctl topic list
      kctl topic list --under-min-isr
      kctl topic list --size --internal
      kctl topic list 'orders-*' -o name
    """
    from kctl.admin import topic_overview

    topics, sizes = session.run(
        lambda admin: topic_overview.list_topics(
            admin,
            patterns or [],
            internal=internal,
            with_sizes=size,
            states=states.chosen(),
        )
    )
    documents: list[dict[str, Any]] = [
        {
            "name": topic.name,
            "partitions": len(topic.partitions),
            "replication_factor": topic.replication_factor,
            "internal": topic.is_internal,
        }
        for topic in topics
    ]
    columns = ["name", "partitions", "replication_factor", *(["internal"] if internal else [])]
    if sizes is None:
        session.output.show(documents, columns, name="name")
        return DONE
    return _show_sizes(session, documents, columns, sizes)


def _show_sizes(
    session: Session, documents: list[dict[str, Any]], columns: list[str], sizes: "TopicSizes"
) -> int:
    for document in documents:
        document["size_bytes"] = sizes.by_topic[document["name"]]
    documents.sort(key=lambda it: -it["size_bytes"])
    rows = [{**it, "size": format_bytes(it["size_bytes"])} for it in documents]
    table = Table([*columns, "size"], rows)
    session.output.show(documents, name="name", tables=[table])
    return _report_uncounted(session, sizes)


def _report_uncounted(session: Session, sizes: "TopicSizes") -> int:
    for broker_id, error in sizes.errors.items():
        session.output.say(f"error: broker {broker_id} is not counted: {error}")
    return FAILED if sizes.errors else DONE


@remote_command(app, "describe", READS)
def describe(
    session: Session,
    names: Annotated[
        list[str] | None,
        Argument(metavar="NAME", help="Names or globs. [default: all]"),
    ] = None,
    internal: Annotated[
        bool, Option("--internal", help="Include internal topics if no names are given.")
    ] = False,
    offsets: Annotated[bool, Option("--offsets", help="Show start and end offsets.")] = False,
    size: Annotated[bool, Option("--size", help="Show the size of all replicas.")] = False,
    plot: Annotated[
        bool, Option("--plot", help="Draw the sizes of the partitions as bars; implies --size.")
    ] = False,
    *,
    states: StateOptions,
) -> int:
    """Show the partitions of topics: leader, replicas and in-sync replicas.

    \b
    Examples:
      kctl topic describe orders --offsets --size
      kctl topic describe orders --plot
      kctl topic describe --under-replicated
    """

    from kctl.admin.topic_overview import describe_topics

    found = session.run(
        lambda admin: describe_topics(
            admin,
            names or [],
            internal=internal,
            with_offsets=offsets,
            with_sizes=size or plot,
            states=states.chosen(),
        )
    )
    documents = [topic_document(found, topic) for topic in found.topics]
    columns = partition_columns(documents)
    columns += ["start_offset", "end_offset"] if offsets else []
    columns += ["size"] if size or plot else []
    tables = [Table(columns, table_rows(it), heading(it)) for it in documents]
    session.output.show(documents, name="name", tables=tables)
    if plot and session.output.format is OutputFormat.TABLE:
        session.output.write(plotted_sizes(documents, session.output.width))
    if names and not states.chosen() and not found.topics and not found.missing:
        session.output.say(f"No topic matches {' '.join(names)}")
    for name, hint in found.missing.items():
        session.output.say(f"error: No topic {name}" + (f"\nhint: {hint}" if hint else ""))
    status = _report_uncounted(session, found.sizes) if found.sizes else DONE
    return FAILED if found.missing else status


@remote_command(app, "alter", DANGEROUS)
def alter(
    session: Session,
    name: Annotated[str, Argument(metavar="NAME", help="The topic.")],
    partitions: Annotated[
        int | None,
        Option("--partitions", "-p", metavar="N", help="The new number of partitions."),
        INT32_COUNT,
    ] = None,
    config: ConfigOption = None,
    delete_config: Annotated[
        list[str] | None,
        Option("--delete-config", "-d", metavar="KEY", help="Reset a setting to its default."),
    ] = None,
) -> int:
    """Add partitions to a topic, or change its settings.

    A change that may delete records (a shorter retention, another cleanup.policy) is shown and
    must be confirmed.

    \b
    Examples:
      kctl topic alter orders -p 24
      kctl topic alter orders -c retention.ms=86400000 --yes
      kctl topic alter orders -d retention.ms
    """
    from kctl.admin.configs import ConfigChanges, ConfigResource, ResourceType
    from kctl.cli.config import change_configs, config_rows

    changes = ConfigChanges(parse_pairs(config or [], "--config"), delete_config or [])
    positive(partitions, "--partitions")
    if partitions is None and not changes.operations():
        raise UsageError("Nothing to alter", hint="give -p, -c or -d")

    resource = ConfigResource(ResourceType.TOPIC, name)
    outcome = change_configs(session, resource, changes, partitions)
    if outcome is None:
        return DONE
    rows = [{"topic": name, **it} for it in config_rows(session, outcome, changes)]
    if outcome.partitions is not None:
        status = "would alter" if session.dry_run else "altered"
        what = {"setting": "partitions", "value": str(partitions)}
        rows.append(row("topic", name, status, outcome.partitions.error, **what))
    return show_results(session, rows, "topic")


@remote_command(app, "delete", DANGEROUS)
def delete(
    session: Session,
    names: Annotated[list[str], Argument(metavar="NAME", help="Names or globs.")],
    if_exists: Annotated[
        bool, Option("--if-exists", help="Ignore topics that do not exist.")
    ] = False,
) -> int:
    """Delete topics with all their records.

    \b
    Examples:
      kctl topic delete orders --yes
      kctl topic delete 'test-*' --dry-run
    """

    from kctl.admin.selection import select_topics

    def question(found: "SelectedTopics") -> Question | None:
        if not found.topics:
            return None
        plan = [{"topic": it.name, "partitions": len(it.partitions)} for it in found.topics]
        text = f"Delete {counted(len(found.topics), 'topic')} and all records?"
        return Question(Table(["topic", "partitions"], plan), text)

    timeout_ms = session.settings.timeout_ms
    change = session.change(
        lambda admin: select_topics(admin, names),
        question,
        lambda admin, found: admin.topics.delete(
            [it.name for it in found.topics], timeout_ms=timeout_ms
        ),
    )
    if change.is_declined:
        return DONE
    found = change.plan
    if not found.topics and not found.missing:
        session.output.say(f"No topic matches {' '.join(names)}")
    rows = [] if if_exists else [_missing_row(name, hint) for name, hint in found.missing.items()]
    if change.result is None:
        rows += [row("topic", it.name, "would delete") for it in found.topics]
    rows += [row("topic", it.name, "deleted", it.error) for it in change.result or ()]
    return show_results(session, rows, "topic")


def _missing_row(name: str, hint: str | None) -> dict[str, Any]:
    return row("topic", name, "", "no such topic" + (f" ({hint})" if hint else ""))


def _parse_assignment(
    text: str | None, partitions: int | None, replication_factor: int | None
) -> dict[int, list[int]]:
    if text is None:
        return {}
    if partitions is not None or replication_factor is not None:
        raise UsageError("--replica-assignment cannot be combined with -p and -r")
    try:
        lists = [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise UsageError(f"Not a replica assignment: {text}", hint="e.g. 0:1,1:2") from None
    return dict(enumerate(lists))
