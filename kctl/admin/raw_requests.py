"""Sends single requests of any API as JSON, to one broker and without retries; lists the APIs.

A request goes to the broker that the caller names, else to the controller, which answers every
request that is not about one broker's partitions or groups. Kafka 2.7: org.apache.kafka.common.
requests.ApiVersionsResponse for the list; KIP-35.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kctl import __version__
from kctl.client.broker_channel import SOFTWARE_NAME
from kctl.client.results import raise_for
from kctl.errors import UnsupportedVersionError, UsageError, close_name, not_found
from kctl.lazy_dataclass import dataclass
from kctl.protocol.api_keys import Api, ApiKey
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.json_form import from_json, to_json
from kctl.protocol.later_apis import LaterApi
from kctl.protocol.messages.api_versions import ApiVersionsRequest
from kctl.protocol.negotiation import VersionRange

if TYPE_CHECKING:
    from kctl.admin.admin_client import AdminClient
    from kctl.client.broker_channel import BrokerChannel
    from kctl.protocol.schema import Message


@dataclass(frozen=True, slots=True)
class RawRequest:
    """A request that is ready to be sent to one broker."""

    api: Api
    version: int
    broker_id: int
    message: "Message"

    @property
    def document(self) -> dict[str, Any]:
        """Return the request as JSON, with the defaults of fields that were left out."""
        return to_json(self.message, self.version)


@dataclass(frozen=True, slots=True)
class ApiSupport:
    """An API and its versions; None if a side does not know it."""

    # None for an API that only the broker knows.
    name: str | None
    number: int
    kctl: VersionRange | None
    broker: VersionRange | None

    @property
    def common(self) -> VersionRange | None:
        """Return the versions that both sides support, or None."""
        return self.kctl.common(self.broker) if self.kctl and self.broker else None


def find_api(name: str) -> list[Api]:
    """Return the API with Kafka's name or number, as rows of versions: those of Kafka 2.7, then the
    later ones. Raise UsageError if kctl does not know it."""
    known: list[Api] = [*ApiKey, *LaterApi]
    found = [it for it in known if name.lower() == it.title.lower() or name == str(int(it))]
    if found:
        return found
    near = close_name(name, [api.title for api in known])
    raise UsageError(
        f"kctl knows no API {name}",
        hint=f"did you mean {near}?" if near else "kctl api --list shows the names",
    )


async def make_request(
    admin: "AdminClient",
    rows: Sequence[Api],
    document: object,
    version: int | None = None,
    broker_id: int | None = None,
) -> RawRequest:
    """Return the request that `document`, parsed JSON, describes; nothing is sent yet. `rows` are
    the versions of its API, from `find_api`.

    Without a version it is the newest that both sides support. Raise UsageError for a wrong field,
    UnsupportedVersionError for a version that a side lacks, NotFoundError for an unknown broker.
    """
    broker_id, channel = await _connect(admin, broker_id)
    title = rows[0].title
    if version is None:
        supported = [it for it in rows if channel.has_api(it, it.min_version)]
        if not supported:
            raise UnsupportedVersionError(f"Broker {broker_id} does not support {title}")
        api = supported[-1]
        chosen = channel.version_of(api)
    else:
        fitting = [it for it in rows if it.min_version <= version <= it.max_version]
        if not fitting:
            raise UsageError(
                f"kctl knows {title} {_versions(rows)}, not {version}",
                hint="kctl api --list shows the versions of both sides",
            )
        [api], chosen = fitting, version
    message: Message = from_json(api.request_class, chosen, document)
    return RawRequest(api, chosen, broker_id, message)


async def send_request(admin: "AdminClient", request: RawRequest) -> dict[str, Any] | None:
    """Send a request and return the response as JSON; None if Kafka sends none (Produce with acks
    0). Raise UnreachableError, TimedOutError."""
    _, channel = await _connect(admin, request.broker_id)
    response = await channel.send(request.message, request.version, admin.router.timeout_ms)
    return None if response is None else to_json(response, request.version)


async def list_apis(admin: "AdminClient", broker_id: int | None = None) -> list[ApiSupport]:
    """Return every API that kctl or the broker knows, by number."""
    _, channel = await _connect(admin, broker_id)
    request = ApiVersionsRequest(
        client_software_name=SOFTWARE_NAME, client_software_version=__version__
    )
    response = await channel.send(request, timeout_ms=admin.router.timeout_ms)
    raise_for(response.error_code)
    theirs = {it.api_key: VersionRange(it.min_version, it.max_version) for it in response.api_keys}
    known: list[Api] = [*ApiKey, *LaterApi]
    names = {int(api): api.title for api in known}
    ours = {number: _versions([it for it in known if int(it) == number]) for number in names}
    return [
        ApiSupport(names.get(number), number, ours.get(number), theirs.get(number))
        for number in sorted({*ours, *theirs})
    ]


def error_codes_in(document: object, path: str = "") -> Iterator[tuple[str, ErrorCode]]:
    """Yield the path and code of every error in a response."""
    if isinstance(document, dict):
        for key, value in document.items():
            inner = f"{path}.{key}".removeprefix(".")
            if key == "errorCode" and value:
                yield inner, ErrorCode(value)
            else:
                yield from error_codes_in(value, inner)
    elif isinstance(document, list):
        for index, value in enumerate(document):
            yield from error_codes_in(value, f"{path}[{index}]")


def _versions(rows: Sequence[Api]) -> VersionRange:
    return VersionRange(rows[0].min_version, rows[-1].max_version)


async def _connect(admin: "AdminClient", broker_id: int | None) -> tuple[int, "BrokerChannel"]:
    view = await admin.router.refresh([])
    controller = view.controller()
    if broker_id is None:
        broker_id = controller.broker_id if controller else min(view.brokers)
    address = view.brokers.get(broker_id)
    if address is None:
        raise not_found("broker", broker_id, sorted(view.brokers))
    return broker_id, await admin.router.channel_to(address)
