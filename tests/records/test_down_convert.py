"""Down-conversion against Apache Kafka's own, batch by batch."""

import pytest

from kctl.protocol.error_codes import ApiError
from kctl.records.builder import build_batch
from kctl.records.compression import ZSTD
from kctl.records.down_convert import down_convert
from kctl.records.memory_records import records
from kctl.records.record import Record
from tests.support.append_cases import cases, comparable


@pytest.mark.parametrize("case", cases("convert"), ids=lambda case: case.name)
def test_converts_as_apache_kafka_does(case):
    magic, first_offset = (int(fact) for fact in case.facts)
    if not case.is_ok:
        with pytest.raises(ApiError) as raised:
            down_convert(case.data, magic, first_offset)
        assert raised.value.code.name == case.answer[1]
        return
    converted = down_convert(case.data, magic, first_offset)
    assert comparable(converted.data) == comparable(case.stored)
    assert converted.converted_count == int(case.answer[2])


def test_records_keep_all_but_their_headers():
    original = [Record(5 + i, 100 + i, b"k", None if i else b"v", (("h", b"x"),)) for i in range(3)]
    converted = down_convert(build_batch(original), 1, 0)
    assert list(records(converted.data)) == [record._replace(headers=()) for record in original]


def test_a_fetch_gets_what_comes_before_zstd():
    first, second = (Record(n, 100, b"k", b"v", ()) for n in range(2))
    data = build_batch([first]) + build_batch([second], compression_type=ZSTD)
    with pytest.raises(ApiError):
        down_convert(data, 1, 0)
    converted = down_convert(data, 1, 0, ends_at_zstd=True)
    assert list(records(converted.data)) == [first]
    with pytest.raises(ApiError):
        down_convert(build_batch([second], compression_type=ZSTD), 1, 1, ends_at_zstd=True)
