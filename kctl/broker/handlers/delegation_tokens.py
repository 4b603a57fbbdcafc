"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, DescribeDelegationToken.

Behaviour:
- Tokens may be requested on authenticated connections only, and not on those that a token
  authenticated: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
- A broker without delegation.token.master.key returns DELEGATION_TOKEN_AUTH_DISABLED.
- Any broker handles them. Owners and renewers renew, expire and describe a token; others describe
  it if they have Describe on DelegationToken.
- Renewers are of principal type User, else INVALID_PRINCIPAL_TYPE.

Versions: 0-2. v2 flexible.

Kafka 2.7: KafkaApis.handleCreateTokenRequest and the three after it; KIP-48.
"""

from collections.abc import Callable, Coroutine, Set
from typing import Any

from kctl.broker.delegation_tokens import DelegationToken, DelegationTokens, is_owner_or_renewer
from kctl.broker.replies import reply_from
from kctl.broker.request import ANONYMOUS, Request, RequestContext
from kctl.broker.services import Services
from kctl.model import SecurityProtocol
from kctl.protocol.acl import AclOperation, ResourceType
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kctl.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from kctl.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from kctl.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from kctl.runtime.turns import pace_of
from kctl.store.errors import StoreError
from kctl.store.security_znodes import TokenInformation
from kctl.work import Pace, parts

NO_TIMESTAMP = -1
# Cost of looking at a token, and of a description without its renewers, in units of `Pace`.
_LOOK_UNITS = 4
_DESCRIBED_UNITS = 3
# Renewers that a unit compares, and that it reads or describes.
_COMPARED_PER_UNIT = 50
_RENEWERS_PER_UNIT = 3
# Renewers that are read or described without a turn for others.
_RENEWERS_PER_PART = 300
_USER = "User"


def handle_create_delegation_token(services: Services, request: Request) -> None:
    """Reply when the token is in the store."""
    _reply_from(services, request, _create(services, request), "create-token")


async def _create(services: Services, request: Request) -> None:
    body: CreateDelegationTokenRequest = request.body
    principal = request.context.principal
    principal_type, _, principal_name = principal.partition(":")
    response = CreateDelegationTokenResponse(
        principal_type=principal_type,
        principal_name=principal_name,
        issue_timestamp_ms=NO_TIMESTAMP,
        expiry_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=NO_TIMESTAMP,
    )
    try:
        _check_is_allowed(request.context)
        renewers = await _read_renewers(body, pace_of(services.runtime.scheduler))
        created = await _tokens(services).create(principal, renewers, body.max_lifetime_ms)
    except (ApiError, StoreError) as error:
        response.error_code = _code_of(error)
    else:
        token = created.information
        response.issue_timestamp_ms = token.issue_timestamp_ms
        response.expiry_timestamp_ms = token.expiry_timestamp_ms
        response.max_timestamp_ms = token.max_timestamp_ms
        response.token_id, response.hmac = token.token_id, created.hmac
    request.reply(response)


async def _read_renewers(body: CreateDelegationTokenRequest, pace: Pace) -> list[str]:
    """Return the renewers as `User:name`; raise ApiError if one is no user."""
    renewers: list[str] = []
    for part in parts(body.renewers, _RENEWERS_PER_PART):
        await pace.spend(len(part) // _RENEWERS_PER_UNIT)
        if any(renewer.principal_type != _USER for renewer in part):
            raise ApiError(ErrorCode.INVALID_PRINCIPAL_TYPE)
        renewers += [f"{it.principal_type}:{it.principal_name}" for it in part]
    return renewers


def handle_renew_delegation_token(services: Services, request: Request) -> None:
    """Reply when the new expiry time is in the store."""
    body: RenewDelegationTokenRequest = request.body
    moving = _move_expiry(
        services, request, RenewDelegationTokenResponse, DelegationTokens.renew,
        body.hmac, body.renew_period_ms,
    )  # fmt: skip
    _reply_from(services, request, moving, "renew-token")


def handle_expire_delegation_token(services: Services, request: Request) -> None:
    """Reply when the new expiry time is in the store, or the token is deleted."""
    body: ExpireDelegationTokenRequest = request.body
    moving = _move_expiry(
        services, request, ExpireDelegationTokenResponse, DelegationTokens.expire,
        body.hmac, body.expiry_time_period_ms,
    )  # fmt: skip
    _reply_from(services, request, moving, "expire-token")


async def _move_expiry(
    services: Services,
    request: Request,
    response_class: type[RenewDelegationTokenResponse | ExpireDelegationTokenResponse],
    move: Callable[[DelegationTokens, str, bytes, int], Coroutine[Any, Any, int]],
    secret: bytes,
    period_ms: int,
) -> None:
    """Reply with the expiry that `move` returns; it renews or expires the token with `secret`."""
    response = response_class(expiry_timestamp_ms=NO_TIMESTAMP)
    try:
        _check_is_allowed(request.context)
        response.expiry_timestamp_ms = await move(
            _tokens(services), request.context.principal, bytes(secret), period_ms
        )
    except (ApiError, StoreError) as error:
        response.error_code = _code_of(error)
    request.reply(response)


def handle_describe_delegation_token(services: Services, request: Request) -> None:
    """Reply when all tokens have been looked at."""
    _reply_from(services, request, _describe(services, request), "describe-tokens")


async def _describe(services: Services, request: Request) -> None:
    body: DescribeDelegationTokenRequest = request.body
    response = DescribeDelegationTokenResponse()
    try:
        _check_is_allowed(request.context)
        tokens = _tokens(services)
        all_tokens = tokens.tokens()
    except ApiError as error:
        request.reply(DescribeDelegationTokenResponse(error_code=error.code))
        return
    owners = None
    if body.owners is not None:
        owners = {f"{owner.principal_type}:{owner.principal_name}" for owner in body.owners}
    pace = pace_of(services.runtime.scheduler)
    for token in all_tokens:
        await pace.spend(_LOOK_UNITS + len(token.renewers) // _COMPARED_PER_UNIT)
        if _is_visible(request, token, owners):
            response.tokens.append(await _described(tokens.with_secret(token), pace))
    request.reply(response)


def _tokens(services: Services) -> DelegationTokens:
    """Return the broker's tokens; raise ApiError if they are not configured."""
    if services.delegation_tokens is None:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return services.delegation_tokens


def _is_visible(request: Request, token: TokenInformation, owners: Set[str] | None) -> bool:
    if owners is not None and token.owner not in owners and owners.isdisjoint(token.renewers):
        return False
    return is_owner_or_renewer(token, request.context.principal) or request.access.allows(
        AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id
    )


async def _described(token: DelegationToken, pace: Pace) -> DescribedDelegationToken:
    information = token.information
    principal_type, _, principal_name = information.owner.partition(":")
    renewers: list[DescribedDelegationTokenRenewer] = []
    await pace.spend(_DESCRIBED_UNITS)
    for part in parts(information.renewers, _RENEWERS_PER_PART):
        await pace.spend(len(part) // _RENEWERS_PER_UNIT)
        names = (renewer.partition(":") for renewer in part)
        renewers += [
            DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, _, name in names
        ]
    return DescribedDelegationToken(
        principal_type=principal_type,
        principal_name=principal_name,
        issue_timestamp=information.issue_timestamp_ms,
        expiry_timestamp=information.expiry_timestamp_ms,
        max_timestamp=information.max_timestamp_ms,
        token_id=information.token_id,
        hmac=token.hmac,
        renewers=renewers,
    )


def _reply_from(
    services: Services, request: Request, reply: Coroutine[Any, Any, None], name: str
) -> None:
    reply_from(services.runtime.scheduler, request, reply, name)


def _check_is_allowed(context: RequestContext) -> None:
    """Raise ApiError unless the connection is authenticated, and not by a token."""
    is_anonymous = (
        context.security_protocol is SecurityProtocol.SSL and context.principal == ANONYMOUS
    )
    is_plaintext = context.security_protocol is SecurityProtocol.PLAINTEXT
    if is_anonymous or is_plaintext or context.is_token_authenticated:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def _code_of(error: ApiError | StoreError) -> int:
    return error.code if isinstance(error, ApiError) else ErrorCode.UNKNOWN_SERVER_ERROR
