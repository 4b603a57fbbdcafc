"""BrokerRegistry: the brokers, the controller and the cluster itself, as znodes.

Kafka 2.7: kafka.zk.KafkaZkClient, kafka.coordinator.transaction.ProducerIdManager; KIP-380
(a broker's epoch is the czxid of its znode).
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import cast

from kctl.errors import KctlError
from kctl.model import BrokerInfo
from kctl.store import znodes
from kctl.store.errors import (
    ControllerMovedError,
    LostDataError,
    MultiError,
    NodeExistsError,
    NoNodeError,
)
from kctl.store.interface import ANY_VERSION, Create, Delete, Operation, Set, Stat, Watch
from kctl.store.znode_client import ZnodeClient
from kctl.store.znodes import FeatureStatus, ProducerIdBlock, VersionRange

MAX_PRODUCER_ID = (1 << 63) - 1


class BrokerRegistry(ZnodeClient):
    """Live brokers, the controller, and the counters that the cluster shares."""

    async def ensure_persistent_paths(self) -> None:
        """Create the znodes that every Kafka cluster has, if they are missing."""
        missing = await self.call_all(
            [partial(self.store.exists, path) for path in znodes.PERSISTENT_PATHS]
        )
        for path, stat in zip(znodes.PERSISTENT_PATHS, missing, strict=True):
            if stat is None:
                await self.make_path(path)

    # --- the cluster

    async def get_cluster_id(self) -> str | None:
        """Return the cluster's id, or None if it has none yet."""
        found = await self.get(znodes.CLUSTER_ID)
        return znodes.decode_cluster_id(found[0]) if found else None

    async def create_or_get_cluster_id(self, proposed: str) -> str:
        """Set the cluster's id to `proposed` unless it has one, and return the id in effect."""
        try:
            await self.create_recursive(znodes.CLUSTER_ID, znodes.encode_cluster_id(proposed))
        except NodeExistsError:
            return await self.get_cluster_id() or proposed
        return proposed

    async def next_producer_id_block(self) -> int:
        """Return the first producer id that no broker has reserved."""
        found = await self.get(znodes.PRODUCER_ID_BLOCK)
        if found is None or not found[0]:
            return 0
        return znodes.decode_producer_id_block(found[0]).last + 1

    async def allocate_producer_id_block(self, broker_id: int, after: int = -1) -> ProducerIdBlock:
        """Reserve the next 1,000 producer ids above `after` for this broker; raise KctlError when
        ids run out.

        Raise LostDataError if the store has no /cluster/id: an emptied store would begin with ids
        that producers have, and the sequence numbers of two producers would be taken for those of
        one.
        """
        while True:
            await self._check_has_data()
            found = await self.get(znodes.PRODUCER_ID_BLOCK)
            if found is None:
                await self.make_path(znodes.PRODUCER_ID_BLOCK)
                continue
            data, stat = found
            first = znodes.decode_producer_id_block(data).last + 1 if data else 0
            first = max(first, after + 1)
            last = first + znodes.PRODUCER_ID_BLOCK_SIZE - 1
            if last > MAX_PRODUCER_ID:
                raise KctlError("no producer ids are left")
            block = ProducerIdBlock(broker_id, first, last)
            encoded = znodes.encode_producer_id_block(block)
            if await self.conditional_set(znodes.PRODUCER_ID_BLOCK, encoded, stat.version) is None:
                # Lost the race, or won it and lost the response: the znode shows which.
                again = await self.get(znodes.PRODUCER_ID_BLOCK)
                if again is None or again[0] != encoded:
                    continue
            # It may have lost its data just before the block was written.
            await self._check_has_data()
            return block

    async def _check_has_data(self) -> None:
        if await self.get_cluster_id() is None:
            raise LostDataError(znodes.CLUSTER_ID)

    async def generate_broker_sequence_id(self) -> int:
        """Return 1, then 2, and so on; reserved.broker.max.id plus this is a new broker's id."""
        call = partial(self.store.set, znodes.BROKER_SEQUENCE_ID, znodes.NO_DATA)
        try:
            return (await self.call(call)).version
        except NoNodeError:
            await self.make_path(znodes.BROKER_SEQUENCE_ID)
            return (await self.call(call)).version

    async def get_feature(
        self, watch: Watch | None = None
    ) -> tuple[FeatureStatus, dict[str, VersionRange], int] | None:
        """Return the finalized features and the znode's version; None (and no watch) if it is
        missing."""
        found = await self.get(znodes.FEATURE, watch)
        return (*znodes.decode_feature(found[0]), found[1].version) if found else None

    async def set_or_create_feature(
        self, status: FeatureStatus, features: Mapping[str, VersionRange]
    ) -> int:
        """Write `/feature` and return its new version."""
        data = znodes.encode_feature(status, features)
        try:
            stat = await self.call(partial(self.store.set, znodes.FEATURE, data))
        except NoNodeError:
            _, stat = await self.call(partial(self.store.create, znodes.FEATURE, data))
        return stat.version

    # --- brokers

    async def register_broker(
        self,
        broker: BrokerInfo,
        *,
        timestamp_ms: int,
        jmx_port: int = -1,
        features: Mapping[str, VersionRange] | None = None,
        version: int = 5,
    ) -> int:
        """Register a broker for the lifetime of this session and return its epoch.

        Create and set are one multi, as in Kafka: the Stat of the set has the czxid. Raises
        NodeExistsError if another session holds this broker id.
        """
        path = znodes.broker_path(broker.broker_id)
        data = znodes.encode_broker(
            broker, timestamp_ms=timestamp_ms, jmx_port=jmx_port, features=features, version=version
        )
        operations: list[Operation] = [
            Create(path, znodes.NO_DATA, ephemeral=True),
            Set(path, data, 0),
        ]
        try:
            results = await self.call(partial(self.store.multi, operations))
        except MultiError as error:
            if not isinstance(error.error, NodeExistsError):
                raise error.error from None
            return await self._own_broker_epoch(path, error.error)
        return cast(Stat, results[1]).czxid

    async def _own_broker_epoch(self, path: str, taken: NodeExistsError) -> int:
        # The registration succeeded and its response was lost: then the znode is this session's.
        stat = await self.call(partial(self.store.exists, path))
        if stat is None or stat.ephemeral_owner != self.store.session_id:
            raise taken
        return stat.czxid

    async def update_broker(
        self,
        broker: BrokerInfo,
        *,
        timestamp_ms: int,
        jmx_port: int = -1,
        features: Mapping[str, VersionRange] | None = None,
        version: int = 5,
    ) -> None:
        """Announce changed listeners of a registered broker; raise NoNodeError."""
        data = znodes.encode_broker(
            broker, timestamp_ms=timestamp_ms, jmx_port=jmx_port, features=features, version=version
        )
        await self.call(partial(self.store.set, znodes.broker_path(broker.broker_id), data))

    async def get_broker_ids(self, watch: Watch | None = None) -> list[int]:
        """Return the ids of live brokers, ascending; `watch` fires when a broker comes or goes."""
        return sorted(map(int, await self.children(znodes.BROKER_IDS, watch)))

    async def get_broker(self, broker_id: int, watch: Watch | None = None) -> BrokerInfo | None:
        """Return a live broker with its epoch; `watch` fires when its listeners change."""
        brokers = await self.get_brokers([broker_id], watch)
        return brokers.get(broker_id)

    async def get_brokers(
        self, broker_ids: Sequence[int], watch: Watch | None = None
    ) -> dict[int, BrokerInfo]:
        """Return those of `broker_ids` that are alive, in the order given."""
        found = await self.get_all([znodes.broker_path(n) for n in broker_ids], watch)
        return {
            broker_id: znodes.decode_broker(broker_id, answer[0], answer[1].czxid)
            for broker_id, answer in zip(broker_ids, found, strict=True)
            if answer is not None
        }

    async def get_all_brokers(self) -> dict[int, BrokerInfo]:
        """Return all live brokers with their epochs, ascending."""
        return await self.get_brokers(await self.get_broker_ids())

    # --- the controller

    async def get_controller_id(self, watch: Watch | None = None) -> int | None:
        """Return the controller's broker id, or None.

        A watch is set only if there is a controller: to see one come, watch `exists(CONTROLLER)`.
        """
        found = await self.get(znodes.CONTROLLER, watch)
        return znodes.decode_controller(found[0]) if found else None

    async def get_controller_epoch(self) -> tuple[int, int] | None:
        """Return the controller epoch and its znode's version."""
        found = await self.get(znodes.CONTROLLER_EPOCH)
        return (znodes.decode_controller_epoch(found[0]), found[1].version) if found else None

    async def register_controller_and_increment_epoch(
        self, broker_id: int, *, timestamp_ms: int
    ) -> tuple[int, int]:
        """Become controller: create `/controller` and raise the epoch in one multi.

        Returns the new epoch and its znode's version, which fences all writes from now on. Raises
        ControllerMovedError if another broker is, or became, controller.
        """
        epoch, zk_version = await self._get_or_create_controller_epoch()
        new_epoch = epoch + 1
        operations: list[Operation] = [
            Create(
                znodes.CONTROLLER, znodes.encode_controller(broker_id, timestamp_ms), ephemeral=True
            ),
            Set(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(new_epoch), zk_version),
        ]
        try:
            results = await self.call(partial(self.store.multi, operations))
        except MultiError as error:
            # This session's, too, if only the response to its first attempt was lost.
            now = await self.get_controller_epoch()
            if await self.get_controller_id() == broker_id and now and now[0] == new_epoch:
                return now
            raise ControllerMovedError(znodes.CONTROLLER) from error
        return new_epoch, cast(Stat, results[1]).version

    async def _get_or_create_controller_epoch(self) -> tuple[int, int]:
        while True:
            found = await self.get_controller_epoch()
            if found is not None:
                return found
            data = znodes.encode_controller_epoch(znodes.INITIAL_CONTROLLER_EPOCH)
            try:
                await self.call(partial(self.store.create, znodes.CONTROLLER_EPOCH, data))
            except NodeExistsError:
                continue

    async def delete_controller(self, controller_epoch_zk_version: int = ANY_VERSION) -> None:
        """Resign, which starts a new election; raise ControllerMovedError if it started already."""
        try:
            await self.write(Delete(znodes.CONTROLLER), controller_epoch_zk_version)
        except NoNodeError:
            return
