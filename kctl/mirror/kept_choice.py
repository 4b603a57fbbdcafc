"""Which topics a mirror selects, as it keeps this in its target.

The group `kctl-mirror.NAME` of the target has committed offset 0 for the partition of the map,
which nothing is copied to. The metadata say in JSON which topics of the source the mirror selects,
and what they are called in the target; or, if that is too long for the target, that it is not kept.
So the lag of a topic of which nothing was copied yet is known, too.
"""

import json
from typing import Any

from kctl.errors import UsageError
from kctl.mirror.name_filter import parse_name_filter
from kctl.mirror.renames import parse_rename
from kctl.mirror.topics import TopicChoice

_VERSION = 1
# What is committed in place of a choice that is too long (offset.metadata.max.bytes).
NOT_KEPT = f'{{"kctl-mirror":{_VERSION}}}'


def encode_choice(choice: TopicChoice) -> str:
    """Return the metadata to commit."""
    found: dict[str, Any] = {
        "topics": list(choice.patterns),
        "exclude": list(choice.exclude),
        "rename": [choice.rename.template, choice.rename.alias],
        "mm2": choice.has_mm2_topics,
    }
    if choice.name_filter is not None:
        found["filter"] = choice.name_filter.document()
    return json.dumps({"kctl-mirror": _VERSION, "selects": found}, separators=(",", ":"))


def decode_choice(metadata: str) -> TopicChoice | None:
    """Return which topics a mirror selects and renames; None if the metadata do not say so."""
    try:
        # Clients on librdkafka that commit what they have read add the NUL of a C string.
        document = json.loads(metadata.rstrip("\0"))
        if document["kctl-mirror"] != _VERSION:
            return None
        found = document["selects"]
        template, alias = map(str, found["rename"])
        name_filter = found.get("filter")
        return TopicChoice(
            tuple(map(str, found["topics"])),
            tuple(map(str, found["exclude"])),
            parse_rename(template, alias),
            name_filter=None if name_filter is None else parse_name_filter(name_filter),
            has_mm2_topics=bool(found["mm2"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError, UsageError):
        return None
