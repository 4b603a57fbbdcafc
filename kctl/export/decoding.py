"""decode_each: decodes a column with a library that takes one value at a time."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

# Takes a binary array; returns the decoded array, and a mask of the values that failed, or None.
Decode = Callable[[pa.Array], tuple[pa.Array, pa.Array | None]]


def decode_each(
    read: Callable[[bytes], Any], kind: pa.DataType, failures: tuple[type[Exception], ...]
) -> Decode:
    """Return a decoder that applies `read` to each value and makes a column of type `kind`.

    A value for which `read` raises one of `failures` is marked as not decoded.
    """

    def decode(column: pa.Array) -> tuple[pa.Array, pa.Array | None]:
        documents: list[Any] = []
        failed: list[bool] = []
        for data in column.to_pylist():
            try:
                documents.append(None if data is None else read(data))
                failed.append(False)
            except failures:
                documents.append(None)
                failed.append(True)
        return pa.array(documents, kind), pa.array(failed) if any(failed) else None

    return decode
