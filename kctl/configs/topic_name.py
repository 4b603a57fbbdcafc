"""Checks the names of topics.

Kafka 2.7: org.apache.kafka.common.internals.Topic (`validate`)
"""

import re

from kctl.protocol.error_codes import ApiError, ErrorCode

TOPIC_NAME_LENGTH_MAX = 249
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION unless `name` is valid."""
    if not name:
        raise _invalid_name("Topic name is illegal, it can't be empty")
    if name in (".", ".."):
        raise _invalid_name('Topic name cannot be "." or ".."')
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        raise _invalid_name(
            f"Topic name is illegal, it can't be longer than {TOPIC_NAME_LENGTH_MAX} characters, "
            f"topic name: {name}"
        )
    if not _TOPIC_NAME.fullmatch(name):
        raise _invalid_name(
            f'Topic name "{name}" is illegal, it contains a character other than ASCII '
            "alphanumerics, '.', '_' and '-'"
        )


def _invalid_name(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
