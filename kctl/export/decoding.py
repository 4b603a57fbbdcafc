"""EachDecoder: decodes a column with a library that takes one value at a time."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

# The decoded array, and a mask of the values that failed, or None.
Decoded = tuple[pa.Array, pa.Array | None]
# Takes a binary array.
Decode = Callable[[pa.Array], Decoded]

# Exceptions that Arrow raises for an object that is not a value of a column's type, such as a
# decimal with more digits than the type has.
_NO_VALUE = (pa.ArrowException, ValueError, TypeError, OverflowError)


class EachDecoder:
    """A Decode that applies a function to each value."""

    def __init__(
        self, read: Callable[[bytes], Any], kind: pa.DataType, failures: tuple[type[Exception], ...]
    ) -> None:
        """Make a column of type `kind` of what `read` returns; a value for which it raises one of
        `failures` is marked as not decoded."""
        self._read, self._kind, self._failures = read, kind, failures

    def __call__(self, column: pa.Array) -> tuple[pa.Array, pa.Array | None]:
        """Decode a binary array: see Decode."""
        documents: list[Any] = []
        failed: list[bool] = []
        for data in column.to_pylist():
            try:
                documents.append(None if data is None else self._read(data))
                failed.append(False)
            except self._failures:
                documents.append(None)
                failed.append(True)
        try:
            made = pa.array(documents, self._kind)
        except _NO_VALUE:
            made = self._each_by_itself(documents, failed)
        return made, pa.array(failed) if any(failed) else None

    def _each_by_itself(self, documents: list[Any], failed: list[bool]) -> pa.Array:
        """Return the column without the documents that are no values of it, which are marked."""
        for number, document in enumerate(documents):
            try:
                pa.array([document], self._kind)
            except _NO_VALUE:
                documents[number], failed[number] = None, True
        return pa.array(documents, self._kind)

    def reason(self, data: bytes) -> str:
        """Return why a value was not decoded."""
        try:
            self._read(data)
        except self._failures as error:
            return str(error) or type(error).__name__
        return "not a value of the column's type"
