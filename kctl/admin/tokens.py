"""TokenAdmin: delegation tokens, with which clients act for a user without his password.

Only connections with SASL or client certificates may use these operations, and none that a token
authenticated.

Kafka 2.7: kafka.admin.DelegationTokenCommand; KIP-48
"""

import base64
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from kctl.client.results import raise_for
from kctl.errors import NotFoundError
from kctl.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from kctl.client.router import Router

__all__ = ["DelegationToken", "TokenAdmin"]

_USER = "User"
# Negative: the broker's own period; or, to expire a token, at once.
BROKERS_PERIOD = AT_ONCE = -1


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token; times are milliseconds since the epoch, principals `User:name`."""

    token_id: str
    owner: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int
    # What authenticates: the password of a SCRAM login, decoded.
    hmac: bytes = field(repr=False)

    @property
    def password(self) -> str:
        """Return the password of a SCRAM login with this token."""
        return base64.b64encode(self.hmac).decode()


class TokenAdmin:
    """The delegation tokens of one cluster."""

    def __init__(self, router: "Router") -> None:
        self._router = router

    async def create_token(
        self, renewers: Sequence[str] = (), max_lifetime_ms: int = BROKERS_PERIOD
    ) -> DelegationToken:
        """Create a token of the authenticated user and return it; raise ApiError.

        `renewers` are names of users. Without a maximum lifetime it is the broker's.
        """
        from kctl.protocol.messages.create_delegation_token import (
            CreatableRenewers,
            CreateDelegationTokenRequest,
        )

        request = CreateDelegationTokenRequest(
            renewers=[
                CreatableRenewers(principal_type=_USER, principal_name=name) for name in renewers
            ],
            max_lifetime_ms=max_lifetime_ms,
        )
        response = await self._router.send_to_any(request)
        raise_for(response.error_code)
        return DelegationToken(
            response.token_id,
            f"{response.principal_type}:{response.principal_name}",
            tuple(f"{_USER}:{name}" for name in renewers),
            response.issue_timestamp_ms,
            response.expiry_timestamp_ms,
            response.max_timestamp_ms,
            bytes(response.hmac),
        )

    async def list_tokens(self, owners: Iterable[str] | None = None) -> list[DelegationToken]:
        """Return the tokens that the user may see, or those of `owners`, names of users; raise
        ApiError."""
        from kctl.protocol.messages.describe_delegation_token import (
            DescribeDelegationTokenOwner,
            DescribeDelegationTokenRequest,
        )

        wanted = None
        if owners is not None:
            wanted = [
                DescribeDelegationTokenOwner(principal_type=_USER, principal_name=name)
                for name in owners
            ]
        response = await self._router.send_to_any(DescribeDelegationTokenRequest(owners=wanted))
        raise_for(response.error_code)
        return [_token_of(it) for it in response.tokens]

    async def find_token(self, token_id: str) -> DelegationToken:
        """Return a token that the user may see; raise NotFoundError or ApiError."""
        for token in await self.list_tokens():
            if token.token_id == token_id:
                return token
        raise NotFoundError(
            f"No delegation token {token_id}",
            hint="kctl token list shows the tokens of this user",
        )

    async def renew_token(self, token: DelegationToken, period_ms: int = BROKERS_PERIOD) -> int:
        """Move the expiry of a token to `period_ms` from now, by default the broker's period, and
        return it; raise ApiError."""
        from kctl.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest

        request = RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=period_ms)
        return await self._expiry(request)

    async def expire_token(self, token: DelegationToken, period_ms: int = AT_ONCE) -> int:
        """Move the expiry of a token to `period_ms` from now, by default delete it, and return the
        expiry; raise ApiError."""
        from kctl.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest

        request = ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=period_ms)
        return await self._expiry(request)

    async def _expiry(self, request: Any) -> int:
        response = await self._router.send_to_any(request)
        raise_for(response.error_code)
        return int(response.expiry_timestamp_ms)


def _token_of(described: Any) -> DelegationToken:
    return DelegationToken(
        described.token_id,
        f"{described.principal_type}:{described.principal_name}",
        tuple(f"{it.principal_type}:{it.principal_name}" for it in described.renewers),
        described.issue_timestamp,
        described.expiry_timestamp,
        described.max_timestamp,
        bytes(described.hmac),
    )
