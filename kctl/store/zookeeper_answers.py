"""What kazoo answers, as results and errors of a MetadataStore."""

from collections.abc import Sequence
from typing import Any

from kazoo.exceptions import KazooException  # type: ignore[import-untyped]

from kctl.store import errors
from kctl.store.errors import MultiError, StoreError
from kctl.store.interface import Create, Operation, Set, Stat

# Names of kazoo's exceptions.
_ERRORS: dict[str, type[StoreError]] = {
    "NoNodeError": errors.NoNodeError,
    "NodeExistsError": errors.NodeExistsError,
    "BadVersionError": errors.BadVersionError,
    "NotEmptyError": errors.NotEmptyError,
    "NoChildrenForEphemeralsError": errors.NoChildrenForEphemeralsError,
    "BadArgumentsError": errors.BadArgumentsError,
    "SessionExpiredError": errors.SessionExpiredError,
    "SessionMovedError": errors.ConnectionLossError,
    "ConnectionLoss": errors.ConnectionLossError,
    "ConnectionClosedError": errors.ConnectionLossError,
    "NoAuthError": errors.AuthFailedError,
    "AuthFailedError": errors.AuthFailedError,
    # kazoo itself raises this for a path like "/a/../b".
    "ValueError": errors.BadArgumentsError,
}
# Errors of a multi's operations that did not fail themselves.
_BYSTANDERS = ("RolledBackError", "RuntimeInconsistency")


def store_error(error: BaseException, path: str) -> StoreError:
    """Return the error of a store for an exception of kazoo."""
    name = type(error).__name__
    known = _ERRORS.get(name)
    if known is not None:
        return known(path)
    kind = "ZooKeeper" if isinstance(error, KazooException) else "kazoo"
    return StoreError(path, f"{path}: {kind} said {name}: {error}")


def multi_results(
    answer: Sequence[Any], operations: Sequence[Operation]
) -> list[Stat | str | None]:
    """Return the results of a multi's operations; raise MultiError for the one that failed."""
    for index, outcome in enumerate(answer):
        if isinstance(outcome, Exception) and type(outcome).__name__ not in _BYSTANDERS:
            raise MultiError(index, store_error(outcome, operations[index].path))
    return [
        outcome
        if isinstance(operation, Create)
        else Stat(*outcome)
        if isinstance(operation, Set)
        else None
        for outcome, operation in zip(answer, operations, strict=True)
    ]
