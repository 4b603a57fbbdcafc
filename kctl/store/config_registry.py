"""ConfigRegistry: dynamic configs and quotas of topics, brokers, clients, users and IPs, as znodes.

A changed config is announced by a sequential znode below `/config/changes`, which every broker
watches; both are one transaction. The caller sanitizes entity names (`znodes.sanitize`).

Kafka 2.7: kafka.zk.AdminZkClient, kafka.common.ZkNodeChangeNotificationListener; KIP-226.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from kctl.store import znodes
from kctl.store.errors import NodeExistsError
from kctl.store.interface import Create
from kctl.store.znode_client import ZnodeClient
from kctl.work import Work


class ConfigRegistry(ZnodeClient):
    """Overrides per entity, and the announcements of their changes."""

    async def get_entity_config(self, entity_type: str, entity_name: str) -> dict[str, str]:
        """Return the overrides of one entity; empty if it has none."""
        configs = await self.get_entity_configs(entity_type, [entity_name])
        return configs[entity_name]

    async def get_entity_configs(
        self, entity_type: str, entity_names: Sequence[str]
    ) -> dict[str, dict[str, str]]:
        """Return the overrides of many entities, empty where there are none."""
        paths = [znodes.config_path(entity_type, name) for name in entity_names]
        found = await self.get_all(paths)
        return {
            name: znodes.decode_config(f"{entity_type}/{name}", answer[0]) if answer else {}
            async for name, answer in self.over_turns(zip(entity_names, found, strict=True))
        }

    async def get_entities_with_config(self, entity_type: str) -> list[str]:
        """Return names of the entities that have a znode, sorted; `<default>` may be among them."""
        return await self.children(znodes.config_type_path(entity_type))

    async def get_clients_of_users(self, users: Sequence[str]) -> dict[str, list[str]]:
        """Return the clients with configs of their own below each of these users, sorted."""
        paths = [
            znodes.config_path(znodes.USER_CONFIGS, f"{user}/{znodes.CLIENT_CONFIGS}")
            for user in users
        ]
        found = await self.call_all([partial(self.store.children, path) for path in paths])
        return {
            user: answer if isinstance(answer, list) else []
            async for user, answer in self.over_turns(zip(users, found, strict=True))
        }

    async def set_entity_config(
        self, entity_type: str, entity_name: str, config: Mapping[str, str]
    ) -> None:
        """Replace an entity's overrides without announcing it (a new topic's config)."""
        path = znodes.config_path(entity_type, entity_name)
        data = znodes.encode_config(config)
        try:
            # One call: a new entity rarely has overrides left from an earlier one.
            await self.create_recursive(path, data)
        except NodeExistsError:
            await self.set_or_create(path, data)

    async def change_entity_config(
        self, entity_type: str, entity_name: str, config: Mapping[str, str]
    ) -> None:
        """Replace an entity's overrides and announce it, in one transaction."""

        def change(_: bytes | None) -> Work[bytes]:
            yield from ()
            return znodes.encode_config(config)

        await self._change(entity_type, entity_name, change)

    async def update_entity_config(
        self,
        entity_type: str,
        entity_name: str,
        update: Callable[[Mapping[str, str]], Mapping[str, str]],
    ) -> None:
        """Replace an entity's overrides by `update` of those in the store, and announce it, in one
        transaction.

        Concurrent changes are not lost; `update` may be called several times.
        """

        def change(data: bytes | None) -> Work[bytes]:
            yield from ()
            config = znodes.decode_config(f"{entity_type}/{entity_name}", data) if data else {}
            return znodes.encode_config(update(config))

        await self._change(entity_type, entity_name, change)

    async def _change(
        self, entity_type: str, entity_name: str, change: Callable[[bytes | None], Work[bytes]]
    ) -> None:
        announcement = Create(
            f"{znodes.CONFIG_CHANGES}/{znodes.CONFIG_CHANGE_PREFIX}",
            znodes.encode_config_change(f"{entity_type}/{entity_name}"),
            sequence=True,
        )
        path = znodes.config_path(entity_type, entity_name)
        await self.update_and_announce(path, change, announcement)

    async def get_config_changes(self, names: Sequence[str]) -> dict[str, str]:
        """Return the entity path of each of these announcements that still exists."""
        found = await self.get_all([f"{znodes.CONFIG_CHANGES}/{name}" for name in names])
        return {
            name: znodes.decode_config_change(answer[0])
            async for name, answer in self.over_turns(zip(names, found, strict=True))
            if answer is not None
        }
