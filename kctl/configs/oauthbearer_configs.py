"""The configs of OAUTHBEARER: what a broker requires of tokens, and where logins get theirs. Pure.

Kafka 2.7 has unsecured tokens only, configured by JAAS options. The configs for signed tokens came
with Kafka 3.1 and have its names; librdkafka uses the same or similar ones. Handler classes that
are named in configs are not loaded.

KIP-255, KIP-768, KIP-1139; Kafka 2.7: OAuthBearerUnsecuredValidatorCallbackHandler,
OAuthBearerUnsecuredLoginCallbackHandler.
"""

from collections.abc import Callable, Mapping
from typing import Any

from kctl.configs.config_key import ConfigKey, ConfigType
from kctl.configs.urls import check_url
from kctl.counts import is_whole_number
from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass
from kctl.protocol.sasl.bearer_token import TokenRules
from kctl.protocol.sasl.jaas import JaasConfig
from kctl.protocol.sasl.login import BearerLogin, Claim, ClientCredentials

JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
# JAAS option of a broker that accepts unsecured tokens; not an option of Apache Kafka.
UNSECURED = "unsecured"

OAUTHBEARER_CONFIGS: Mapping[str, ConfigKey] = {
    key.name: key
    for key in (
        ConfigKey(JWKS_URL, ConfigType.STRING, None),
        ConfigKey("sasl.oauthbearer.jwks.endpoint.refresh.ms", ConfigType.LONG, 3_600_000, 1),
        ConfigKey("sasl.oauthbearer.expected.audience", ConfigType.LIST, []),
        ConfigKey("sasl.oauthbearer.expected.issuer", ConfigType.STRING, None),
        ConfigKey("sasl.oauthbearer.clock.skew.seconds", ConfigType.INT, 30, 0),
        ConfigKey("sasl.oauthbearer.scope.claim.name", ConfigType.STRING, "scope"),
        ConfigKey("sasl.oauthbearer.sub.claim.name", ConfigType.STRING, "sub"),
        ConfigKey(TOKEN_URL, ConfigType.STRING, None),
        ConfigKey("sasl.oauthbearer.scope", ConfigType.STRING, ""),
    )
}


@dataclass(frozen=True, slots=True)
class BearerConfig:
    """What a listener requires of tokens."""

    rules: TokenRules
    # Where the keys of signed tokens are; None: tokens are unsecured.
    jwks_url: str | None = None
    jwks_refresh_ms: int = 3_600_000


def is_oauthbearer_config(name: str) -> bool:
    """Return whether `name` is a config of OAUTHBEARER that Kafka 2.7 does not have."""
    return name in OAUTHBEARER_CONFIGS


def bearer_config(
    listener: str, lookup: Callable[[str], str | None], jaas: JaasConfig | None
) -> BearerConfig:
    """Return what a listener requires of tokens; raise UsageError unless it is configured for
    either signed or unsecured tokens.

    `lookup` returns the text of a config of the listener.
    """
    options = {} if jaas is None else jaas.options
    jwks_url = _value(JWKS_URL, lookup)
    is_unsecured = options.get(UNSECURED, "").lower() == "true"
    if (jwks_url is not None) == is_unsecured:
        raise UsageError(
            f"Listener {listener}: OAUTHBEARER accepts signed tokens or unsecured ones: "
            + ("both are configured" if is_unsecured else "neither is configured"),
            hint=f"set {JWKS_URL} to a file or https URL; for development,"
            f" {UNSECURED}=true in the sasl.jaas.config of the listener lets any client in",
        )
    if jwks_url is None:
        return BearerConfig(_unsecured_rules(options))
    check_url(jwks_url, JWKS_URL)
    rules = TokenRules(
        principal_claim=_value("sasl.oauthbearer.sub.claim.name", lookup),
        scope_claim=_value("sasl.oauthbearer.scope.claim.name", lookup),
        clock_skew_ms=_value("sasl.oauthbearer.clock.skew.seconds", lookup) * 1000,
        audiences=tuple(_value("sasl.oauthbearer.expected.audience", lookup)),
        issuer=_value("sasl.oauthbearer.expected.issuer", lookup),
    )
    return BearerConfig(
        rules, jwks_url, _value("sasl.oauthbearer.jwks.endpoint.refresh.ms", lookup)
    )


def bearer_login(
    lookup: Callable[[str], str | None], jaas: JaasConfig | None
) -> BearerLogin | None:
    """Return the login that configs and JAAS options describe; None if they describe none.

    `lookup` returns the text of a config. Raise UsageError for contradictions.
    """
    options = {} if jaas is None else jaas.options
    url = _value(TOKEN_URL, lookup)
    if url is None:
        return _unsecured_login(options)
    client_id, secret = options.get("clientId"), options.get("clientSecret")
    client_id = client_id or lookup("sasl.oauthbearer.client.credentials.client.id")
    secret = secret or lookup("sasl.oauthbearer.client.credentials.client.secret")
    scope = options.get("scope") or _value("sasl.oauthbearer.scope", lookup)
    check_url(url, TOKEN_URL)
    if not url.startswith("file:") and not (client_id and secret):
        raise UsageError(
            f"{TOKEN_URL} needs a client id and a client secret",
            hint="set clientId and clientSecret in sasl.jaas.config, or"
            " sasl.oauthbearer.client.credentials.client.id and .secret",
        )
    return BearerLogin(
        credentials=ClientCredentials(url, client_id or "", secret or "", scope),
        extensions=_with_prefix(options, "extension_"),
    )


def _unsecured_rules(options: Mapping[str, str]) -> TokenRules:
    prefix = "unsecuredValidator"
    skew = options.get(f"{prefix}AllowableClockSkewMs", "").strip() or "0"
    if not is_whole_number(skew):
        raise UsageError(f"{prefix}AllowableClockSkewMs={skew} is not a number of milliseconds")
    return TokenRules(
        principal_claim=options.get(f"{prefix}PrincipalClaimName", "").strip() or "sub",
        scope_claim=options.get(f"{prefix}ScopeClaimName", "").strip() or "scope",
        required_scope=tuple(options.get(f"{prefix}RequiredScope", "").split()),
        clock_skew_ms=int(skew),
    )


_SECONDS = "unsecuredLoginLifetimeSeconds"
_LIFETIME_SECONDS = 3_600


def _unsecured_login(options: Mapping[str, str]) -> BearerLogin | None:
    prefix = "unsecuredLogin"
    principal_claim = options.get(f"{prefix}PrincipalClaimName", "").strip() or "sub"
    claims: dict[str, Claim] = dict(_with_prefix(options, f"{prefix}StringClaim_"))
    for name, text in _with_prefix(options, f"{prefix}NumberClaim_").items():
        claims[name] = _number(name, text)
    for name, text in _with_prefix(options, f"{prefix}ListClaim_").items():
        # The first character separates the items.
        claims[name] = tuple(item for item in text[1:].split(text[:1]) if item) if text else ()
    if not claims:
        return None
    if not isinstance(claims.get(principal_claim), str):
        raise UsageError(
            f"The unsecured OAUTHBEARER token has no principal in claim {principal_claim}",
            hint=f'set {prefix}StringClaim_{principal_claim}="NAME" in sasl.jaas.config',
        )
    return BearerLogin(
        unsecured_claims=tuple(claims.items()),
        lifetime_ms=int(_number(_SECONDS, options.get(_SECONDS, str(_LIFETIME_SECONDS))) * 1000),
        extensions=_with_prefix(options, f"{prefix}Extension_"),
    )


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{name} of the unsecured OAUTHBEARER token is not a number") from None


def _with_prefix(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {
        name.removeprefix(prefix): value
        for name, value in options.items()
        if name.startswith(prefix)
    }


def _value(name: str, lookup: Callable[[str], str | None]) -> Any:
    key = OAUTHBEARER_CONFIGS[name]
    text = lookup(name)
    return key.default if text is None else key.parse(text)


# librdkafka's names -> Java's.
RDKAFKA_SYNONYMS = {
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
}


def rdkafka_unsecured_options(text: str) -> dict[str, str]:
    """Return the JAAS options for librdkafka's `sasl.oauthbearer.config`, such as
    `principal=alice scope=a,b lifeSeconds=600 extension_k=v`; raise UsageError."""
    options = {}
    for pair in text.split():
        name, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"sasl.oauthbearer.config: {pair} is not KEY=VALUE")
        if name == "lifeSeconds":
            options[_SECONDS] = value
        elif name == "principal":
            options["unsecuredLoginStringClaim_sub"] = value
        elif name == "scope":
            options["unsecuredLoginListClaim_scope"] = f",{value}"
        elif name.startswith("extension_"):
            options[f"unsecuredLoginExtension_{name.removeprefix('extension_')}"] = value
        else:
            raise UsageError(f"sasl.oauthbearer.config: {name} is not supported")
    return options
