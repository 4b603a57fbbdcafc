"""Logins to Amazon MSK by IAM, as aws-msk-iam-auth and AWS's signers configure them. Pure.

    sasl.mechanism=AWS_MSK_IAM
    sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName="dev";

or sasl.mechanism=OAUTHBEARER with the callback handler IAMOAuthBearerLoginCallbackHandler. Both are
the same login here: OAUTHBEARER with a signed token, which MSK's brokers take on the port of IAM.
The mechanism AWS_MSK_IAM itself is not spoken. Handlers are known by name, and never loaded.
"""

from collections.abc import Callable, Mapping

from kctl.errors import UsageError
from kctl.protocol.sasl.login import AwsIdentity, BearerLogin
from kctl.protocol.sasl.mechanism import AWS_MSK_IAM, OAUTHBEARER

HANDLER_CONFIGS = ("sasl.login.callback.handler.class", "sasl.client.callback.handler.class")
_HANDLER = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"
_REGION = "awsStsRegion"
_OPTIONS = ("awsProfileName", "awsRoleArn", "awsRoleSessionName", _REGION, "awsRegion")
# Options of the Java library without an effect here.
_IGNORED = ("awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs")


def is_aws_login(mechanism: str, lookup: Callable[[str], str | None]) -> bool:
    """Return whether the settings ask for a login by IAM."""
    if mechanism == AWS_MSK_IAM:
        return True
    return mechanism == OAUTHBEARER and any(lookup(it) == _HANDLER for it in HANDLER_CONFIGS)


def aws_login(options: Mapping[str, str]) -> BearerLogin:
    """Return the login of the JAAS options; raise UsageError for unknown ones."""
    unknown = [name for name in options if name not in (*_OPTIONS, *_IGNORED)]
    if unknown:
        raise UsageError(
            f"{unknown[0]} is not supported for logins by IAM",
            hint=f"supported: {', '.join(_OPTIONS)}",
        )
    identity = AwsIdentity(
        profile=options.get("awsProfileName", ""),
        role_arn=options.get("awsRoleArn", ""),
        role_session_name=options.get("awsRoleSessionName", ""),
        region=options.get("awsRegion", "") or options.get(_REGION, ""),
    )
    if identity.profile and identity.role_arn:
        raise UsageError("Give awsProfileName or awsRoleArn, not both")
    return BearerLogin(aws=identity)
