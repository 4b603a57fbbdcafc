"""Logins to Amazon MSK by IAM: their settings, and where their tokens come from."""

import base64
import sys
from types import SimpleNamespace
from urllib.parse import parse_qs, urlparse

import pytest

from kctl.client.security import ClientSecurity, CurrentToken
from kctl.client.token_source import bearer_token
from kctl.errors import AuthenticationError, UnreachableError, UsageError
from kctl.protocol.sasl.login import AwsIdentity, BearerLogin
from kctl.runtime.real import make_runtime
from kctl.runtime.real.aws_signer import load_signer, signed_token
from kctl.runtime.web import SignedToken

MODULE = "software.amazon.msk.auth.iam.IAMLoginModule required"
BEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
HANDLER = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"
WITH_HANDLER = {"sasl_mechanism": "OAUTHBEARER", "sasl_login_callback_handler_class": HANDLER}
MECHANISM = "AWS_MSK_IAM"
DEFAULT = AwsIdentity()
IN_IRELAND = "b-1.it.abc.c2.kafka.eu-west-1.amazonaws.com:9098"


def identity_of(**settings):
    names = {name.replace("_", "."): value for name, value in settings.items()}
    login = ClientSecurity.of({"security.protocol": "SASL_SSL", **names}).login
    # Brokers of MSK take the token by OAUTHBEARER.
    assert login.mechanism == "OAUTHBEARER"
    return login.aws


@pytest.mark.parametrize("settings", [
    {"sasl_mechanism": MECHANISM},
    {"sasl_mechanisms": MECHANISM},
    {"sasl_mechanism": MECHANISM, "sasl_jaas_config": f"{MODULE};",
     "sasl_client_callback_handler_class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler"},
    {"sasl_jaas_config": f"{BEARER_MODULE};", **WITH_HANDLER},
])  # fmt: skip
def test_every_spelling_of_the_default_credentials(settings):
    assert identity_of(**settings) == AwsIdentity()


@pytest.mark.parametrize(("module", "more"), [
    (MODULE, {"sasl_mechanism": MECHANISM}),
    (BEARER_MODULE, WITH_HANDLER),
])  # fmt: skip
def test_profiles_and_roles(module, more):
    jaas = f'{module} awsProfileName="dev" awsRegion="eu-west-1" awsDebugCreds="true";'
    assert identity_of(sasl_jaas_config=jaas, **more) == AwsIdentity("dev", region="eu-west-1")
    role = "arn:aws:iam::1:role/r"
    jaas = f'{module} awsRoleArn="{role}" awsRoleSessionName="s" awsStsRegion="eu-west-1";'
    expected = AwsIdentity(role_arn=role, role_session_name="s", region="eu-west-1")
    assert identity_of(sasl_jaas_config=jaas, **more) == expected


@pytest.mark.parametrize("jaas", [
    f'{MODULE} awsProfileName="a" awsRoleArn="b";', f'{MODULE} secretKey="a";', f"{BEARER_MODULE};",
])  # fmt: skip
def test_what_cannot_be_meant_is_refused(jaas):
    with pytest.raises(UsageError):
        identity_of(sasl_mechanism=MECHANISM, sasl_jaas_config=jaas)


class FakeWeb:
    def __init__(self, runtime, error=None):
        self.runtime = runtime
        self.error = error
        self.asked = []

    def aws_token(self, identity, region):
        self.asked.append((identity, region))
        future = self.runtime.scheduler.future()
        if self.error is not None:
            future.set_error(self.error)
        else:
            token = f"token {len(self.asked)}"
            future.set_result(SignedToken(token, self.runtime.clock.wall_ms() + 900_000))
        return future


@pytest.fixture
def runtime():
    runtime = make_runtime()
    yield runtime
    runtime.scheduler.close()


def token_for(runtime, web, broker, identity=DEFAULT, current=None):
    login = BearerLogin(aws=identity)
    world = SimpleNamespace(clock=runtime.clock, web=web)
    getting = bearer_token(world, login, current or CurrentToken(), broker)
    return runtime.scheduler.run_until(runtime.scheduler.spawn(getting))


@pytest.mark.parametrize(("broker", "region"), [
    (IN_IRELAND, "eu-west-1"),
    ("boot-x.c1.kafka-serverless.us-east-2.amazonaws.com:9098", "us-east-2"),
    ("b-1.it.abc.c2.kafka.cn-north-1.amazonaws.com.cn:9098", "cn-north-1"),
    ("kafka.example.com:9098", ""),
])  # fmt: skip
def test_the_region_is_in_the_brokers_name(runtime, broker, region):
    web = FakeWeb(runtime)
    token_for(runtime, web, broker)
    assert web.asked == [(AwsIdentity(), region)]


def test_a_region_that_is_set_counts(runtime):
    web = FakeWeb(runtime)
    token_for(runtime, web, IN_IRELAND, AwsIdentity(region="eu-west-2"))
    assert web.asked[0][1] == "eu-west-2"


def test_connections_share_a_token_while_it_is_valid(runtime):
    web, current = FakeWeb(runtime), CurrentToken()
    tokens = [token_for(runtime, web, IN_IRELAND, current=current) for _ in range(2)]
    assert tokens == ["token 1"] * 2
    current.reused_until_ms = 0
    assert token_for(runtime, web, IN_IRELAND, current=current) == "token 2"


def test_missing_credentials_are_an_error_of_authentication(runtime):
    web = FakeWeb(runtime, UnreachableError("NoCredentialsError: none", hint="AWS_PROFILE"))
    with pytest.raises(AuthenticationError, match="NoCredentialsError") as failed:
        token_for(runtime, web, IN_IRELAND)
    assert failed.value.hint == "AWS_PROFILE"


def test_without_the_signer_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer.MSKAuthTokenProvider", None)
    with pytest.raises(UsageError) as refused:
        load_signer()
    assert "kctl-kafka[aws]" in refused.value.hint


def test_the_signer_of_aws_makes_a_token_of_static_credentials(monkeypatch):
    """Without the network."""
    pytest.importorskip("aws_msk_iam_sasl_signer")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    signed = signed_token(load_signer(), AwsIdentity(), "eu-west-1")
    assert "wJalr" not in repr(signed)
    assert signed.token not in repr(signed)
    url = urlparse(base64.urlsafe_b64decode(signed.token + "==").decode())
    assert url.hostname == "kafka.eu-west-1.amazonaws.com"
    assert parse_qs(url.query)["Action"] == ["kafka-cluster:Connect"]


def test_the_region_of_the_environment_is_the_last_resort(monkeypatch):
    pytest.importorskip("botocore")
    signer = SimpleNamespace(generate_auth_token=lambda region: (f"for {region}", 1))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    assert signed_token(signer, AwsIdentity(), "").token == "for eu-central-1"
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    with pytest.raises(ValueError, match="awsRegion"):
        signed_token(signer, AwsIdentity(), "")
