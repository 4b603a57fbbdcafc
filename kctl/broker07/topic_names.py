"""The topic names that a broker of Kafka 0.7 accepts: those of 0.7.2, and what a directory can be.

Earlier releases check nothing but that there is a name: with them `a/b` makes a directory in a
directory, and `../x` one outside of `log.dir`.

Kafka 0.7.2: kafka.utils.TopicNameValidator
"""

import re

from kctl.storage.layout import NAME_MAX

# A hyphen and a partition of up to ten digits follow the name.
_PARTITION_BYTES = 11
_ILLEGAL = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
_PATHS = (".", "..")


def fault_of_name(topic: str, length_max: int) -> str | None:
    """Return why `topic` cannot be a topic's name, or None if it can."""
    if not topic:
        return "a topic without a name"
    if topic in _PATHS or _ILLEGAL.search(topic):
        return f"the topic name {topic[:80]!r} is illegal"
    if len(topic) > length_max or len(topic.encode()) + _PARTITION_BYTES > NAME_MAX:
        return f"a topic name of {len(topic)} characters is too long"
    return None
