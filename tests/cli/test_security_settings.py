"""-X with every setting of Java's clients and of librdkafka that concerns security."""

import pytest

from kctl.cli.connect import ConnectOptions, resolve, warnings_of
from kctl.client.security import ClientSecurity
from kctl.errors import UsageError
from kctl.testing.kafka_broker import KafkaBroker

# Apache Kafka 2.7 to 4.1: SslConfigs, SaslConfigs, SecurityConfig, CommonClientConfigs. True: kctl
# reads it.
JAVA = {
    "security.protocol": True,
    "security.providers": False,
    "ssl.cipher.suites": True,
    "ssl.enabled.protocols": True,
    "ssl.endpoint.identification.algorithm": True,
    "ssl.engine.factory.class": False,
    "ssl.key.password": True,
    "ssl.keymanager.algorithm": False,
    "ssl.keystore.certificate.chain": True,
    "ssl.keystore.key": True,
    "ssl.keystore.location": True,
    "ssl.keystore.password": True,
    "ssl.keystore.type": True,
    "ssl.protocol": True,
    "ssl.provider": False,
    "ssl.secure.random.implementation": False,
    "ssl.trustmanager.algorithm": False,
    "ssl.truststore.certificates": True,
    "ssl.truststore.location": True,
    "ssl.truststore.password": True,
    "ssl.truststore.type": True,
    "sasl.client.callback.handler.class": False,
    "sasl.jaas.config": True,
    "sasl.kerberos.kinit.cmd": False,
    "sasl.kerberos.min.time.before.relogin": False,
    "sasl.kerberos.service.name": False,
    "sasl.kerberos.ticket.renew.jitter": False,
    "sasl.kerberos.ticket.renew.window.factor": False,
    "sasl.login.callback.handler.class": False,
    "sasl.login.class": False,
    "sasl.login.connect.timeout.ms": False,
    "sasl.login.read.timeout.ms": False,
    "sasl.login.refresh.buffer.seconds": False,
    "sasl.login.refresh.min.period.seconds": False,
    "sasl.login.refresh.window.factor": False,
    "sasl.login.refresh.window.jitter": False,
    "sasl.login.retry.backoff.max.ms": False,
    "sasl.login.retry.backoff.ms": False,
    "sasl.mechanism": True,
    "sasl.oauthbearer.client.credentials.client.id": True,
    "sasl.oauthbearer.client.credentials.client.secret": True,
    "sasl.oauthbearer.clock.skew.seconds": False,
    "sasl.oauthbearer.expected.audience": False,
    "sasl.oauthbearer.expected.issuer": False,
    "sasl.oauthbearer.header.urlencode": False,
    "sasl.oauthbearer.jwks.endpoint.url": False,
    "sasl.oauthbearer.scope": True,
    "sasl.oauthbearer.scope.claim.name": False,
    "sasl.oauthbearer.sub.claim.name": False,
    "sasl.oauthbearer.token.endpoint.url": True,
}
# librdkafka 2.11: CONFIGURATION.md, those that Java lacks.
LIBRDKAFKA = {
    "enable.sasl.oauthbearer.unsecure.jwt": True,
    "enable.ssl.certificate.verification": True,
    "https.ca.location": False,
    "https.ca.pem": False,
    "sasl.mechanisms": True,
    "sasl.oauthbearer.client.id": True,
    "sasl.oauthbearer.client.secret": True,
    "sasl.oauthbearer.config": True,
    "sasl.oauthbearer.extensions": False,
    "sasl.oauthbearer.method": False,
    "sasl.password": True,
    "sasl.username": True,
    "sasl.kerberos.keytab": False,
    "sasl.kerberos.principal": False,
    "ssl.ca.certificate.stores": False,
    "ssl.ca.location": True,
    "ssl.ca.pem": True,
    "ssl.certificate.location": True,
    "ssl.certificate.pem": True,
    "ssl.crl.location": False,
    "ssl.curves.list": False,
    "ssl.engine.id": False,
    "ssl.engine.location": False,
    "ssl.key.location": True,
    "ssl.key.pem": True,
    "ssl.providers": False,
    "ssl.sigalgs.list": False,
}


@pytest.mark.parametrize("name", [*JAVA, *LIBRDKAFKA])
def test_a_setting_is_accepted_and_one_without_effect_is_reported(name):
    options = ConnectOptions("h:1", properties=[f"{name}=x"])

    assert resolve(options, {}).properties == {name: "x"}
    is_read = (JAVA | LIBRDKAFKA)[name]
    notes = [] if is_read else [f"note: -X {name} has no effect in kctl"]
    assert warnings_of(options) == notes


def login(*pairs):
    options = ConnectOptions("h:1", properties=["security.protocol=SASL_SSL", *pairs])
    return ClientSecurity.of(resolve(options, {}).properties)


def test_librdkafkas_names_of_unsecured_tokens_and_of_verification_have_an_effect():
    unsecured = login(
        "sasl.mechanisms=OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt=true",
        "sasl.oauthbearer.config=principal=alice",
        "enable.ssl.certificate.verification=false",
    )

    assert ("sub", "alice") in unsecured.login.unsecured_claims
    assert not unsecured.tls.verifies_broker
    with pytest.raises(UsageError, match="needs an endpoint or a file"):
        login("sasl.mechanisms=OAUTHBEARER", "sasl.oauthbearer.config=principal=alice")


def test_a_misspelt_setting_is_rejected_or_reported():
    with pytest.raises(UsageError) as caught:
        resolve(ConnectOptions(properties=["enable.ssl.certificate.verificaton=false"]), {})
    assert caught.value.hint == "did you mean enable.ssl.certificate.verification?"
    misspelt = ConnectOptions(properties=["ssl.truststore.locaton=x"])
    assert warnings_of(misspelt) == ["note: -X ssl.truststore.locaton has no effect in kctl"]


@pytest.mark.parametrize(("security", "remedy"), [(None, "PLAINTEXT"), ("SSL", "SSL")])
def test_the_remedy_of_a_login_that_is_not_expected_keeps_tls(kctl, security, remedy):
    if security is not None:
        pytest.importorskip("cryptography")
    with KafkaBroker(security=security) as broker:
        protocol = "SASL_PLAINTEXT" if security is None else "SASL_SSL"
        given = {"security.protocol": protocol, "sasl.mechanism": "PLAIN"}
        given |= {"sasl.username": "a", "sasl.password": "b"}
        if security is not None:
            given["ssl.ca.location"] = broker.ca_file
        options = [f"-X{name}={value}" for name, value in given.items()]
        ran = kctl("topic", "list", "-b", broker.bootstrap_servers, *options)

    assert ran.status == 1
    assert f"hint: set security.protocol={remedy}, or" in ran.err
