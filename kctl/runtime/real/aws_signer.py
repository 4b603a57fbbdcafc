"""Tokens for Amazon MSK, signed by the library aws-msk-iam-sasl-signer-python.

The AWS SDK finds the credentials: variables, files below ~/.aws, the metadata of the machine. That
may take seconds, and runs on a thread of its own (`web`).
"""

import importlib
from typing import Any

from kctl.errors import UsageError
from kctl.protocol.sasl.login import AwsIdentity
from kctl.runtime.web import SignedToken

_SESSION_NAME = "kctl"


def load_signer() -> Any:
    """Return the library; raise UsageError if it is not installed."""
    try:
        return importlib.import_module("aws_msk_iam_sasl_signer.MSKAuthTokenProvider")
    except ImportError:
        raise UsageError(
            "Logins to Amazon MSK by IAM need the package aws-msk-iam-sasl-signer-python",
            hint="pip install 'kctl-kafka[aws]'",
        ) from None


def signed_token(signer: Any, identity: AwsIdentity, region: str) -> SignedToken:
    """Return a token of `identity` for `region`; raise what the SDK raises, and ValueError without
    a region."""
    region = region or _default_region(identity)
    if identity.profile:
        found = signer.generate_auth_token_from_profile(region, identity.profile)
    elif identity.role_arn:
        found = signer.generate_auth_token_from_role_arn(
            region, identity.role_arn, identity.role_session_name or _SESSION_NAME
        )
    else:
        found = signer.generate_auth_token(region)
    token, expires_ms = found
    return SignedToken(token, int(expires_ms))


def _default_region(identity: AwsIdentity) -> str:
    session = importlib.import_module("botocore.session").Session(profile=identity.profile or None)
    region = session.get_config_variable("region")
    if not region:
        raise ValueError(
            "the name of the broker has no region: set AWS_DEFAULT_REGION, or awsRegion"
        )
    return str(region)
