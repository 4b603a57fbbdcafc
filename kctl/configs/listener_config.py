"""ListenerConfig: the configs of one listener, which precede those of the broker. Pure.

A config for one listener is `listener.name.<name in lower case>.<key>`; for one SASL mechanism of
it, `listener.name.<name>.<mechanism in lower case>.<key>`. What only listeners with TLS or SASL
have is in `listener_security`.

Kafka 2.7: org.apache.kafka.common.network.ListenerName; KIP-103.
"""

from collections.abc import Mapping

from kctl.configs.broker_configs import BrokerSettings
from kctl.errors import UsageError

LISTENER_PREFIX = "listener.name."


class ListenerConfig:
    """The configs of one listener, as text and typed."""

    def __init__(self, given: Mapping[str, str], listener_name: str) -> None:
        self._given = given
        self._name = listener_name
        self._prefix = f"{LISTENER_PREFIX}{listener_name.lower()}."

    def given(self) -> dict[str, str]:
        """Return the configs that are set for the listener alone, by full name."""
        return {key: text for key, text in self._given.items() if key.startswith(self._prefix)}

    def integer(self, name: str) -> int:
        """Return the value of one setting in force for the listener; raise UsageError."""
        value = self._value(name, [self._prefix, ""])
        assert isinstance(value, int)
        return value

    def _value(self, name: str, prefixes: list[str]) -> object:
        key = BrokerSettings.KEYS[name]
        for prefix in prefixes:
            text = self._given.get(prefix + name)
            if text is not None:
                try:
                    return key.parse(text)
                except UsageError as error:
                    raise UsageError(f"{prefix}{name}: {error}") from None
        return key.default
