"""Notifications: short-lived sequential znodes by which brokers notify the controller.

Kafka 2.7: kafka.zk.KafkaZkClient (isr_change_notification, log_dir_event_notification).
"""

from collections.abc import Iterable, Sequence

from kctl.errors import CorruptDataError
from kctl.model import TopicPartition
from kctl.store import znodes
from kctl.store.interface import ANY_VERSION, Watch
from kctl.store.znode_client import OnCorrupt, ZnodeClient


class Notifications(ZnodeClient):
    """ISRs that leaders changed themselves, and log directories that failed."""

    async def propagate_isr_changes(self, partitions: Iterable[TopicPartition]) -> str:
        """Notify the controller of changed ISRs (inter-broker protocol below 2.7-IV2)."""
        prefix = f"{znodes.ISR_CHANGE_NOTIFICATIONS}/{znodes.ISR_CHANGE_PREFIX}"
        return await self.create_sequential(prefix, znodes.encode_isr_change(partitions))

    async def get_isr_change_names(self, watch: Watch | None = None) -> list[str]:
        """Return the names of existing notifications, oldest first; `watch` fires for new ones."""
        return await self.children(znodes.ISR_CHANGE_NOTIFICATIONS, watch)

    async def get_isr_changes(
        self, names: Sequence[str], on_corrupt: OnCorrupt
    ) -> list[TopicPartition]:
        """Return the partitions that these notifications name.

        `on_corrupt` gets the error of each that cannot be read; it names none.
        """
        paths = [f"{znodes.ISR_CHANGE_NOTIFICATIONS}/{name}" for name in names]
        found = await self.get_all(paths)
        partitions: list[TopicPartition] = []
        for answer in found:
            if answer is not None:
                try:
                    partitions += znodes.decode_isr_change(answer[0])
                except CorruptDataError as error:
                    on_corrupt(error)
        return partitions

    async def delete_isr_changes(
        self, names: Iterable[str], controller_epoch_zk_version: int = ANY_VERSION
    ) -> None:
        """Delete these notifications."""
        paths = [f"{znodes.ISR_CHANGE_NOTIFICATIONS}/{name}" for name in names]
        await self.delete_all(paths, controller_epoch_zk_version)

    async def propagate_log_dir_event(self, broker_id: int) -> str:
        """Notify the controller that a log directory of the broker failed."""
        prefix = f"{znodes.LOG_DIR_EVENTS}/{znodes.LOG_DIR_EVENT_PREFIX}"
        return await self.create_sequential(prefix, znodes.encode_log_dir_event(broker_id))

    async def get_log_dir_event_names(self, watch: Watch | None = None) -> list[str]:
        """Return the names of existing notifications, oldest first; `watch` fires for new ones."""
        return await self.children(znodes.LOG_DIR_EVENTS, watch)

    async def get_log_dir_event_brokers(
        self, names: Sequence[str], on_corrupt: OnCorrupt
    ) -> list[int]:
        """Return the brokers that these notifications name.

        `on_corrupt` gets the error of each that cannot be read; it names none.
        """
        found = await self.get_all([f"{znodes.LOG_DIR_EVENTS}/{name}" for name in names])
        broker_ids: list[int] = []
        for answer in found:
            if answer is not None:
                try:
                    broker_ids.append(znodes.decode_log_dir_event(answer[0]))
                except CorruptDataError as error:
                    on_corrupt(error)
        return broker_ids

    async def delete_log_dir_events(
        self, names: Iterable[str], controller_epoch_zk_version: int = ANY_VERSION
    ) -> None:
        """Delete these notifications."""
        paths = [f"{znodes.LOG_DIR_EVENTS}/{name}" for name in names]
        await self.delete_all(paths, controller_epoch_zk_version)
