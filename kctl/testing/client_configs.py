"""The settings with which clients log in to a KafkaBroker, in the spelling of each client."""

from collections.abc import Mapping

from kctl.configs.sasl_settings import protocol_of
from kctl.errors import UsageError
from kctl.protocol.sasl.jaas import jaas_text
from kctl.protocol.sasl.mechanism import PASSWORD_MECHANISMS
from kctl.tls.settings import PEM

__all__ = ["client_config", "java_properties", "kafka_python_config"]

_PYTHON_NAMES = {
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "ssl.ca.location": "ssl_cafile",
}


def client_config(
    address: str,
    users: Mapping[str, str],
    user: str | None,
    mechanism: str,
    ca_file: str | None = None,
) -> dict[str, str]:
    """Return the settings of confluent-kafka; UsageError.

    With `users`, the client logs in; with `ca_file`, it speaks TLS and trusts that CA.
    """
    config = {"bootstrap.servers": address}
    has_users = user is not None or bool(users)
    if has_users or ca_file is not None:
        protocol = protocol_of(has_users=has_users, has_tls=ca_file is not None)
        config["security.protocol"] = protocol.value
    if ca_file is not None:
        config["ssl.ca.location"] = ca_file
    if has_users:
        name = _known_user(users, user)
        if mechanism not in PASSWORD_MECHANISMS:
            raise UsageError(
                f"mechanism={mechanism!r}", hint=f"one of {', '.join(PASSWORD_MECHANISMS)}"
            )
        config["sasl.mechanism"] = mechanism
        config["sasl.username"] = name
        config["sasl.password"] = users[name]
    return config


def kafka_python_config(config: Mapping[str, str]) -> dict[str, str]:
    """Return `config`, as `client_config` returns it, as arguments of kafka-python."""
    return {_PYTHON_NAMES.get(key, key.replace(".", "_")): it for key, it in config.items()}


def java_properties(config: Mapping[str, str]) -> dict[str, str]:
    """Return `config`, as `client_config` returns it, as properties of Apache Kafka's clients."""
    properties = dict(config)
    if "ssl.ca.location" in properties:
        properties["ssl.truststore.type"] = PEM
        properties["ssl.truststore.location"] = properties.pop("ssl.ca.location")
    if "sasl.username" in properties:
        properties["sasl.jaas.config"] = jaas_text(
            properties["sasl.mechanism"],
            {
                "username": properties.pop("sasl.username"),
                "password": properties.pop("sasl.password"),
            },
        )
    return properties


def _known_user(users: Mapping[str, str], user: str | None) -> str:
    if user is None and len(users) == 1:
        (user,) = users
    if user is None or user not in users:
        known = ", ".join(users) or "none"
        raise UsageError(f"user={user!r} is not a user of this broker", hint=f"users: {known}")
    return user
