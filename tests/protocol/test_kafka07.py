"""The wire of Kafka 0.7: bytes that its server took and sent, in both directions."""

import pytest

from kctl.errors import CorruptDataError
from kctl.protocol.kafka07 import (
    PARTS_MAX,
    PARTS_PER_TURN,
    FetchAnswer,
    FetchRequest,
    Kafka07Error,
    MultiFetchRequest,
    MultiProduceRequest,
    OffsetsAnswer,
    OffsetsRequest,
    ProduceRequest,
    decode_fetch_answer,
    decode_multifetch_answer,
    decode_offsets_answer,
    decode_request,
    decoding_request,
    encode_header,
    encode_offsets_answer,
    encode_request,
)

MAGIC_0 = bytes.fromhex("0000000a 00 3610a686 68656c6c6f")
MAGIC_1 = bytes.fromhex("0000000b 01 00 3610a686 68656c6c6f")
FETCH = FetchRequest("t", 0, 0, 300)
REQUEST_OF_T = "0001 74 00000000 0000000000000000 0000012c"

REQUESTS = {
    "produce, magic 0": (
        ProduceRequest("t", 0, MAGIC_0),
        "0000001b 0000 0001 74 00000000 0000000e  0000000a 00 3610a686 68656c6c6f",
    ),
    "produce, magic 1": (
        ProduceRequest("t", 0, MAGIC_1),
        "0000001c 0000 0001 74 00000000 0000000f  0000000b 01 00 3610a686 68656c6c6f",
    ),
    "fetch": (FETCH, "00000015 0001 0001 74 00000000 0000000000000000 0000012c"),
    "multifetch": (
        MultiFetchRequest([FETCH, FetchRequest("u", 1, 15, 300)]),
        f"0000002a 00020002 {REQUEST_OF_T} 0001 75 00000001 000000000000000f 0000012c",
    ),
    "multiproduce": (
        MultiProduceRequest([ProduceRequest("t", 0, MAGIC_1)] * 2),
        "00000038 0003 0002"
        + " 0001 74 00000000 0000000f 0000000b 01 00 3610a686 68656c6c6f" * 2,
    ),
    "offsets": (
        OffsetsRequest("t", 0, -1, 10),
        "00000015 0004 0001 74 00000000 ffffffffffffffff 0000000a",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_have_the_bytes_of_kafka_07_in_both_directions(name):
    request, text = REQUESTS[name]
    frame = bytes.fromhex(text)
    assert encode_request(request) == frame
    assert decode_request(frame[4:]) == request
    assert decode_request(memoryview(frame)[4:]) == request


def test_a_fetch_answer_has_the_bytes_of_kafka_07():
    frame = bytes.fromhex("00000011 0000  0000000b 01 00 3610a686 68656c6c6f")
    assert encode_header(Kafka07Error.NONE, len(MAGIC_1)) + MAGIC_1 == frame
    assert decode_fetch_answer(frame[4:]) == FetchAnswer(0, MAGIC_1)


def test_a_multifetch_answer_has_an_error_of_its_own_for_each_part():
    frame = bytes.fromhex(
        "0000001d 0000  00000011 0000 0000000b 01 00 3610a686 68656c6c6f  00000002 0001"
    )
    parts = encode_header(Kafka07Error.NONE, len(MAGIC_1)) + MAGIC_1
    parts += encode_header(Kafka07Error.OFFSET_OUT_OF_RANGE, 0)
    assert encode_header(Kafka07Error.NONE, len(parts)) + parts == frame
    assert decode_multifetch_answer(frame[4:]) == [FetchAnswer(0, MAGIC_1), FetchAnswer(1, b"")]


def test_an_offsets_answer_has_the_bytes_of_kafka_07():
    frame = bytes.fromhex("00000016 0000 00000002 000000000000000f 0000000000000000")
    assert encode_offsets_answer([15, 0]) == frame
    assert decode_offsets_answer(frame[4:]) == OffsetsAnswer(0, (15, 0))


@pytest.mark.parametrize(
    ("error", "text"),
    [(Kafka07Error.WRONG_PARTITION, "00000002 0003"), (Kafka07Error.UNKNOWN, "00000002 ffff")],
)
def test_an_error_alone_is_six_bytes(error, text):
    frame = bytes.fromhex(text)
    assert encode_header(error, 0) == frame
    assert decode_fetch_answer(frame[4:]) == FetchAnswer(error, b"")
    assert decode_offsets_answer(frame[4:]) == OffsetsAnswer(error, ())


def test_bytes_after_a_body_are_ignored():
    for request, text in REQUESTS.values():
        assert decode_request(bytes.fromhex(text)[4:] + b"behind") == request


def test_a_request_that_ends_too_early_is_corrupt():
    for _, text in REQUESTS.values():
        frame = bytes.fromhex(text)[4:]
        for size in range(len(frame)):
            with pytest.raises(CorruptDataError):
                decode_request(frame[:size])


@pytest.mark.parametrize(
    "text",
    [
        "0005", "ffff", "0012 0003",
        "0002 ffff", "0003 ffff",
        "0000 ffff 00000000 00000000", "0000 0001 74 00000000 ffffffff",
    ],
)  # fmt: skip
def test_unknown_kinds_and_negative_sizes_are_corrupt(text):
    with pytest.raises(CorruptDataError):
        decode_request(bytes.fromhex(text))


def test_a_multi_request_of_nothing_is_a_request():
    assert decode_request(bytes.fromhex("0002 0000")) == MultiFetchRequest([])
    assert decode_request(bytes.fromhex("0003 0000")) == MultiProduceRequest([])


def test_a_name_that_is_not_utf8_is_read_with_replacements():
    request = decode_request(bytes.fromhex("0001 0002 fffe 00000000 0000000000000000 00000001"))
    assert request.topic == "\ufffd\ufffd"


def test_the_largest_multi_request_is_decoded_in_turns():
    frame = encode_request(MultiFetchRequest([FETCH] * PARTS_MAX))[4:]
    work = decoding_request(frame)
    turns = sum(1 for _ in work)
    assert turns == PARTS_MAX // PARTS_PER_TURN
    assert len(decode_request(frame).parts) == PARTS_MAX
    with pytest.raises(ValueError, match="32767"):
        encode_request(MultiFetchRequest([FETCH] * (PARTS_MAX + 1)))


@pytest.mark.parametrize(
    "text", ["", "00", "0000 0000", "0000 00000001 0000", "0000 00000003 0000"]
)
def test_answers_that_contradict_themselves_are_corrupt(text):
    frame = bytes.fromhex(text)
    with pytest.raises(CorruptDataError):
        decode_multifetch_answer(frame)


@pytest.mark.parametrize("text", ["", "0000", "0000 00000001", "0000 ffffffff"])
def test_offsets_that_are_missing_are_corrupt(text):
    with pytest.raises(CorruptDataError):
        decode_offsets_answer(bytes.fromhex(text))
