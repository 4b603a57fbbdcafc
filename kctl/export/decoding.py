"""EachDecoder: decodes a column with a library that takes one value at a time."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

# Takes a binary array; returns the decoded array, and a mask of the values that failed, or None.
Decode = Callable[[pa.Array], tuple[pa.Array, pa.Array | None]]


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
        return pa.array(documents, self._kind), pa.array(failed) if any(failed) else None

    def reason(self, data: bytes) -> str:
        """Return why a value was not decoded."""
        try:
            self._read(data)
        except self._failures as error:
            return str(error) or type(error).__name__
        return "not a value of the column's type"
