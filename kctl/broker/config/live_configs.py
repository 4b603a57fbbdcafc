"""LiveConfigs: the current configs: server.properties with the overrides of the store.

When overrides change, the broker's configs are computed again and passed to the listeners:
`NetworkLimits` for the listeners, `LogConfig` for the logs. Configs without a listener are read
from here each time they are needed (the log cleaner's).

Kafka 2.7: kafka.server.DynamicBrokerConfig, kafka.server.TopicConfigHandler; KIP-226.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kctl.broker.config.config_entries import BrokerConfigView
from kctl.broker.config.dynamic_configs import DynamicConfigs
from kctl.configs.broker_config import BrokerConfig
from kctl.configs.topic_configs import TOPIC_CONFIGS
from kctl.errors import UsageError
from kctl.runtime.trace import Trace
from kctl.store import znodes

BrokerListener = Callable[[BrokerConfig], object]
# Takes a topic's name; None: the configs of all topics changed with their defaults.
TopicListener = Callable[[str | None], object]


class LiveConfigs:
    """The configs of one broker and of its topics, kept up to date."""

    def __init__(
        self, static: BrokerConfig, broker_id: int, dynamic_configs: DynamicConfigs, trace: Trace
    ) -> None:
        self._trace = trace
        self._static = static
        self._broker_id = broker_id
        self._dynamic_configs = dynamic_configs
        self._broker_listeners: list[BrokerListener] = []
        self._topic_listeners: list[TopicListener] = []
        # Why some overrides are ignored; logged when it changes.
        self._complaint: str | None = None
        self._broker = self._effective()
        self._topic_defaults = self._broker.topic_defaults()
        dynamic_configs.on_change(self._overrides_changed)

    @property
    def broker(self) -> BrokerConfig:
        """Return the broker's current configs."""
        return self._broker

    def topic_values(self, topic: str) -> dict[str, Any]:
        """Return the value of every config of `topic`: its overrides over the broker's defaults."""
        values = self._topic_defaults.copy()
        for name, text in self._dynamic_configs.topic(topic).items():
            if name in TOPIC_CONFIGS:
                # A tool that writes to the store directly may have left an invalid value.
                with suppress(UsageError):
                    values[name] = TOPIC_CONFIGS[name].key.parse(text)
        return values

    def on_broker_change(self, listener: BrokerListener) -> None:
        """Call `listener` with the broker's configs each time they change."""
        self._broker_listeners.append(listener)

    def on_topic_change(self, listener: TopicListener) -> None:
        """Call `listener` with the topic whose configs changed, or None for all topics."""
        self._topic_listeners.append(listener)

    def _effective(self) -> BrokerConfig:
        config, complaint = BrokerConfigView(
            self._static,
            self._dynamic_configs.overrides(znodes.BROKER_CONFIGS, str(self._broker_id)),
            self._dynamic_configs.overrides(znodes.BROKER_CONFIGS, znodes.DEFAULT_ENTITY),
        ).effective_and_complaint()
        if complaint != self._complaint:
            self._complaint = complaint
            if complaint is not None:
                self._trace.warning(
                    f"The overrides of broker {self._broker_id} cannot be applied: {complaint}"
                )
        return config

    def _overrides_changed(self, entity_type: str, entity_name: str) -> None:
        if entity_type == znodes.TOPIC_CONFIGS:
            for on_topic in self._topic_listeners:
                on_topic(entity_name)
        elif entity_name in (znodes.DEFAULT_ENTITY, str(self._broker_id)):
            self._broker = self._effective()
            self._topic_defaults = self._broker.topic_defaults()
            for on_broker in self._broker_listeners:
                on_broker(self._broker)
            for on_topic in self._topic_listeners:
                on_topic(None)
