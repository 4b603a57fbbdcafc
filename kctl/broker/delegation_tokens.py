"""DelegationTokens: the delegation tokens of the cluster, as this broker knows them.

A token authenticates its owner by SCRAM: its id is the user name, and the base64 of its HMAC, made
of the id with the master key that all brokers share, the password. The store has no secrets. The
SCRAM credentials of a token are derived when it is loaded, off the loop: they take milliseconds.

A token expires at its expiry time, which its owner and its renewers may move up to its maximum
time. It does not authenticate from then on; the controller deletes it.

Kafka 2.7: kafka.server.DelegationTokenManager, DelegationTokenCache; KIP-48.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from kctl.broker.announced_changes import AnnouncedChanges
from kctl.configs.broker_config import BrokerConfig
from kctl.errors import CorruptDataError
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.sasl.mechanism import Identity
from kctl.protocol.sasl.scram import (
    ITERATIONS_MIN,
    SALT_BYTES,
    ScramCredential,
    ScramMechanism,
    TokenCredential,
    credential_of_password,
)
from kctl.runtime.runtime import Runtime
from kctl.runtime.scheduler import Timer
from kctl.runtime.turns import pace_of
from kctl.store.cluster_store import ClusterStore
from kctl.store.errors import NoNodeError, StoreError
from kctl.store.security_znodes import TOKEN_CHANGES, TokenInformation

_ID_BYTES = 16
# What the deletion of an expired token takes, in units of Pace.
UNITS_PER_DELETION = 50

Credentials = dict[ScramMechanism, ScramCredential]


class DelegationToken(NamedTuple):
    """A token and its secret."""

    information: TokenInformation
    hmac: bytes

    def __repr__(self) -> str:
        return f"DelegationToken({self.information.token_id})"


class DelegationTokens:
    """The tokens of one cluster, for brokers with `delegation.token.master.key`."""

    def __init__(self, runtime: Runtime, config: BrokerConfig, cluster_store: ClusterStore) -> None:
        self._runtime = runtime
        self._store = cluster_store
        self._key = (config.delegation_token_master_key or "").encode()
        self._max_lifetime_ms = config.delegation_token_max_lifetime_ms
        self._renewal_ms = config.delegation_token_expiry_time_ms
        self._check_interval_ms = config.delegation_token_expiry_check_interval_ms
        self._tokens: dict[str, TokenInformation] = {}
        self._credentials: dict[str, Credentials] = {}
        # Fingerprint of a token's HMAC -> its id.
        self._ids: dict[bytes, str] = {}
        self._changes = AnnouncedChanges(
            runtime,
            cluster_store,
            "delegation tokens",
            [TOKEN_CHANGES],
            self._read_changes,
            self._reload,
        )
        self._timer: Timer | None = None

    @property
    def is_enabled(self) -> bool:
        """Return whether the broker has a master key."""
        return bool(self._key)

    # --- start and end

    async def start(self) -> None:
        """Load all tokens and watch for changes, if tokens are enabled; StoreError."""
        if not self.is_enabled:
            return
        await self._store.create_token_paths()
        await self._changes.start(self._reload)

    def close(self) -> None:
        """Stop deleting expired tokens."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def sweep_while(self, is_controller: Callable[[], bool]) -> None:
        """Delete expired tokens periodically while `is_controller()`."""
        if self.is_enabled:
            self._timer = self._runtime.scheduler.call_later(
                self._check_interval_ms, self._on_timer, is_controller
            )

    # --- logins

    def credential(self, mechanism: ScramMechanism, token_id: str) -> TokenCredential | None:
        """Return what a token authenticates with, and its owner; None if it does not exist or has
        expired."""
        token = self._tokens.get(token_id)
        credentials = self._credentials.get(token_id)
        now_ms = self._now_ms()
        if token is None or credentials is None or _has_expired(token, now_ms):
            return None
        owner = token.owner.partition(":")[2]
        remaining_ms = token.expiry_timestamp_ms - now_ms
        return TokenCredential(
            credentials[mechanism], Identity(owner, remaining_ms, is_token_authenticated=True)
        )

    # --- requests

    async def create(
        self, owner: str, renewers: Sequence[str], max_lifetime_ms: int
    ) -> DelegationToken:
        """Create a token of `owner`; a maximum lifetime that is not positive is the broker's. Raise
        ApiError or StoreError. Principals are `User:name`."""
        self._check_enabled()
        now_ms = self._now_ms()
        token_id = self._new_id()
        limit_ms = self._max_lifetime_ms
        lifetime_ms = min(max_lifetime_ms, limit_ms) if max_lifetime_ms > 0 else limit_ms
        expiry_ms = now_ms + min(lifetime_ms, self._renewal_ms)
        token = TokenInformation(
            token_id, owner, tuple(renewers), now_ms, expiry_ms, now_ms + lifetime_ms
        )
        await self._store.set_token(token)
        await self._learn(token)
        self._runtime.trace.info(f"created delegation token {token_id} of {owner}")
        return self.with_secret(token)

    def _new_id(self) -> str:
        """Return a random id without a hyphen in front: command lines take that for an option."""
        token_id = "-"
        while token_id.startswith("-"):
            random = self._runtime.entropy.random_bytes(_ID_BYTES)
            token_id = base64.urlsafe_b64encode(random).rstrip(b"=").decode()
        return token_id

    async def renew(self, principal: str, secret: bytes, period_ms: int) -> int:
        """Move a token's expiry to `period_ms` from now, if negative to the broker's period; return
        the expiry. Raise ApiError or StoreError."""
        token = self._usable(principal, secret)
        return await self._expire_in(token, self._renewal_ms if period_ms < 0 else period_ms)

    async def expire(self, principal: str, secret: bytes, period_ms: int) -> int:
        """Move a token's expiry to `period_ms` from now, or delete it if that is negative; return
        the expiry. Raise ApiError or StoreError."""
        token = self._usable(principal, secret)
        if period_ms >= 0:
            return await self._expire_in(token, period_ms)
        now_ms = self._now_ms()
        await self._delete(token)
        return now_ms

    def tokens(self) -> list[TokenInformation]:
        """Return all tokens, sorted by id; raise ApiError."""
        self._check_enabled()
        return [token for _, token in sorted(self._tokens.items())]

    def with_secret(self, token: TokenInformation) -> DelegationToken:
        """Return a token with its secret."""
        return DelegationToken(token, self._hmac(token.token_id))

    # --- inside

    def _check_enabled(self) -> None:
        if not self.is_enabled:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)

    def _usable(self, principal: str, secret: bytes) -> TokenInformation:
        """Return the unexpired token with `secret`, which `principal` may renew."""
        self._check_enabled()
        token_id = self._ids.get(_fingerprint(secret), "")
        if not hmac.compare_digest(self._hmac(token_id), secret):
            raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        token = self._tokens[token_id]
        if not is_owner_or_renewer(token, principal):
            raise ApiError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        if _has_expired(token, self._now_ms()):
            raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        return token

    async def _expire_in(self, token: TokenInformation, period_ms: int) -> int:
        expiry_ms = min(token.max_timestamp_ms, self._now_ms() + period_ms)
        moved = token._replace(expiry_timestamp_ms=expiry_ms)
        try:
            await self._store.update_token(moved)
        except NoNodeError:
            # Deleted meanwhile, maybe by another broker: a renewal must not undo that.
            self._forget(token.token_id)
            raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND) from None
        await self._learn(moved)
        return expiry_ms

    async def _delete(self, token: TokenInformation) -> None:
        await self._store.delete_token(token.token_id)
        self._forget(token.token_id)
        self._runtime.trace.info(f"deleted delegation token {token.token_id} of {token.owner}")

    async def _learn(self, token: TokenInformation) -> None:
        if token.token_id not in self._credentials:
            password = base64.b64encode(self._hmac(token.token_id)).decode()
            salt = self._runtime.entropy.random_bytes(SALT_BYTES)
            self._credentials[token.token_id] = await self._runtime.scheduler.background(
                partial(_derived, password, salt)
            )
        self._tokens[token.token_id] = token
        self._ids[_fingerprint(self._hmac(token.token_id))] = token.token_id

    def _forget(self, token_id: str) -> None:
        self._tokens.pop(token_id, None)
        self._credentials.pop(token_id, None)
        self._ids.pop(_fingerprint(self._hmac(token_id)), None)

    def _hmac(self, token_id: str) -> bytes:
        return hmac.digest(self._key, token_id.encode(), hashlib.sha512)

    def _now_ms(self) -> int:
        return self._runtime.clock.wall_ms()

    # --- expiry

    def _on_timer(self, is_controller: Callable[[], bool]) -> None:
        self.sweep_while(is_controller)
        if is_controller():
            self._runtime.scheduler.spawn(self._sweep(), "expired-tokens")

    async def _sweep(self) -> None:
        now_ms = self._now_ms()
        pace = pace_of(self._runtime.scheduler)
        for token in [it for it in self._tokens.values() if _has_expired(it, now_ms)]:
            await pace.spend(UNITS_PER_DELETION)
            try:
                await self._delete(token)
            except StoreError as error:
                self._runtime.trace.warning(f"cannot delete expired tokens: {error}")
                return

    # --- changes by other brokers

    async def _read_changes(self, _directory: str, names: Sequence[str]) -> None:
        await self._load(await self._store.get_token_changes(names))

    async def _reload(self) -> None:
        stored = await self._store.get_token_ids()
        await self._load(dict.fromkeys([*stored, *self._tokens]))

    async def _load(self, token_ids: Iterable[str]) -> None:
        pace = pace_of(self._runtime.scheduler)
        for token_id in token_ids:
            try:
                token = await self._store.get_token(token_id)
            except CorruptDataError as error:
                self._runtime.trace.warning(f"delegation token {token_id} is ignored: {error}")
                token = None
            if token is None:
                self._forget(token_id)
            else:
                await pace.spend(len(token.renewers))
                await self._learn(token)


def is_owner_or_renewer(token: TokenInformation, principal: str) -> bool:
    """Return whether `principal` may renew the token."""
    return principal == token.owner or principal in token.renewers


def _has_expired(token: TokenInformation, now_ms: int) -> bool:
    return min(token.max_timestamp_ms, token.expiry_timestamp_ms) < now_ms


def _fingerprint(secret: bytes) -> bytes:
    """Return a key to look up `secret` by, whose timing reveals nothing about other secrets."""
    return hashlib.sha256(secret).digest()


def _derived(password: str, salt: bytes) -> Credentials:
    return {
        mechanism: credential_of_password(mechanism, password, salt, ITERATIONS_MIN)
        for mechanism in ScramMechanism
    }
