"""LaterApi: APIs and versions of Kafka 2.8 to 4.1, which the client speaks and no broker serves.

A row lists the versions after those of 2.7, or all versions of an API that 2.7 does not have. An
API that both tables have is the same number in both. Its message classes in `later` have the later
versions alone, so a request of `messages` is sent as Kafka 2.7 would send it, whatever the broker
supports, and only code that needs a later version names its class. Kafka 4.1: ApiKeys.
"""

from importlib import import_module
from typing import Any

from kctl.protocol.api_keys import Api


class LaterApi(Api):
    """An API: number, first and last version, first flexible version, and the release of Kafka
    that introduced the first version."""

    since: str
    # Only brokers of a cluster without ZooKeeper have it.
    is_kraft_only: bool

    def __new__(
        cls,
        number: int,
        min_version: int,
        max_version: int,
        flexible_from: int,
        since: str,
        is_kraft_only: bool = False,
    ) -> "LaterApi":
        """Store the facts beside the number."""
        self = int.__new__(cls, number)
        self._value_ = number
        self.min_version, self.max_version = min_version, max_version
        self.flexible_from = flexible_from
        self.since, self.is_kraft_only = since, is_kraft_only
        self.is_cluster_action = False
        self._request_class = self._response_class = None
        return self

    LIST_OFFSETS = 2, 7, 10, 6, "3.0"
    METADATA = 3, 10, 12, 9, "2.8"
    LIST_GROUPS = 16, 5, 5, 3, "3.8"
    API_VERSIONS = 18, 4, 4, 3, "3.9"
    DESCRIBE_QUORUM = 55, 0, 2, 0, "3.3", True
    UPDATE_FEATURES = 57, 1, 2, 0, "3.3", True
    CONSUMER_GROUP_DESCRIBE = 69, 0, 1, 0, "3.8"
    DESCRIBE_TOPIC_PARTITIONS = 75, 0, 0, 0, "3.8", True
    SHARE_GROUP_DESCRIBE = 77, 1, 1, 0, "4.1", True
    STREAMS_GROUP_DESCRIBE = 89, 0, 0, 0, "4.1", True
    DESCRIBE_SHARE_GROUP_OFFSETS = 90, 0, 0, 0, "4.1", True

    @property
    def origin(self) -> str:
        """Return the first release that has it, for messages: "Kafka 3.3 in KRaft mode"."""
        return f"Kafka {self.since}" + (" in KRaft mode" if self.is_kraft_only else "")

    def _import_class(self, kind: str) -> type[Any]:
        module = import_module(f"kctl.protocol.later.{self.name.lower()}")
        message_class: type[Any] = getattr(module, self.title + kind)
        return message_class
