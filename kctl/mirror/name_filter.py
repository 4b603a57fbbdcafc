"""NameFilter: selects names by Java's regular expressions, as MirrorMaker 1 and 2 do. Pure.

Kafka 2.7: org.apache.kafka.connect.mirror.DefaultTopicFilter, DefaultGroupFilter
"""

from collections.abc import Mapping
from typing import Any

from kctl.lazy_dataclass import dataclass
from kctl.store.topic_filter import Whitelist


@dataclass(frozen=True, slots=True)
class NameFilter:
    """Names that match one list of Java's regular expressions, and not another."""

    included: Whitelist
    excluded: Whitelist | None = None
    # The target's alias and the separator: topics that came from there are not copied back.
    target: tuple[str, str] | None = None

    def __call__(self, name: str) -> bool:
        """Return whether `name` is selected."""
        if self.target is not None:
            alias, separator = self.target
            if alias in name.split(separator)[:-1]:
                return False
        if self.excluded is not None and self.excluded.allows(name, exclude_internal_topics=False):
            return False
        return self.included.allows(name, exclude_internal_topics=False)

    def document(self) -> dict[str, Any]:
        """Return the filter as JSON; `parse_name_filter` reads it."""
        return {
            "included": self.included.regex,
            "excluded": None if self.excluded is None else self.excluded.regex,
            "target": None if self.target is None else list(self.target),
        }


def parse_name_filter(document: Mapping[str, Any]) -> NameFilter:
    """Return the filter of a document; raise KeyError, TypeError, ValueError or UsageError."""
    excluded, target = document["excluded"], document["target"]
    found = None
    if target is not None:
        alias, separator = map(str, target)
        found = alias, separator
    return NameFilter(
        Whitelist(document["included"]), None if excluded is None else Whitelist(excluded), found
    )
