"""DynamicConfigs: per-topic and per-broker configs from the store, kept up to date.

`/config/<type>/<name>` holds an entity's overrides; a sequential znode below `/config/changes`
announces a change. All are read at the start; a topic's are read again when this broker first
receives the topic, since its creation is not announced. Watches end with their session: after each
reconnection to the store, missed announcements are read.

Kafka 2.7: kafka.server.DynamicConfigManager, kafka.common.ZkNodeChangeNotificationListener,
DynamicBrokerConfig; KIP-226.
"""

from collections.abc import Callable, Mapping, Sequence

from kctl.runtime.runtime import Runtime
from kctl.store.cluster_store import ClusterStore
from kctl.store.errors import StoreError
from kctl.store.interface import SessionState, WatchedEvent
from kctl.store.znodes import BROKER_CONFIGS, TOPIC_CONFIGS, USER_CONFIGS

# A broker that reads an announcement removes those older than this.
CHANGE_EXPIRATION_MS = 15 * 60 * 1000
# Changed entities read and applied in one turn of the loop; each takes about 0.1 ms.
CHANGES_PER_TURN = 50

ChangeListener = Callable[[str, str], object]


class DynamicConfigs:
    """The overrides of topics and brokers, as text; listeners are called on every change."""

    def __init__(self, runtime: Runtime, cluster_store: ClusterStore) -> None:
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._trace = runtime.trace
        self._store = cluster_store
        # Entity type -> entity name -> overrides; no entry: no overrides.
        self._overrides: dict[str, dict[str, Mapping[str, str]]] = {
            TOPIC_CONFIGS: {},
            BROKER_CONFIGS: {},
            USER_CONFIGS: {},
        }
        self._listeners: list[ChangeListener] = []
        # Reads may overlap. They are numbered in the order of their begin, and none replaces the
        # result of a later one: while reads run, this holds the number of the read that set each
        # entity.
        self._begun = 0
        self._under_way = 0
        self._read_by: dict[tuple[str, str], int] = {}
        self._seen = ""
        self._is_reading = False
        self._must_read = False

    def on_change(self, listener: ChangeListener) -> None:
        """Call `listener(entity type, entity name)` when an entity's overrides change."""
        self._listeners.append(listener)

    def overrides(self, entity_type: str, entity_name: str) -> Mapping[str, str]:
        """Return the overrides of one entity as last read."""
        return self._overrides[entity_type].get(entity_name, {})

    def topic(self, topic: str) -> Mapping[str, str]:
        """Return the overrides of one topic as last read."""
        return self._overrides[TOPIC_CONFIGS].get(topic, {})

    async def start(self) -> None:
        """Read everything and watch for changes."""
        self._store.store.on_session_state(self._session_changed)
        await self._read_changes(is_first=True)
        for entity_type in self._overrides:
            names = await self._store.get_entities_with_config(entity_type)
            await self._load(entity_type, names)

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
        self._begun += 1
        self._under_way += 1
        number = self._begun
        try:
            found = await self._store.get_entity_configs(entity_type, names)
        finally:
            self._under_way -= 1
        for name, config in found.items():
            if self._read_by.get((entity_type, name), 0) > number:
                continue
            self._read_by[entity_type, name] = number
            if config:
                known[name] = config
            else:
                known.pop(name, None)
        if not self._under_way:
            self._read_by.clear()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._schedule_read()

    def _announced(self, _event: WatchedEvent) -> None:
        self._schedule_read()

    def _schedule_read(self) -> None:
        self._must_read = True
        if not self._is_reading:
            self._scheduler.spawn(self._read_changes(), "config-changes")

    async def _read_changes(self, *, is_first: bool = False) -> None:
        self._is_reading = self._must_read = True
        try:
            while self._must_read:
                self._must_read = False
                try:
                    await self._read_once(is_first=is_first)
                except StoreError as error:
                    # Missed announcements are read when the store is connected again.
                    self._trace.warning(f"cannot read config changes: {error}")
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
        # An entity may have been announced several times: read it once.
        for number, path in enumerate(dict.fromkeys(changes.values()), 1):
            if number % CHANGES_PER_TURN == 0:
                await self._store.store.turn()
            entity_type, _, name = path.partition("/")
            if entity_type in self._overrides:
                await self._load(entity_type, [name])
                for listener in self._listeners:
                    listener(entity_type, name)
