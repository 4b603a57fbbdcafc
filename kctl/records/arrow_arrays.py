"""Arrow arrays of numbers and byte strings, made from buffers.

`pyarrow.array` and `pyarrow.scalar` import pandas when they are first called, if it is installed:
0.3 s of CPU, a fifth of what `dump-log` needs for 150 MB.

numpy and pyarrow are loaded with this module: only where columns are needed.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]


def numbers_array(values: Any, *, is_null: Any = None) -> Any:
    """Return an array over a one-dimensional NumPy array of integers, null where `is_null`."""
    values = np.ascontiguousarray(values)
    valid = None
    if is_null is not None and is_null.any():
        valid = pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(values)])


def mask_array(mask: Any) -> Any:
    """Return a Boolean array of a NumPy array of Booleans."""
    bits = pa.py_buffer(np.packbits(mask, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, bits])


def bytes_array(texts: Iterable[bytes]) -> Any:
    """Return an array of byte strings, at most 2 GiB in all."""
    texts = list(texts)
    ends = np.zeros(len(texts) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=ends[1:])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))]
    return pa.Array.from_buffers(pa.binary(), len(texts), buffers)


def bytes_scalar(text: bytes) -> Any:
    """Return a byte string as an Arrow scalar."""
    return bytes_array([text])[0]


def valid_mask(array: Any) -> Any:
    """Return which elements of an Arrow array with nulls are not null, as NumPy Booleans."""
    bits = np.frombuffer(array.buffers()[0], np.uint8)
    found = np.unpackbits(bits, count=array.offset + len(array), bitorder="little")
    return found[array.offset :].view(np.bool_)
