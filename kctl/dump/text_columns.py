"""Columns of text: the same field of many lines at once.

A Column is bytes where all lines have the same text, else an Arrow binary array with an element per
line. Rare cases (text that is not UTF-8, or moves a cursor) use the functions of text_format and
kafka_format, so there is one definition of how they are shown.

numpy and pyarrow are loaded with this module: only for files that are large enough.
"""

from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from kctl.dump.kafka_format import java_text
from kctl.dump.text_format import iso, shown
from kctl.records.arrow_arrays import (
    bytes_array,
    bytes_scalar,
    mask_array,
    numbers_array,
    valid_mask,
)

Column = Any

_MS = 1000
# The first millisecond of the year 10000, whose ISO form is longer than the others.
_YEAR_10000_MS = 253_402_300_800_000
# Between values that are decoded together: ASCII, so that no UTF-8 sequence continues after it.
_SEPARATOR = b"\x00\x1e\x01\x1f\x02\x1d\x00"


class Line:
    """Columns side by side; adjacent bytes are merged, as each column costs time for every line."""

    def __init__(self, *columns: Column) -> None:
        self._columns: list[Column] = []
        self.add(*columns)

    def add(self, *columns: Column) -> None:
        """Append columns to the line."""
        for column in columns:
            if isinstance(column, bytes) and self._columns and isinstance(self._columns[-1], bytes):
                self._columns[-1] += column
            else:
                self._columns.append(column)

    def prepend(self, choices: Column, which: Column) -> None:
        """Begin with one of `choices`, for each line by its number in `which`."""
        if self._columns and isinstance(self._columns[0], bytes):
            # Joined to the few before there are many: one column less.
            choices = Line(choices, self._columns.pop(0)).joined(len(choices))
        self._columns.insert(0, choices.take(which))

    def joined(self, count: int) -> Column:
        """Return an array of the lines; `count` of them, if all are equal."""
        columns = [it for it in self._columns if it != b""]
        if all(isinstance(column, bytes) for column in columns):
            return bytes_array([b"".join(columns)] * count)
        parts = [constant(it) if isinstance(it, bytes) else it for it in columns]
        return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, constant(b""))


def constant(text: bytes) -> Column:
    """Return an Arrow scalar of the text that all lines have."""
    return bytes_scalar(text)


def text_of(lines: Column) -> memoryview:
    """Return all lines as one buffer."""
    offsets = np.frombuffer(lines.buffers()[1], np.int32, len(lines) + 1, lines.offset * 4)
    return memoryview(lines.buffers()[2])[int(offsets[0]) : int(offsets[-1])]


def chosen(which: Any, texts: list[bytes]) -> Column:
    """Return one of `texts` for each line, by its number."""
    first = int(which[0])
    if (which == first).all():
        return texts[first]
    return bytes_array(texts).take(numbers_array(which))


def if_any(mask: Any, *columns: Column) -> Column:
    """Return the columns where `mask` is set, else nothing."""
    if not mask.any():
        return b""
    joined = Line(*columns).joined(len(mask))
    return joined if mask.all() else pc.if_else(mask_array(mask), joined, constant(b""))


def _small_numbers() -> Column:
    return pc.cast(numbers_array(np.arange(10_000)), pa.string()).cast(pa.binary())


_SMALL_NUMBERS = _small_numbers()


def numbers(values: Any) -> Column:
    """Return integers in decimal."""
    low, high = int(values.min()), int(values.max())
    if low == high:
        return b"%d" % low
    if low >= 0 and high < len(_SMALL_NUMBERS):
        return _SMALL_NUMBERS.take(numbers_array(values))
    return pc.cast(numbers_array(values), pa.string()).cast(pa.binary())


def padded(column: Column, width: int) -> tuple[Column, ...]:
    """Return the column filled up with spaces, as one part if all texts have the same length."""
    if isinstance(column, bytes):
        return (column.ljust(width),)
    if not _is_ascii(column):
        return (pc.utf8_rpad(column.cast(pa.string()), width).cast(pa.binary()),)
    _, lengths = bytes_of(column)
    shortest, longest = int(lengths.min()), int(lengths.max())
    if shortest == longest or shortest >= width:
        return column, b" " * (width - shortest)
    return (pc.ascii_rpad(column.cast(pa.string()), width).cast(pa.binary()),)


def padded_left(column: Column, width: int) -> Column:
    """Return ASCII text right-aligned in `width`."""
    if isinstance(column, bytes):
        return column.rjust(width)
    return pc.ascii_lpad(column.cast(pa.string()), width).cast(pa.binary())


def trimmed(lines: Column) -> Column:
    """Return ASCII text without trailing spaces."""
    return pc.ascii_rtrim(lines.cast(pa.string()), " ").cast(pa.binary())


def times(timestamps: Any) -> Column:
    """Return ISO 8601 times, padded, as in text_format; each second is formatted once."""
    if timestamps.min() < 0 or timestamps.max() >= _YEAR_10000_MS:
        return bytes_array(f"{iso(it):<24}".encode() for it in timestamps.tolist())
    seconds = timestamps // _MS
    changes = np.flatnonzero(np.diff(seconds)) + 1
    which = np.zeros(len(seconds), np.int32)
    which[changes] = 1
    which = np.cumsum(which)
    firsts = seconds[np.concatenate(([0], changes))].astype("M8[s]")
    heads = bytes_array(map(str.encode, np.datetime_as_string(firsts).tolist()))
    return pc.binary_join_element_wise(
        heads.take(numbers_array(which)), _TAILS.take(numbers_array(timestamps - seconds * _MS)),
        constant(b""),
    )  # fmt: skip


_TAILS = bytes_array(f".{ms:03d}Z".encode() for ms in range(_MS))


def named(name: bytes, data: Column) -> tuple[Column, ...]:
    """Return a name and its values; nothing for a null."""
    if not data.null_count:
        return name, data
    return (
        pc.fill_null(
            pc.binary_join_element_wise(constant(name), data, constant(b"")), constant(b"")
        ),
    )


def sizes(lengths: Any) -> tuple[Column, ...]:
    """Return sizes in bytes, with the unit; a length of -1 is a null."""
    is_null = lengths < 0
    if not is_null.any():
        return numbers(lengths), b" B"
    with_unit = Line(numbers(lengths), b" B").joined(len(lengths))
    return (pc.if_else(mask_array(is_null), constant(b"null"), with_unit),)


def java(data: Column) -> Column:
    """Return the strings that Java makes of bytes that should be UTF-8."""
    if _is_utf8(data):
        return data
    # All at once, separated by bytes that belong to no value.
    whole = _SEPARATOR.join(data.fill_null(constant(b"")).to_pylist())
    texts = java_text(whole).encode().split(_SEPARATOR)
    if len(texts) != len(data):
        return pa.array(
            [None if it is None else java_text(it).encode() for it in data.to_pylist()], pa.binary()
        )
    found = bytes_array(texts)
    return pc.if_else(data.is_valid(), found, pa.scalar(None, pa.binary()))


def shown_texts(data: Column) -> Column:
    """Return keys and values as text_format shows them."""
    which = _odd_ones(data)
    if len(which):
        texts = [shown(it).encode() for it in data.take(numbers_array(which)).to_pylist()]
        mask = np.zeros(len(data), np.bool_)
        mask[which] = True
        data = pc.replace_with_mask(data, mask_array(mask), bytes_array(texts))
    return pc.fill_null(data, constant(b"null")) if data.null_count else data


def _odd_ones(data: Column) -> Any:
    """Return which values are not shown as their text; nulls are not among them."""
    every, lengths = bytes_of(data)
    is_odd = lengths == 0
    if data.null_count:
        is_odd &= valid_mask(data)
    is_plain = not len(every) or (every.min() >= 0x20 and every.max() < 0x7F)
    if not is_plain and not (_is_utf8(data) and every.tobytes().decode().isprintable()):
        places = np.flatnonzero((every < 0x20) | (every >= 0x7F))
        is_odd[np.searchsorted(np.cumsum(lengths), places, side="right")] = True
    return np.flatnonzero(is_odd)


def bytes_of(data: Column) -> tuple[Any, Any]:
    """Return all bytes of a column, and the length of each element."""
    _, offset_buffer, byte_buffer = data.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32, len(data) + 1, data.offset * 4)
    every = np.frombuffer(byte_buffer or b"", np.uint8)[int(offsets[0]) : int(offsets[-1])]
    return every, np.diff(offsets)


def _is_ascii(data: Column) -> bool:
    every, _ = bytes_of(data)
    return not len(every) or bool(every.max() < 0x80)


def _is_utf8(data: Column) -> bool:
    if _is_ascii(data):
        return True
    try:
        data.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True
