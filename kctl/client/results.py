"""Results of requests for several items, each of which carries its own error."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from kctl.errors import KctlError
from kctl.protocol.error_codes import ApiError, ErrorCode


class HasError(Protocol):
    """The result of one item."""

    @property
    def error(self) -> KctlError | None:
        """Return why the item failed; None if it succeeded."""
        ...


ItemT = TypeVar("ItemT", bound=HasError)


def error_of(code: int, message: str | None = None) -> ApiError | None:
    """Return the exception for an error code and the broker's message, if any; None for code 0."""
    return None if code == 0 else ApiError(code, message)


def raise_for(code: int, message: str | None = None) -> None:
    """Raise the error of a whole request, unless `code` is 0."""
    if code:
        raise ApiError(code, message)


def failed(items: Iterable[ItemT]) -> list[ItemT]:
    """Return the items that failed."""
    return [item for item in items if item.error is not None]


def is_unknown_topic(error: KctlError | None) -> bool:
    """Return whether the topic or partition does not exist, or may not be seen."""
    return isinstance(error, ApiError) and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
