"""Registration: makes a broker of Kafka 0.7 and its topics known in ZooKeeper.

The broker's znode and those of its topics are ephemeral: they go with the session. The broker
registers when it serves already, a topic when it has its first log here. If another session holds
the id, the broker waits until that is over: Apache Kafka 0.7 gives up, also when it is its own old
session after a quick restart. After a lost session everything is registered again.

Invariant: what this session has not created is `_missing`, the broker's own znode (None) first.

Kafka 0.7: kafka.server.KafkaZooKeeper
"""

from kctl.broker07.config import Broker07Config
from kctl.errors import KctlError
from kctl.model import Endpoint
from kctl.runtime.future import Future, sleep
from kctl.runtime.runtime import Runtime
from kctl.store.broker07_znodes import (
    encode_broker,
    encode_partition_count,
    topic_broker_path,
)
from kctl.store.errors import NodeExistsError, SessionExpiredError, StoppingError, StoreError
from kctl.store.interface import MetadataStore, SessionState
from kctl.store.znode_client import ZnodeClient
from kctl.store.znodes import BROKER_IDS, broker_path, topic_path

# How often an id that is in use is looked at, and how often an error is tried again.
RETRY_MS = 500


class Registration:
    """Keeps the znodes of one broker for as long as it runs."""

    def __init__(
        self, runtime: Runtime, config: Broker07Config, store: MetadataStore, advertised: Endpoint
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._advertised = advertised
        self._client = ZnodeClient(store)
        self._store = store
        # In the order in which they are registered.
        self._topics: dict[str, None] = {}
        self._missing: dict[str | None, None] = {None: None}
        self._is_stopped = False
        self._has_said_taken = False
        # The last error that was logged; empty once something has been registered after it.
        self._logged = ""
        self._wake: Future[None] | None = None
        # Done when the broker and its topics are registered for the first time.
        self.ready: Future[None] = runtime.scheduler.future()
        store.on_session_state(self._session_state_changed)

    def start(self) -> None:
        """Register, now and whenever something is missing."""
        self._runtime.scheduler.spawn(self._run(), "registration")

    def stop(self) -> None:
        """Register nothing more; closing the store removes what there is."""
        self._is_stopped = True
        self._client.stop_waiting()
        self._awake()

    def add_topic(self, topic: str) -> None:
        """Register a topic, soon."""
        if topic not in self._topics:
            self._topics[topic] = self._missing[topic] = None
            self._awake()

    def _forget(self) -> None:
        """Let everything be registered again: the session that did it has ended."""
        self._missing = dict.fromkeys([None, *self._topics])

    def _awake(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None:
            wake.set_result(None)

    def _session_state_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._forget()
            self._awake()

    async def _run(self) -> None:
        while not self._is_stopped:
            try:
                await self._register_missing()
            except StoppingError:
                return
            except SessionExpiredError:
                await self._begin_session()
                continue
            except KctlError as error:
                self._warn(f"cannot register in ZooKeeper: {error}")
                await sleep(self._runtime.scheduler, RETRY_MS)
                continue
            self._logged = ""
            if not self.ready.done:
                self.ready.set_result(None)
            if not self._missing:
                self._wake = self._runtime.scheduler.future()
                await self._wake

    def _warn(self, line: str) -> None:
        if line != self._logged:
            self._logged = line
            self._runtime.trace.warning(line)

    async def _begin_session(self) -> None:
        self._forget()
        try:
            await self._store.new_session()
        except StoreError as error:
            self._warn(f"the session with ZooKeeper is over, and no other begins: {error}")
            await sleep(self._runtime.scheduler, RETRY_MS)
        else:
            self._warn("the session with ZooKeeper was over; registers again")

    async def _register_missing(self) -> None:
        broker_id = self._config.broker_id
        while self._missing and not self._is_stopped:
            # Another dict once this session has ended.
            missing = self._missing
            topic = next(iter(missing))
            if topic is None:
                await self._client.make_path(BROKER_IDS)
                now_ms = self._runtime.clock.wall_ms()
                data = encode_broker(self._advertised.host, self._advertised.port, now_ms)
                await self._create(broker_path(broker_id), data)
            else:
                await self._client.make_path(topic_path(topic))
                data = encode_partition_count(self._config.partition_count(topic))
                await self._create(topic_broker_path(topic, broker_id), data)
            del missing[topic]

    async def _create(self, path: str, data: bytes) -> None:
        """Create an ephemeral znode, once no other session has it."""
        store = self._store
        while not self._is_stopped:
            try:
                await self._client.call(lambda: store.create(path, data, ephemeral=True))
            except NodeExistsError:
                found = await self._client.get(path)
                if found is None:
                    continue
                if found[1].ephemeral_owner != store.session_id:
                    await self._wait_for_owner(path, found[0])
                    continue
            return

    async def _wait_for_owner(self, path: str, data: bytes) -> None:
        if not self._has_said_taken:
            self._has_said_taken = True
            owner = data[:80].decode("utf-8", "replace")
            self._runtime.trace.warning(
                f"broker id {self._config.broker_id} is in use ({path}: {owner!r}); waits until"
                " that session is over"
            )
        await sleep(self._runtime.scheduler, RETRY_MS)
