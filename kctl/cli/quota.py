"""kctl quota: the quotas of users and client ids."""

from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.command import CHANGES, DANGEROUS, READS, remote_command
from kctl.cli.declaration.declarations import CommandGroup, Option
from kctl.cli.failures import DONE
from kctl.cli.items import row, show_results
from kctl.cli.output import OutputFormat, Table
from kctl.cli.session import Question, Session
from kctl.cli.top.commands import (
    EveryOption,
    MetricsCaOption,
    MetricsOption,
    MetricsTokenOption,
    OnceOption,
    metrics_source,
    show,
)
from kctl.cli.top.screen import View
from kctl.errors import UsageError
from kctl.runtime.terminal_text import for_log_line

if TYPE_CHECKING:
    from kctl.admin.client_quotas import QuotaChange, QuotaEntity
    from kctl.cli.session import Change
    from kctl.protocol.error_codes import ApiError

app = CommandGroup()

_COLUMNS = ("entity", "quota", "value")
_PRODUCE, _CONSUME = "producer_byte_rate", "consumer_byte_rate"
_REQUEST, _MUTATIONS = "request_percentage", "controller_mutation_rate"
KEYS = (_PRODUCE, _CONSUME, _REQUEST, _MUTATIONS)

UserOption = Annotated[
    str | None, Option("--user", metavar="NAME", help="The name of a principal, e.g. alice.")
]
ClientIdOption = Annotated[
    str | None, Option("--client-id", metavar="ID", help="The client.id of clients.")
]
DefaultUserOption = Annotated[
    bool, Option("--default-user", help="All users without a quota of their own.")
]
DefaultClientIdOption = Annotated[
    bool, Option("--default-client-id", help="All client ids without a quota of their own.")
]


def _rows(
    session: Session, change: "QuotaChange", status: str, error: "ApiError | None" = None
) -> list[dict[str, Any]]:
    rows = [
        row(
            "entity", str(change.entity), status, error, quota=key,
            before=change.before.get(key), value=value,
        )
        for key, value in change.changes.items()
    ]  # fmt: skip
    return _shown(session, rows)


@remote_command(app, "list", READS)
def list_quotas(
    session: Session,
    user: UserOption = None,
    default_user: DefaultUserOption = False,
    client_id: ClientIdOption = None,
    default_client_id: DefaultClientIdOption = False,
) -> int:
    """List quotas: all, or those of a user, of a client id, or of the defaults.

    Of several quotas that match a client, the most specific one applies; see `kctl quota set`.

    \b
    Examples:
      kctl quota list
      kctl quota list --user alice
      kctl quota list --default-client-id -o json
    """
    wanted_user = _name("--user", user, default_user)
    wanted_client = _name("--client-id", client_id, default_client_id)
    found = session.run(lambda admin: admin.quotas.describe())
    rows: list[dict[str, Any]] = [
        {
            "entity": str(entity), "user": entity.user, "client_id": entity.client_id,
            "quota": key, "value": value,
        }
        for entity, quotas in sorted(found.items(), key=lambda it: str(it[0]))
        if wanted_user in (None, entity.user) and wanted_client in (None, entity.client_id)
        for key, value in sorted(quotas.items())
    ]  # fmt: skip
    session.output.show(_shown(session, rows), _COLUMNS, name="entity")
    if not rows:
        of_some = wanted_user is not None or wanted_client is not None
        session.output.say(f"No {'such ' if of_some else ''}client has a quota.")
    return DONE


@remote_command(app, "top", READS)
def top(
    session: Session,
    every: EveryOption = "2s",
    once: OnceOption = False,
    metrics: MetricsOption = None,
    metrics_token_file: MetricsTokenOption = None,
    metrics_ca: MetricsCaOption = None,
) -> int:
    """Show which clients are throttled, live: by which quota, their rate and its limit.

    Kafka's API lists quotas, and nothing of what clients use of them: each broker measures that for
    itself, and reports it as metrics, which --metrics reads. kctl's brokers (--metrics-port) and
    those of Apache Kafka with the JMX exporter report them under the same names. Without --metrics
    there are only the quotas. The keys are those of `kctl top`, of which this is the view `quotas`.

    \b
    Examples:
      kctl quota top --metrics :9404
      kctl quota top --once -o json --metrics http://broker1:9404 --metrics http://broker2:9404
      kctl quota top --metrics :9404 --metrics-token-file token --metrics-ca ca.pem
    """
    source = metrics_source(metrics, metrics_token_file, metrics_ca)
    return show(session, View.QUOTAS, every, source, once=once)


@remote_command(app, "set", CHANGES)
def set_quotas(
    session: Session,
    user: UserOption = None,
    default_user: DefaultUserOption = False,
    client_id: ClientIdOption = None,
    default_client_id: DefaultClientIdOption = False,
    produce: Annotated[
        str | None, Option("--produce", metavar="RATE", help="Bytes a second, e.g. 10MB.")
    ] = None,
    consume: Annotated[
        str | None, Option("--consume", metavar="RATE", help="Bytes a second, e.g. 50MB.")
    ] = None,
    request: Annotated[
        str | None,
        Option("--request", metavar="PERCENT", help="Time of a broker's threads, e.g. 50."),
    ] = None,
    mutations: Annotated[
        str | None,
        Option("--mutations", metavar="RATE", help="Partitions created or deleted a second."),
    ] = None,
) -> int:
    """Set quotas of a user, a client id, or a client id of a user; others of theirs stay.

    Each broker counts for itself. Clients that a quota is set for share it: all connections of a
    user, for example. The most specific quota applies: user and client id, user, default user,
    client id, default client id.

    \b
    Examples:
      kctl quota set --user alice --produce 10MB --consume 50MB
      kctl quota set --user alice --client-id reports --consume 1MB -n
      kctl quota set --default-user --mutations 5
    """
    values = {
        _PRODUCE: _rate(produce),
        _CONSUME: _rate(consume),
        _REQUEST: _positive("--request", request),
        _MUTATIONS: _positive("--mutations", mutations),
    }
    wanted = {key: value for key, value in values.items() if value is not None}
    if not wanted:
        raise UsageError(
            "No quota to set", hint="give --produce, --consume, --request or --mutations"
        )
    entity = _entity(user, default_user, client_id, default_client_id)
    change = session.change(
        lambda admin: admin.quotas.plan_setting(entity, wanted),
        _nothing_to_ask,
        lambda admin, planned: admin.quotas.execute(planned),
    )
    return _show(session, change, "set")


@remote_command(app, "remove", DANGEROUS)
def remove_quotas(
    session: Session,
    user: UserOption = None,
    default_user: DefaultUserOption = False,
    client_id: ClientIdOption = None,
    default_client_id: DefaultClientIdOption = False,
    quota: Annotated[
        list[str] | None,
        Option("--quota", metavar="KEY", help=f"Only this one: {', '.join(KEYS)}."),
    ] = None,
) -> int:
    """Remove quotas of a user, a client id, or a client id of a user: all, or some.

    What is removed is shown first and must be confirmed.

    \b
    Examples:
      kctl quota remove --user alice
      kctl quota remove --default-client-id --quota consumer_byte_rate --yes
    """
    unknown = [key for key in quota or [] if key not in KEYS]
    if unknown:
        raise UsageError(f"No quota is called {unknown[0]}", hint=f"use one of {', '.join(KEYS)}")
    entity = _entity(user, default_user, client_id, default_client_id)

    def question(change: "QuotaChange") -> Question | None:
        if not change.changes:
            return None
        rows = _shown(
            session,
            [
                {"entity": str(entity), "quota": key, "value": change.before[key]}
                for key in change.changes
            ],
        )
        return Question(Table(_COLUMNS, rows), f"Remove quotas of {entity}?")

    change = session.change(
        lambda admin: admin.quotas.plan_removal(entity, quota),
        question,
        lambda admin, planned: admin.quotas.execute(planned),
    )
    return _show(session, change, "remove")


def _nothing_to_ask(_: "QuotaChange") -> None:
    return None


def _show(session: Session, change: "Change[QuotaChange, ApiError | None]", done: str) -> int:
    planned = change.plan
    if not planned.changes:
        session.output.say(for_log_line(f"{planned.entity} has no such quota."))
    status = f"would {done}" if session.dry_run else {"remove": "removed"}.get(done, done)
    if change.is_declined:
        return DONE
    return show_results(session, _rows(session, planned, status, change.result), "entity")


def _entity(
    user: str | None, default_user: bool, client_id: str | None, default_client_id: bool
) -> "QuotaEntity":
    from kctl.admin.client_quotas import QuotaEntity

    entity = QuotaEntity(
        _name("--user", user, default_user), _name("--client-id", client_id, default_client_id)
    )
    if entity == QuotaEntity():
        raise UsageError(
            "Whose quota?",
            hint="give --user, --client-id, --default-user or --default-client-id",
        )
    return entity


def _name(option: str, name: str | None, is_default: bool) -> str | None:
    from kctl.admin.client_quotas import DEFAULT_ENTITY

    if name is not None and is_default:
        raise UsageError(f"{option} and --default-{option[2:]} exclude each other")
    if name == "":
        raise UsageError(f"{option} needs a name")
    return DEFAULT_ENTITY if is_default else name


def _rate(text: str | None) -> float | None:
    from kctl.cli.units import parse_rate

    if text is None:
        return None
    hint = "e.g. 10MB; kctl quota remove removes a quota"
    return float(parse_rate(text, zero="stops clients", hint=hint))


def _positive(option: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise UsageError(f"{option} must be a number above 0, not {text!r}")
    return value


def _shown(session: Session, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of quotas: in a table with units, else as numbers."""
    if session.output.format is not OutputFormat.TABLE:
        return rows
    return [
        {name: _text(it["quota"], value) if name in ("before", "value") else value
         for name, value in it.items()}
        for it in rows
    ]  # fmt: skip


def _text(key: str, value: float | None) -> str | None:
    """Return a quota with its unit, for people."""
    from kctl.cli.units import format_bytes

    if value is None:
        return None
    if key in (_PRODUCE, _CONSUME):
        return f"{format_bytes(int(value))}/s"
    return f"{value:.12g} %" if key == _REQUEST else f"{value:.12g}/s"
