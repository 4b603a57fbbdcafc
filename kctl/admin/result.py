"""What is common to the answers about several items: each item carries its own error."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from kctl.errors import KctlError
from kctl.protocol.error_codes import ApiError, ErrorCode


class HasError(Protocol):
    """One item's outcome."""

    @property
    def error(self) -> KctlError | None:
        """Why it failed; None: it did not."""
        ...


ItemT = TypeVar("ItemT", bound=HasError)


def error_of(code: int, message: str | None = None) -> ApiError | None:
    """The error that a wire code (and the broker's words, if it sent any) stands for."""
    return None if code == 0 else ApiError(code, message)


def raise_for(code: int, message: str | None = None) -> None:
    """Raise the error that concerns a whole request."""
    if code:
        raise ApiError(code, message)


def failed(items: Iterable[ItemT]) -> list[ItemT]:
    """Those that failed."""
    return [item for item in items if item.error is not None]


def is_unknown_topic(error: KctlError | None) -> bool:
    """Whether the topic or partition does not exist (or may not be seen)."""
    return isinstance(error, ApiError) and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
