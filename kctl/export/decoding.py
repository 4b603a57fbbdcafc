"""decode_each: columns of values that a library decodes one at a time."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

# Decodes a binary array: the decoded one, and which of its values are not decoded (or None).
Decode = Callable[[pa.Array], tuple[pa.Array, pa.Array | None]]


def decode_each(
    read: Callable[[bytes], Any], kind: pa.DataType, failures: tuple[type[Exception], ...]
) -> Decode:
    """Decodes with `read` into a column of `kind`; `failures` are those of single values."""

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
