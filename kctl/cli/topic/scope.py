"""Parses the arguments `TOPIC` and `TOPIC:P,P`."""

from collections.abc import Sequence

from kctl.counts import is_whole_number
from kctl.errors import UsageError


def partitions_named(topics: Sequence[str]) -> dict[str, list[int] | None]:
    """Parse `TOPIC` and `TOPIC:P,P` to partitions by topic; None selects all of its partitions.

    The partitions of a topic that is named twice are added up.
    """
    wanted: dict[str, list[int] | None] = {}
    for text in topics:
        name, colon, numbers = text.partition(":")
        if not colon:
            wanted[name] = None
            continue
        if not all(map(is_whole_number, numbers.split(","))):
            raise UsageError(f"Not a topic with partitions: {text}", hint="e.g. orders:0,1")
        earlier = wanted.get(name, [])
        if earlier is not None:
            named = [*earlier, *(int(number) for number in numbers.split(","))]
            wanted[name] = list(dict.fromkeys(named))
    return wanted
