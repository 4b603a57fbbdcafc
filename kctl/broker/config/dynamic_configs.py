"""DynamicConfigs: configs of topics, brokers, users and clients from the store, kept up to date.

`/config/<type>/<name>` holds an entity's overrides; a sequential znode below `/config/changes`
announces a change. All are read at the start; a topic's are read again when this broker first
receives the topic, since its creation is not announced. Watches end with their session: after each
reconnection to the store, missed announcements are read.

Kafka 2.7: kafka.server.DynamicConfigManager, kafka.common.ZkNodeChangeNotificationListener,
DynamicBrokerConfig; KIP-226.
"""

from collections.abc import Callable, Mapping, Sequence

from kctl.broker.announced_changes import AnnouncedChanges, OverlappingReads
from kctl.broker.config.stored_passwords import StoredPasswords
from kctl.runtime.runtime import Runtime
from kctl.store.cluster_store import ClusterStore
from kctl.store.znodes import (
    BROKER_CONFIGS,
    CLIENT_CONFIGS,
    CONFIG_CHANGES,
    TOPIC_CONFIGS,
    USER_CONFIGS,
)

# Changed entities read and applied in one turn of the loop; each takes about 0.1 ms, the first part
# of a wide topic up to 1 ms.
CHANGES_PER_TURN = 10

ChangeListener = Callable[[str, str], object]


class DynamicConfigs:
    """The overrides of all entities, as text; listeners are called on every change."""

    def __init__(
        self,
        runtime: Runtime,
        cluster_store: ClusterStore,
        passwords: StoredPasswords,
    ) -> None:
        """Create it; `passwords` decodes those of this broker's overrides."""
        self.passwords = passwords
        self._store = cluster_store
        self._trace = runtime.trace
        self._changes = AnnouncedChanges(
            runtime, cluster_store, "configs", [CONFIG_CHANGES], self._read_changes
        )
        # Entity type -> entity name -> overrides; no entry: no overrides.
        self._overrides: dict[str, dict[str, Mapping[str, str]]] = {
            TOPIC_CONFIGS: {},
            BROKER_CONFIGS: {},
            USER_CONFIGS: {},
            CLIENT_CONFIGS: {},
        }
        self._listeners: list[ChangeListener] = []
        # By entity type and name.
        self._reads = OverlappingReads[tuple[str, str]]()

    def on_change(self, listener: ChangeListener) -> None:
        """Call `listener(entity type, entity name)` when an entity's overrides change."""
        self._listeners.append(listener)

    def overrides(self, entity_type: str, entity_name: str) -> Mapping[str, str]:
        """Return the overrides of one entity as last read."""
        return self._overrides[entity_type].get(entity_name, {})

    def topic(self, topic: str) -> Mapping[str, str]:
        """Return the overrides of one topic as last read."""
        return self._overrides[TOPIC_CONFIGS].get(topic, {})

    def entities(self, entity_type: str) -> Mapping[str, Mapping[str, str]]:
        """Return the overrides of all entities of a type, by name; a client id of a user is the
        entity `USER/clients/CLIENT_ID` of type users."""
        return self._overrides[entity_type]

    async def start(self) -> None:
        """Read everything and watch for changes."""
        await self._changes.start(self._load_all)

    async def _load_all(self) -> None:
        for entity_type in self._overrides:
            names = await self._store.get_entities_with_config(entity_type)
            await self._load(entity_type, names)
            if entity_type == USER_CONFIGS:
                clients = await self._store.get_clients_of_users(names)
                pairs = [
                    f"{user}/{CLIENT_CONFIGS}/{client}"
                    for user, found in clients.items()
                    for client in found
                ]
                await self._load(entity_type, pairs)

    async def load_topics(self, topics: Sequence[str]) -> None:
        """Read the overrides of topics that this broker has just received."""
        await self._load(TOPIC_CONFIGS, topics)

    async def load_users(self, users: Sequence[str]) -> None:
        """Read the configs of users, by sanitized name, that were just changed."""
        await self._load(USER_CONFIGS, users)

    def forget_topic(self, topic: str) -> None:
        """Remove the overrides of a deleted topic."""
        self._overrides[TOPIC_CONFIGS].pop(topic, None)

    async def _load(self, entity_type: str, names: Sequence[str]) -> None:
        known = self._overrides[entity_type]
        with self._reads.read() as is_latest:
            found = await self._store.get_entity_configs(entity_type, names)
            own = self.passwords.entity_name
            if entity_type == BROKER_CONFIGS and own in found:
                found[own] = await self.passwords.decoded(found[own])
            for name, config in found.items():
                if not is_latest((entity_type, name)):
                    continue
                if config:
                    known[name] = config
                else:
                    known.pop(name, None)

    async def _read_changes(self, _directory: str, names: Sequence[str]) -> None:
        changes = await self._store.get_config_changes(names)
        # An entity may have been announced several times: read it once.
        for number, path in enumerate(dict.fromkeys(changes.values()), 1):
            if number % CHANGES_PER_TURN == 0:
                await self._store.store.turn()
            entity_type, _, name = path.partition("/")
            if entity_type in self._overrides:
                await self._load(entity_type, [name])
                # Values may be secret.
                keys = sorted(self.overrides(entity_type, name))
                self._trace.event("config_changed", entity=path, names=keys)
                for listener in self._listeners:
                    listener(entity_type, name)
