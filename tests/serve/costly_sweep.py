"""Each API in turn, for the search of the costliest turn: all its arrays, as long as bytes allow.

A request is sent by an administrator and by a client without permissions, once with elements that
the broker does not have and once with those that it has. APIs without arrays are sent as often as
there are bytes for.
"""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any

from kctl.protocol.acl import ResourceType
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct
from tests.serve import bad_frames
from tests.support.filled_requests import Path, array_paths, filled

# Requests that stop or redirect the broker under test, which then serves no other candidate.
SPOILERS = {ApiKey.CONTROLLED_SHUTDOWN, ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA,
            ApiKey.UPDATE_METADATA}  # fmt: skip
# A topic, group and transactional id.
KNOWN = "wide"
# The hexadecimal names of elements grow, and a frame has a header.
ROOM_BYTES = 200


@dataclass(frozen=True)
class Sweep:
    """One request of an API, with one long array."""

    api: ApiKey
    # The names that lead to the array; empty: the API has none.
    path: Path
    is_known: bool
    is_stranger: bool

    @property
    def is_spoiler(self) -> bool:
        """Whether the broker serves nothing else afterwards."""
        return self.api in SPOILERS and not self.is_stranger

    def data(self, bytes_max: int) -> bytes:
        """All that is sent: one frame, or many small ones."""
        if not self.path:
            frame = self._frame(0)
            return frame * max(bytes_max // len(frame), 1)
        few, more = len(self._frame(10)), len(self._frame(110))
        count = max((bytes_max - few - ROOM_BYTES) * 100 // max(more - few, 1), 1)
        while len(frame := self._frame(count)) > bytes_max:
            count = count * 9 // 10
        return frame

    def _frame(self, count: int) -> bytes:
        version = self.api.max_version
        is_named = self.is_known and count > 0
        message = filled(
            self.api.request_class, version, self.path, 1 if is_named else count, KNOWN
        )
        if is_named:
            _repeat(message, self.path, count)
        return bad_frames.asked(message, version)

    def __str__(self) -> str:
        who = "stranger" if self.is_stranger else "admin"
        what = "known" if self.is_known else "absent"
        return f"{self.api.name} {'.'.join(self.path) or 'again and again'}, {what}, by {who}"


def all_sweeps() -> Iterator[Sweep]:
    """Yield every request; those after which the broker is of no use come last."""
    yield from sorted(_sweeps(), key=lambda sweep: sweep.is_spoiler)


def _sweeps() -> Iterator[Sweep]:
    for api in ApiKey:
        paths = list(array_paths(api.request_class, api.max_version)) or [()]
        for path in paths:
            for is_known in (False, True) if path else (True,):
                for is_stranger in (False, True):
                    yield Sweep(api, path, is_known, is_stranger)


def _repeat(message: Message, path: Path, count: int) -> None:
    """Give the array at `path` so many elements that the broker has: topics, their partitions."""
    struct: Any = message
    for name in path[:-1]:
        struct = getattr(struct, name)[0]
        _make_known(struct)
    (element,) = getattr(struct, path[-1])
    if isinstance(element, str):
        elements: list[Any] = [KNOWN] * count
    elif isinstance(element, Struct):
        elements = [_known_element(element, number) for number in range(count)]
    else:
        elements = [element] if count == 1 else [element, *range(1, count)]
    setattr(struct, path[-1], elements)


def _known_element(element: Any, number: int) -> Any:
    element = copy(element)
    numbered = (it.name for it in element.fields if it.kind == "int32" and "partition" in it.name)
    for name in list(numbered)[:1]:
        setattr(element, name, number)
    _make_known(element)
    return element


def _make_known(struct: Any) -> None:
    for field in struct.fields:
        if field.kind == "string" and field.name in ("name", "topic", "topic_name",
                                                     "resource_name", "group_id"):  # fmt: skip
            setattr(struct, field.name, KNOWN)
        elif field.name == "resource_type":
            setattr(struct, field.name, int(ResourceType.TOPIC))
