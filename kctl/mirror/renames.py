"""Rename: names the target's topics by those of the source. Pure.

`identity` keeps names; `prefix` is MirrorMaker 2's `ALIAS.topic`; anything else is a template with
`{topic}`, and perhaps `{source}` for the alias of the source.

Kafka 2.7: org.apache.kafka.connect.mirror.ReplicationPolicy
"""

import string

from kctl.errors import UsageError
from kctl.lazy_dataclass import dataclass

IDENTITY = "identity"
PREFIX = "prefix"
_FIELDS = {"topic", "source"}


@dataclass(frozen=True, slots=True)
class Rename:
    """A rule for names; make it with `parse_rename`."""

    template: str
    alias: str = ""

    def __call__(self, topic: str) -> str:
        """Return the name in the target of `topic` of the source."""
        return self.template.format(topic=topic, source=self.alias)


def parse_rename(text: str, alias: str | None = None) -> Rename:
    """Return the rule that `text` describes; raise UsageError if it is none, or needs an alias."""
    template = {IDENTITY: "{topic}", PREFIX: "{source}.{topic}"}.get(text, text)
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise UsageError(f"Not a template: {text}: {error}") from None
    names = [name for _, name, _, _ in parts if name is not None]
    is_plain = all(not spec and not change for _, name, spec, change in parts if name is not None)
    if "topic" not in names or not _FIELDS.issuperset(names) or not is_plain:
        raise UsageError(
            f"--rename takes identity, prefix or a template with {{topic}}, not {text!r}",
            hint="e.g. --rename 'dc1.{topic}'",
        )
    if "source" in names and not alias:
        raise UsageError(
            f"--rename {text} needs a name for the source", hint="e.g. --source-alias dc1"
        )
    return Rename(template, alias or "")
