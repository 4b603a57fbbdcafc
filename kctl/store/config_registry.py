"""ConfigRegistry: dynamic configs and quotas of topics, brokers, clients, users and IPs, as znodes.

A config is written first and then announced by a sequential znode below `/config/changes`, which
every broker watches. Entity names have to be sanitized by the caller (`znodes.sanitize`).

Kafka 2.7: kafka.zk.AdminZkClient, kafka.common.ZkNodeChangeNotificationListener; KIP-226.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from kctl.store import znodes
from kctl.store.interface import Watch
from kctl.store.znode_client import ZnodeClient


class ConfigRegistry(ZnodeClient):
    """Overrides per entity, and the announcements of their changes."""

    async def get_entity_config(self, entity_type: str, entity_name: str) -> dict[str, str]:
        """Overrides of one entity; empty if it has none."""
        configs = await self.get_entity_configs(entity_type, [entity_name])
        return configs[entity_name]

    async def get_entity_configs(
        self, entity_type: str, entity_names: Sequence[str]
    ) -> dict[str, dict[str, str]]:
        """Overrides of many entities, empty for those that have none."""
        paths = [znodes.config_path(entity_type, name) for name in entity_names]
        found = await self.get_all(paths)
        return {
            name: znodes.decode_config(f"{entity_type}/{name}", answer[0]) if answer else {}
            for name, answer in zip(entity_names, found, strict=True)
        }

    async def get_entities_with_config(self, entity_type: str) -> list[str]:
        """Names of the entities that have a znode, sorted; `<default>` may be among them."""
        return await self.children(znodes.config_type_path(entity_type))

    async def set_entity_config(
        self, entity_type: str, entity_name: str, config: Mapping[str, str]
    ) -> None:
        """Replace an entity's overrides without telling anybody (a new topic's config)."""
        path = znodes.config_path(entity_type, entity_name)
        await self.set_or_create(path, znodes.encode_config(config))

    async def change_entity_config(
        self, entity_type: str, entity_name: str, config: Mapping[str, str]
    ) -> None:
        """Replace an entity's overrides and announce it."""
        await self.set_entity_config(entity_type, entity_name, config)
        await self.create_config_change_notification(f"{entity_type}/{entity_name}")

    async def create_config_change_notification(self, entity_path: str) -> str:
        """Announce that `/config/<entity_path>` changed; the path of the announcement."""
        await self.make_path(znodes.CONFIG_CHANGES)
        prefix = f"{znodes.CONFIG_CHANGES}/{znodes.CONFIG_CHANGE_PREFIX}"
        return await self.create_sequential(prefix, znodes.encode_config_change(entity_path))

    async def get_config_change_names(self, watch: Watch | None = None) -> list[str]:
        """Names of the announcements there are, oldest first; `watch` sees more come."""
        return await self.children(znodes.CONFIG_CHANGES, watch)

    async def get_config_changes(self, names: Sequence[str]) -> dict[str, str]:
        """Entity path of each of these announcements that is still there."""
        found = await self.get_all([f"{znodes.CONFIG_CHANGES}/{name}" for name in names])
        return {
            name: znodes.decode_config_change(answer[0])
            for name, answer in zip(names, found, strict=True)
            if answer is not None
        }

    async def purge_config_changes(self, names: Iterable[str], older_than_ms: int) -> None:
        """Delete those of these announcements that were made before `older_than_ms` (wall)."""
        paths = [f"{znodes.CONFIG_CHANGES}/{name}" for name in names]
        stats = await self.call_all([partial(self.store.exists, path) for path in paths])
        old = [
            path
            for path, stat in zip(paths, stats, strict=True)
            if isinstance(stat, tuple) and stat.ctime_ms < older_than_ms
        ]
        await self.delete_all(old)
