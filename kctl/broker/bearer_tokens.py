"""BearerTokens: checks the tokens of OAUTHBEARER, and fetches the keys that signed ones need.

The keys of all listeners are fetched before the first client can connect, then periodically. A
token with a key id that is not in the set causes another fetch, at most one a minute, and is
rejected: its client succeeds when it tries again. A failed fetch keeps the keys of the last one;
without any keys every token is rejected.

KIP-768; Kafka 3.1: RefreshingHttpsJwks, ValidatorAccessTokenValidator. Kafka 2.7 has unsecured
tokens only (OAuthBearerUnsecuredValidatorCallbackHandler).
"""

from collections.abc import Iterable

from kctl.configs.oauthbearer_configs import JWKS_URL, BearerConfig
from kctl.errors import CorruptDataError, KctlError, UsageError
from kctl.protocol.sasl.bearer_token import check_signed_token, check_unsecured_token
from kctl.protocol.sasl.jwks import JwkSet, UnknownKey
from kctl.protocol.sasl.mechanism import Identity
from kctl.runtime.runtime import Runtime
from kctl.runtime.scheduler import Timer

# Minimum time between two fetches because of unknown keys.
UNKNOWN_KEY_INTERVAL_MS = 60_000


class BearerTokens:
    """The tokens that the listeners of one broker accept."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._accepts_unsecured = False
        self._sources: dict[str, _KeySource] = {}

    async def accept(self, configs: Iterable[BearerConfig]) -> None:
        """Accept the tokens of `configs` from now on, and fetch the keys that they need; raise
        UsageError, without a change, if a set cannot be fetched or is not valid."""
        configs = list(configs)
        added: dict[str, _KeySource] = {}
        for config in configs:
            url = config.jwks_url
            if url is not None and url not in self._sources and url not in added:
                added[url] = _KeySource(self._runtime, url, config.jwks_refresh_ms)
        try:
            for source in added.values():
                await source.start()
        except UsageError:
            for source in added.values():
                source.close()
            raise
        self._sources.update(added)
        accepts_unsecured = any(config.jwks_url is None for config in configs)
        if accepts_unsecured and not self._accepts_unsecured:
            self._accepts_unsecured = True
            self._runtime.trace.warning(
                "OAUTHBEARER accepts unsecured tokens: any client can log in as any user"
            )

    def close(self) -> None:
        """Stop fetching."""
        for source in self._sources.values():
            source.close()

    def identity(self, config: BearerConfig, token: str) -> Identity:
        """Return the identity of `token`; raise RejectedToken."""
        now_ms = self._runtime.clock.wall_ms()
        if config.jwks_url is None:
            valid = check_unsecured_token(token, config.rules, now_ms)
        else:
            source = self._sources[config.jwks_url]
            try:
                valid = check_signed_token(token, source.keys, config.rules, now_ms)
            except UnknownKey:
                source.key_is_unknown()
                raise
        return Identity(valid.principal, max(valid.expires_ms - now_ms, 0))


class _KeySource:
    """The keys at one URL."""

    def __init__(self, runtime: Runtime, url: str, refresh_ms: int) -> None:
        self.keys = JwkSet([])
        self._runtime = runtime
        self._url = url
        self._refresh_ms = refresh_ms
        self._timer: Timer | None = None
        self._fetched_ms = 0
        self._is_fetching = False
        self._is_closed = False

    async def start(self) -> None:
        try:
            await self._fetch()
        except KctlError as error:
            raise UsageError(f"{JWKS_URL}: {error}", hint=error.hint) from None
        self._schedule()

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def key_is_unknown(self) -> None:
        """Fetch the keys now, unless they were fetched a moment ago."""
        age_ms = self._runtime.clock.monotonic_ms() - self._fetched_ms
        if age_ms >= UNKNOWN_KEY_INTERVAL_MS and not self._is_fetching:
            self._runtime.scheduler.spawn(self._refresh(), "fetch-keys")

    def _schedule(self) -> None:
        if not self._is_closed:
            self._timer = self._runtime.scheduler.call_later(self._refresh_ms, self._on_timer)

    def _on_timer(self) -> None:
        self._schedule()
        if not self._is_fetching:
            self._runtime.scheduler.spawn(self._refresh(), "fetch-keys")

    async def _refresh(self) -> None:
        try:
            await self._fetch()
        except KctlError as error:
            self._runtime.trace.warning(f"the keys of OAUTHBEARER stay as they are: {error}")

    async def _fetch(self) -> None:
        self._is_fetching = True
        self._fetched_ms = self._runtime.clock.monotonic_ms()
        try:
            keys = JwkSet.parse(await self._runtime.web.fetch(self._url))
        except CorruptDataError as error:
            raise CorruptDataError(f"{self._url}: {error}") from None
        finally:
            self._is_fetching = False
        if not len(keys):
            raise CorruptDataError(f"{self._url} has no key that can verify signatures")
        self.keys = keys
