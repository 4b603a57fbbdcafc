"""Announcements: sequential znodes by which brokers learn that others changed something.

A change is written first and then announced below a directory of its kind, which every broker
watches. Announcements are deleted when they are old, not when they are read: no broker knows which
others have read them.

Kafka 2.7: kafka.common.ZkNodeChangeNotificationListener.
"""

from collections.abc import Iterable
from functools import partial

from kctl.store.interface import Watch
from kctl.store.znode_client import ZnodeClient


class Announcements(ZnodeClient):
    """The announcements of one directory, such as `/config/changes`."""

    async def get_announcement_names(self, directory: str, watch: Watch | None = None) -> list[str]:
        """Return the names of existing announcements, oldest first; `watch` fires for new ones."""
        return await self.children(directory, watch)

    async def purge_announcements(
        self, directory: str, names: Iterable[str], older_than_ms: int
    ) -> None:
        """Delete those of these announcements that were made before `older_than_ms` (wall
        clock)."""
        paths = [f"{directory}/{name}" for name in names]
        stats = await self.call_all([partial(self.store.exists, path) for path in paths])
        old = [
            path
            async for path, stat in self.over_turns(zip(paths, stats, strict=True))
            if isinstance(stat, tuple) and stat.ctime_ms < older_than_ms
        ]
        await self.delete_all(old)
