"""Reads the arguments of KafkaBroker."""

from collections.abc import Iterable

from kctl.errors import UsageError

__all__ = ["parse_topic", "several"]


def parse_topic(text: str) -> tuple[str, int]:
    """Return name and partitions of "orders:3" or "orders"; UsageError for other texts."""
    name, colon, count = text.strip().partition(":")
    if not name or (colon and not (count.isdecimal() and int(count) > 0)):
        raise UsageError(f"Not a topic to seed: {text!r}", hint='e.g. "orders:3"')
    return name, int(count) if colon else 1


def several(name: str, texts: Iterable[str]) -> Iterable[str]:
    """Return `texts`; UsageError for a string, which is iterable, too."""
    if isinstance(texts, str):
        raise UsageError(f"{name}={texts!r} is a string", hint=f"pass a list: [{texts!r}]")
    return texts
