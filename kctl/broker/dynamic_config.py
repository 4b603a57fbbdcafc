"""DynamicConfigs: per-topic and per-broker settings from the store, kept up to date.

`/config/<type>/<name>` holds an entity's overrides; a sequential znode below `/config/changes`
says that one changed. All are read at the start; a topic's are read again when this broker first
hears of the topic, since a creation is not announced. A session's watches end with it: whenever the
store is connected again, what was announced meanwhile is looked for.

Kafka 2.7: kafka.server.DynamicConfigManager, kafka.common.ZkNodeChangeNotificationListener,
DynamicBrokerConfig; KIP-226.
"""

from collections.abc import Callable, Mapping, Sequence

from kctl.runtime.runtime import Runtime
from kctl.store.cluster_store import ClusterStore
from kctl.store.errors import StoreError
from kctl.store.interface import SessionState, WatchedEvent

TOPICS = "topics"
BROKERS = "brokers"
# The entity whose overrides hold for all of its type.
DEFAULT = "<default>"
# Announcements older than this are purged by whoever sees a new one.
CHANGE_EXPIRATION_MS = 15 * 60 * 1000

ChangeListener = Callable[[str, str], object]


class DynamicConfigs:
    """What topics and brokers override, as text; listeners hear of every change."""

    def __init__(self, runtime: Runtime, cluster_store: ClusterStore) -> None:
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._trace = runtime.trace
        self._store = cluster_store
        # Entity type -> entity name -> overrides; no entry: no overrides.
        self._overrides: dict[str, dict[str, Mapping[str, str]]] = {TOPICS: {}, BROKERS: {}}
        self._listeners: list[ChangeListener] = []
        self._seen = ""
        self._is_reading = False
        self._has_news = False

    def on_change(self, listener: ChangeListener) -> None:
        """Call `listener(entity type, entity name)` when an entity's overrides changed."""
        self._listeners.append(listener)

    def overrides(self, entity_type: str, entity_name: str) -> Mapping[str, str]:
        """The overrides of one entity as last read."""
        return self._overrides[entity_type].get(entity_name, {})

    def topic(self, topic: str) -> Mapping[str, str]:
        """The overrides of one topic as last read."""
        return self._overrides[TOPICS].get(topic, {})

    async def start(self) -> None:
        """Read everything and watch for changes; returns once all is read."""
        self._store.store.on_session_state(self._session_changed)
        await self._read_changes(is_first=True)
        for entity_type in self._overrides:
            names = await self._store.get_entities_with_config(entity_type)
            await self._load(entity_type, names)

    async def load_topics(self, topics: Sequence[str]) -> None:
        """Read the overrides of topics that this broker has just heard of."""
        await self._load(TOPICS, topics)

    def forget_topic(self, topic: str) -> None:
        """The topic is gone."""
        self._overrides[TOPICS].pop(topic, None)

    async def _load(self, entity_type: str, names: Sequence[str]) -> None:
        known = self._overrides[entity_type]
        for name, config in (await self._store.get_entity_configs(entity_type, names)).items():
            if config:
                known[name] = config
            else:
                known.pop(name, None)

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._look_for_news()

    def _announced(self, _event: WatchedEvent) -> None:
        self._look_for_news()

    def _look_for_news(self) -> None:
        self._has_news = True
        if not self._is_reading:
            self._scheduler.spawn(self._read_changes(), "config-changes")

    async def _read_changes(self, *, is_first: bool = False) -> None:
        self._is_reading = self._has_news = True
        try:
            while self._has_news:
                self._has_news = False
                try:
                    await self._read_once(is_first=is_first)
                except StoreError as error:
                    # What was not read is looked for again when the store is back.
                    self._trace.warning(f"reading config changes: {error}")
        finally:
            self._is_reading = False

    async def _read_once(self, *, is_first: bool) -> None:
        names = await self._store.get_config_change_names(self._announced)
        if not is_first:
            new = [name for name in names if name > self._seen]
            await self._apply(await self._store.get_config_changes(new))
        self._seen = max([self._seen, *names])
        if not is_first:
            expired_ms = self._clock.wall_ms() - CHANGE_EXPIRATION_MS
            await self._store.purge_config_changes(names, expired_ms)

    async def _apply(self, changes: Mapping[str, str]) -> None:
        # One entity may have been announced several times: read it once.
        for path in dict.fromkeys(changes.values()):
            entity_type, _, name = path.partition("/")
            if entity_type in self._overrides:
                await self._load(entity_type, [name])
                for listener in self._listeners:
                    listener(entity_type, name)
