"""What all SASL mechanisms share: their names, their failures, the authorization id. Pure.

Kafka 2.7: org.apache.kafka.common.errors.SaslAuthenticationException.
"""

from typing import NamedTuple

from kctl.errors import KctlError

PLAIN = "PLAIN"
SCRAM_SHA_256 = "SCRAM-SHA-256"
SCRAM_SHA_512 = "SCRAM-SHA-512"
OAUTHBEARER = "OAUTHBEARER"
# Amazon MSK's own mechanism for IAM; its brokers take the same login by OAUTHBEARER.
AWS_MSK_IAM = "AWS_MSK_IAM"
PASSWORD_MECHANISMS = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512)
# What kctl speaks, as a broker and as a client.
SUPPORTED_MECHANISMS = (*PASSWORD_MECHANISMS, OAUTHBEARER)


class SaslFailure(KctlError):
    """The exchange failed; the message may be sent to the peer: it contains no secret."""

    @property
    def reason(self) -> str:
        """Return why, for the log."""
        return str(self)


class Identity(NamedTuple):
    """The user that an exchange authenticated."""

    user: str
    # Milliseconds until the credential expires; None if it does not.
    remaining_ms: int | None = None
    is_token_authenticated: bool = False


class InvalidCredentials(SaslFailure):
    """The peer is not who it says, or its message is malformed; the reason is for the log only.

    What the peer receives names the mechanism and no more (`failure_message`).
    """


def check_authorization_id(authorization_id: str, user: str) -> None:
    """Raise SaslFailure unless the authorization id is absent or the user (CVE-2017-12610)."""
    if authorization_id and authorization_id != user:
        raise SaslFailure(
            "Authentication failed: Client requested an authorization id that is different from"
            " username"
        )


def failure_message(mechanism: str, *, is_again: bool) -> str:
    """Return Kafka 2.7's message for credentials that `mechanism` rejects."""
    what = "re-authentication" if is_again else "authentication"
    return (
        f"Authentication failed during {what} due to invalid credentials with SASL mechanism"
        f" {mechanism}"
    )
