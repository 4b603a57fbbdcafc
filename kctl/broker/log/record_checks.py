"""Checks a v2 batch's records without decoding them, at a bounded cost.

Kafka checks every record of every batch. Here that would cost more than the append itself: the
first records are checked field by field, some more by following their lengths, and the rest of a
large batch is accepted, because its CRC and the header's counts match. A batch of few records,
where hand-made mistakes are most likely, is checked to the last byte.

Kafka 2.7: org.apache.kafka.common.record.DefaultRecord.readPartiallyFrom, DefaultRecordBatch
"""

from typing import Final

from kctl.errors import CorruptDataError
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.primitives import Buffer
from kctl.records.varint import read_varint, read_varlong

# Records of each batch that are checked field by field.
FULLY_CHECKED_RECORDS: Final = 4
# Records after those that are only followed by their lengths.
FOLLOWED_RECORDS: Final = 16
# The same for a compressed batch: decompressing costs more than following its records.
FOLLOWED_RECORDS_COMPRESSED: Final = 68
# Bytes of a compressed batch's records that are decompressed for the check.
CHECKED_BYTES: Final = 64 * 1024

_NOT_EVERY_RECORD: Final = (-1, 0)


def check_records(
    data: Buffer, start: int, end: int, count: int, *, is_whole: bool, is_compressed: bool = False
) -> tuple[int, int] | None:
    """Check `count` records between `start` and `end`; raise ApiError (INVALID_RECORD) if damaged.

    Unless `is_whole`, the data may stop anywhere. Return the number and the timestamp delta of the
    first record with the largest timestamp, (-1, 0) if not every record was checked, or None if the
    offset deltas do not count up from 0.
    """
    position = start
    followed = FOLLOWED_RECORDS_COMPRESSED if is_compressed else FOLLOWED_RECORDS
    best = -1
    best_delta = 0
    try:
        for number in range(min(count, FULLY_CHECKED_RECORDS)):
            position, offset_delta, delta = check_record(data, position, end)
            if offset_delta != number:
                return None
            if best < 0 or delta > best_delta:
                best = number
                best_delta = delta
        if count > FULLY_CHECKED_RECORDS:
            best, best_delta = _NOT_EVERY_RECORD
            rest = min(count - FULLY_CHECKED_RECORDS, followed)
            position = _follow(data, position, end, rest)
    except IndexError:
        # A prefix may end inside a record, a whole batch may not.
        if not is_whole:
            return _NOT_EVERY_RECORD
        raise _premature_end() from None
    except CorruptDataError as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from None
    if not is_whole or count > FULLY_CHECKED_RECORDS + followed:
        return _NOT_EVERY_RECORD
    if position != end:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            "Incorrect declared batch size, records still remaining in file",
        )
    return best, best_delta


def _premature_end() -> ApiError:
    return ApiError(
        ErrorCode.INVALID_RECORD, "Incorrect declared batch size, premature EOF reached"
    )


def _bad_length(position: int) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD, f"Record at byte {position} has a negative size")


def check_record(data: Buffer, position: int, end: int) -> tuple[int, int, int]:  # noqa: C901
    """Check the record at `position`; return its end, its offset delta and its timestamp delta.

    Short varints are decoded inline. Raise IndexError if the record extends beyond `end`.
    """
    size = data[position]
    if size & 1:
        raise _bad_length(position)
    if size < 0x80:
        position += 1
        size >>= 1
    elif (high := data[position + 1]) < 0x80:
        position += 2
        size = (size & 0x7F | high << 7) >> 1
    else:
        size, position = read_varint(data, position)
    stop = position + size
    if stop > end:
        raise IndexError
    position += 1  # The attributes.
    timestamp_delta = data[position]
    if timestamp_delta < 0x80:
        position += 1
        timestamp_delta = timestamp_delta >> 1 ^ -(timestamp_delta & 1)
    else:
        timestamp_delta, position = read_varlong(data, position)
    offset_delta = data[position]
    if offset_delta < 0x80:
        position += 1
        offset_delta = offset_delta >> 1 ^ -(offset_delta & 1)
    else:
        offset_delta, position = read_varint(data, position)
    length = data[position]  # The key's.
    position += 1
    if length >= 0x80:
        length, position = read_varint(data, position - 1)
        position += max(0, length)
    elif not length & 1:
        position += length >> 1
    length = data[position]  # The value's.
    position += 1
    if length >= 0x80:
        high = data[position]
        if high < 0x80:
            length = length & 0x7F | high << 7
            position += 1 + (length >> 1 if not length & 1 else 0)
        else:
            length, position = read_varint(data, position - 1)
            position += max(0, length)
    elif not length & 1:
        position += length >> 1
    if position < stop and not data[position]:
        position += 1
    else:
        position = _skip_headers(data, position, stop)
    if position != stop:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"Invalid record size: expected to read {size} bytes in record payload, but instead "
            f"read {size + position - stop}",
        )
    return stop, offset_delta, timestamp_delta


def _skip_headers(data: Buffer, position: int, stop: int) -> int:
    if position >= stop:
        return position + 1  # there is no room for the count: the sizes will not match
    count, position = read_varint(data, position)
    # Every header takes at least two bytes.
    if count < 0 or 2 * count > stop - position:
        raise ApiError(ErrorCode.INVALID_RECORD, f"Found invalid number of record headers {count}")
    for _ in range(count):
        length, position = read_varint(data, position)
        if length < 0:
            raise ApiError(ErrorCode.INVALID_RECORD, f"Invalid negative header key size {length}")
        length, position = read_varint(data, position + length)
        position += max(length, 0)
        if position > stop:
            return position
    return position


def _follow(data: Buffer, position: int, end: int, count: int) -> int:
    """Return the end of the `count` records at `position`, from their lengths alone."""
    for _ in range(count):
        low = data[position]
        if low & 1:
            raise _bad_length(position)
        if low < 0x80:
            position += (low >> 1) + 1
        elif (high := data[position + 1]) < 0x80:
            position += (low & 0x7F | high << 7) // 2 + 2
        else:
            size, position = read_varint(data, position)
            position += size
        if position > end:
            raise IndexError
    return position
