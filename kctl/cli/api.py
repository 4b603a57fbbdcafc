"""kctl api: sends one request of any API as JSON, and lists the APIs of both sides."""

import json
from typing import TYPE_CHECKING, Annotated, Any

from kctl.cli.declaration.command import DANGEROUS, INT16_MAX, INT32_NUMBER, Range, remote_command
from kctl.cli.declaration.declarations import Argument, CommandGroup, Option
from kctl.cli.failures import DONE, FAILED
from kctl.cli.output import OutputFormat, Table
from kctl.cli.session import Question, Session
from kctl.cli.text_files import read_text
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.admin.raw_requests import ApiSupport, RawRequest

_COLUMNS = ("name", "number", "kctl", "broker", "both")


def register(app: CommandGroup) -> None:
    """Add the command to `app`."""
    remote_command(app, "api", DANGEROUS)(api)


def api(
    session: Session,
    call: Annotated[
        str | None, Argument(metavar="CALL", help="Kafka's name of an API, or its number.")
    ] = None,
    document: Annotated[
        str, Argument(metavar="JSON", help="The fields of the request, or @FILE.")
    ] = "{}",
    version: Annotated[
        int | None,
        Option("--version", metavar="N", help="[default: the newest of both sides]"),
        Range(0, INT16_MAX),
    ] = None,
    broker: Annotated[
        int | None,
        Option("--broker", metavar="BROKER", help="Its id. [default: the controller]"),
        INT32_NUMBER,
    ] = None,
    list_apis: Annotated[
        bool, Option("--list", help="List the APIs and the versions of both sides.")
    ] = False,
) -> int:
    """Send a request of any API and print the response, both as JSON with Kafka's names of fields.
    A field that is left out has Kafka's default.

    A request that can change something is shown and must be confirmed. The exit status is 1 if the
    response has an error code. Bytes and records are base64.

    \b
    Examples:
      kctl api --list
      kctl api Metadata '{"topics": [{"name": "orders"}]}' --version 9 --broker 1
      kctl api DescribeLogDirs '{"topics": null}' --broker 2
      kctl api DeleteTopics '{"topicNames": ["t"], "timeoutMs": 5000}' --dry-run
    """
    from kctl.admin import raw_requests
    from kctl.client.read_only import is_reading

    if (call is None) != list_apis:
        raise UsageError("Missing which API to call", hint="give either CALL or --list")
    if call is None:
        found = session.run(lambda admin: raw_requests.list_apis(admin, broker))
        return _show_apis(session, found)
    rows, fields = raw_requests.find_api(call), _parse(document)
    title = rows[0].title
    _check_format(session)

    def question(request: "RawRequest") -> Question | None:
        if is_reading(request.message):
            return None
        row = {"api": title, "version": request.version, "broker": request.broker_id}
        table = Table([*row, "request"], [{**row, "request": json.dumps(request.document)}])
        return Question(table, f"Send {title} to broker {request.broker_id}?")

    change = session.change(
        lambda admin: raw_requests.make_request(admin, rows, fields, version, broker),
        question,
        raw_requests.send_request,
    )
    if change.is_declined:
        return DONE
    if session.dry_run:
        sent = change.plan
        session.output.say(f"Would send {title} v{sent.version} to broker {sent.broker_id}:")
        return _show(session, sent.document)
    if change.result is None:
        session.output.say(f"Kafka sends no response to this {title}.")
        return DONE
    return _show(session, change.result)


def _parse(text: str) -> Any:
    source = f"the file {text[1:]}" if text.startswith("@") else "JSON"
    try:
        return json.loads(read_text(text[1:]) if text.startswith("@") else text)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{source} is not valid: {error}", hint="""e.g. '{"topics": [{"name": "orders"}]}'"""
        ) from None


def _check_format(session: Session) -> None:
    if session.output.format in (OutputFormat.CSV, OutputFormat.NAME):
        raise UsageError(
            f"A response cannot be shown as {session.output.format}",
            hint="use -o json, ndjson or yaml",
        )
    if session.output.format is OutputFormat.TABLE:
        session.output.format = OutputFormat.JSON


def _show(session: Session, document: dict[str, Any]) -> int:
    from kctl.admin.raw_requests import error_codes_in

    session.output.show_one(document, [], name="")
    errors = list(error_codes_in(document))
    for path, code in errors:
        session.output.say(f"error: {path} is {code:d}, {code.name}: {code.text}")
    return FAILED if errors else DONE


def _show_apis(session: Session, found: "list[ApiSupport]") -> int:
    documents = [
        {
            "name": it.name,
            "number": it.number,
            "kctl": _versions(it.kctl),
            "broker": _versions(it.broker),
            "both": _versions(it.common),
        }
        for it in found
    ]
    if session.output.format is OutputFormat.NAME:
        documents = [it for it in documents if it["both"]]
    session.output.show(documents, _COLUMNS, name="name")
    return DONE


def _versions(versions: Any) -> str | None:
    return None if versions is None else str(versions).replace(" to ", "-")
