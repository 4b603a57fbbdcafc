"""The security settings of clients: synonyms, and the logins that they describe.

Loaded for clients that are given such settings only.

Kafka 2.7: org.apache.kafka.clients.CommonClientConfigs, SaslConfigs
"""

from collections.abc import Mapping

from kctl.configs.aws_login import aws_login, is_aws_login
from kctl.configs.oauthbearer_configs import (
    RDKAFKA_SYNONYMS,
    TOKEN_URL,
    bearer_login,
    rdkafka_unsecured_options,
)
from kctl.errors import UsageError
from kctl.protocol.sasl.jaas import OAUTHBEARER_MODULE, JaasConfig, jaas_config_of
from kctl.protocol.sasl.login import (
    BearerLogin,
    PasswordLogin,
    SaslLogin,
    check_mechanism,
    password_login,
)
from kctl.protocol.sasl.mechanism import OAUTHBEARER
from kctl.tls.settings import PEM

# librdkafka's name -> Java's.
_SYNONYMS = {
    "sasl.mechanisms": "sasl.mechanism",
    **RDKAFKA_SYNONYMS,
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.key.location": "ssl.keystore.location",
    "ssl.key.pem": "ssl.keystore.key",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
}
# librdkafka's names of PEM stores -> the setting of their type.
_PEM_SYNONYMS = {
    "ssl.ca.location": "ssl.truststore.type",
    "ssl.ca.pem": "ssl.truststore.type",
    "ssl.key.location": "ssl.keystore.type",
    "ssl.key.pem": "ssl.keystore.type",
}


def without_synonyms(properties: Mapping[str, str]) -> dict[str, str]:
    """Return settings with Java's names only; raise UsageError for one that is given twice."""
    given = dict(properties)
    for synonym, name in _SYNONYMS.items():
        if synonym in given:
            if name in given:
                raise UsageError(f"{synonym} and {name} are the same setting: give one of them")
            given[name] = given.pop(synonym)
            if synonym in _PEM_SYNONYMS:
                given[_PEM_SYNONYMS[synonym]] = PEM
    return given


def login_of(given: Mapping[str, str]) -> SaslLogin:
    """Return the login of `sasl.jaas.config` or of librdkafka's settings; raise UsageError."""
    mechanism = given.get("sasl.mechanism", "GSSAPI").upper()
    if is_aws_login(mechanism, given.get):
        text = given.get("sasl.jaas.config")
        return aws_login({} if text is None else jaas_config_of(mechanism, text).options)
    check_mechanism(mechanism, "sasl.mechanism")
    text = given.get("sasl.jaas.config")
    jaas = None if text is None else jaas_config_of(mechanism, text)
    if mechanism == OAUTHBEARER:
        return _bearer_login(given, jaas)
    username, password = given.get("sasl.username"), given.get("sasl.password")
    login = None
    if jaas is not None:
        if username is not None or password is not None:
            raise UsageError("Give sasl.jaas.config, or sasl.username and sasl.password, not both")
        login = password_login(mechanism, jaas)
    elif username and password:
        login = PasswordLogin(mechanism, username, password)
    if login is None:
        raise UsageError(
            f"{mechanism} needs a user name and a password",
            hint="set sasl.username and sasl.password, or both in sasl.jaas.config",
        )
    return login


def _bearer_login(given: Mapping[str, str], jaas: JaasConfig | None) -> BearerLogin:
    if given.get("enable.sasl.oauthbearer.unsecure.jwt", "").lower() == "true" and jaas is None:
        options = rdkafka_unsecured_options(given.get("sasl.oauthbearer.config", ""))
        jaas = JaasConfig(OAUTHBEARER_MODULE, options)
    login = bearer_login(given.get, jaas)
    if login is None:
        raise UsageError(
            "OAUTHBEARER needs an endpoint or a file that has tokens",
            hint=f"set {TOKEN_URL}; for development, unsecuredLoginStringClaim_sub in"
            " sasl.jaas.config",
        )
    return login
