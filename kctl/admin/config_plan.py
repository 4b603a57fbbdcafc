"""Which changes of a topic's settings may make the broker delete records. Pure.

A shorter retention, and a cleanup policy that newly deletes or compacts. Kafka 2.7: the rules of
kafka.log.Log (`deleteOldSegments`) and kafka.log.LogCleaner.
"""

from typing import TYPE_CHECKING, NamedTuple

from kctl.admin.configs import ConfigChanges, ConfigDescription, ConfigOperation, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterator

_RETENTION = ("retention.ms", "retention.bytes")
_FOREVER = -1
_POLICY = "cleanup.policy"


class Loss(NamedTuple):
    """A setting whose change may cost records; new None: back to the default."""

    name: str
    old: str | None
    new: str | None


def losses(current: ConfigDescription, changes: ConfigChanges) -> list[Loss]:
    """Those of `changes` that may delete records, given the settings as they are."""
    if current.resource.resource_type is not ResourceType.TOPIC:
        return []
    return list(_losses(current, changes))


def _losses(current: ConfigDescription, changes: ConfigChanges) -> "Iterator[Loss]":
    values = {entry.name: entry.value for entry in current.entries}
    own = {entry.name for entry in current.entries if not entry.is_default}
    for name, operation, value in changes.operations():
        old = values.get(name)
        if operation is ConfigOperation.DELETE:
            # What the default is, is for the broker to say: any own retention may be shortened.
            if name in own and name in (*_RETENTION, _POLICY):
                yield Loss(name, old, None)
        elif (name in _RETENTION and _is_shorter(old, value)) or (
            name == _POLICY
            and operation is not ConfigOperation.SUBTRACT
            and _items(value) - _items(old)
        ):
            yield Loss(name, old, value)


def _is_shorter(old: str | None, new: str | None) -> bool:
    try:
        before, after = int(old or _FOREVER), int(new or _FOREVER)
    except ValueError:
        return False  # the broker will refuse it
    return after >= 0 and (before < 0 or after < before)


def _items(text: str | None) -> set[str]:
    return {item.strip() for item in (text or "").split(",") if item.strip()}
