"""SaslLogin: what a client, or a broker towards other brokers, authenticates with. Pure.

A password, for PLAIN and SCRAM; for OAUTHBEARER, where bearer tokens come from. A delegation token
is the password of a SCRAM login: its id is the user name, its HMAC the password.
"""

from collections.abc import Mapping
from dataclasses import field

from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass
from kctl.protocol.sasl.jaas import JaasConfig
from kctl.protocol.sasl.mechanism import OAUTHBEARER, SUPPORTED_MECHANISMS

# A value of an unsecured token's claim.
Claim = str | float | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PasswordLogin:
    """A user name and a password; `repr` shows no secret."""

    mechanism: str
    username: str
    password: str = field(repr=False)
    # The user name is the id of a delegation token, the password its HMAC in base64 (KIP-48).
    is_delegation_token: bool = False


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """An endpoint that issues tokens to a client (RFC 6749, 4.4), or the URL of a token's file."""

    url: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""

    @property
    def is_file(self) -> bool:
        """Return whether the token is read from a file."""
        return self.url.startswith("file:")


@dataclass(frozen=True, slots=True)
class AwsIdentity:
    """Who signs tokens for Amazon MSK: the default credentials of the AWS SDK, those of a profile,
    or a role. An empty region is that of the broker's name."""

    profile: str = ""
    role_arn: str = ""
    role_session_name: str = ""
    region: str = ""


@dataclass(frozen=True, slots=True)
class BearerLogin:
    """Where bearer tokens come from: an endpoint, AWS's signer, or claims that this client writes
    itself."""

    credentials: ClientCredentials | None = None
    aws: AwsIdentity | None = None
    unsecured_claims: tuple[tuple[str, Claim], ...] = ()
    # Of an unsecured token.
    lifetime_ms: int = 3_600_000
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    @property
    def mechanism(self) -> str:
        """Return the mechanism's name."""
        return OAUTHBEARER


SaslLogin = PasswordLogin | BearerLogin


def check_mechanism(mechanism: str, setting: str) -> None:
    """Raise UsageError if kctl does not support `mechanism`, the value of `setting`."""
    if mechanism not in SUPPORTED_MECHANISMS:
        raise UsageError(
            f"{setting}={mechanism} is not supported",
            hint=f"set it to one of {', '.join(SUPPORTED_MECHANISMS)}",
        )


def password_login(mechanism: str, jaas: JaasConfig) -> PasswordLogin | None:
    """Return the login that the JAAS config of PLAIN or SCRAM describes; None if credentials are
    missing."""
    username, password = jaas.options.get("username"), jaas.options.get("password")
    if not username or not password:
        return None
    is_token = jaas.options.get("tokenauth", "").lower() == "true"
    return PasswordLogin(mechanism, username, password, is_token)
