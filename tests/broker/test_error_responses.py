"""Every API that kctl serves can be rejected with an error, in each of its versions."""

import pytest

from kctl.broker.error_responses import error_response
from kctl.broker.handlers import HANDLERS
from kctl.broker.request import Request, RequestContext
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.codec import decode, encode
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.schema import Struct

CODE = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
SAMPLES = {"int8": 1, "int16": 1, "int32": 1, "int64": 1, "string": "x", "bytes": b"x", "bool": 0}
CASES = [
    pytest.param(key, version, id=f"{key.name.lower()}-v{version}")
    for key in HANDLERS
    if key is not ApiKey.METADATA
    for version in range(key.max_version + 1)
]


def filled(cls, version):
    """A struct with one entry in each of its arrays, as far as `version` has them."""
    values = {}
    for field in cls.fields:
        if not field.is_in(version) or field.tag is not None:
            continue
        if field.kind == "array":
            is_struct = not isinstance(field.element, str)
            one = filled(field.element, version) if is_struct else SAMPLES[field.element]
            values[field.name] = [one]
        elif field.kind in SAMPLES:
            values[field.name] = SAMPLES[field.kind]
    return cls(**values)


def request_of(key, body, version):
    context = RequestContext("c", "127.0.0.1", "PLAINTEXT")
    return Request(key, version, 1, None, body, context, 0, lambda _: None, lambda: None)


def codes_in(struct):
    """All error codes anywhere in a message."""
    found = []
    for field in struct.fields:
        value = getattr(struct, field.name)
        if field.name == "error_code":
            found.append(value)
        elif isinstance(value, list):
            for item in value:
                found += codes_in(item) if isinstance(item, Struct) else []
    return found


@pytest.mark.parametrize(("key", "version"), CASES)
def test_the_response_can_be_encoded_and_carries_the_error(key, version):
    answer = error_response(request_of(key, filled(key.request_class, version), version), CODE)
    sent = b"".join(bytes(part) for part in encode(answer, version))
    assert CODE in codes_in(decode(key.response_class, version, sent))


def test_the_response_names_what_the_request_named():
    fetch = filled(ApiKey.FETCH.request_class, 11)
    fetch.topics[0].topic = "orders"
    fetch.topics[0].partitions[0].partition = 2
    answer = error_response(request_of(ApiKey.FETCH, fetch, 11), CODE)
    [topic] = answer.responses
    [partition] = topic.partition_responses
    assert (topic.topic, partition.partition, partition.error_code) == ("orders", 2, CODE)
    assert answer.error_code == 0, "that is about the session"


def test_names_and_numbers_in_a_list_are_answered_individually():
    groups = filled(ApiKey.DELETE_GROUPS.request_class, 2)
    groups.groups_names = ["a", "b"]
    answer = error_response(request_of(ApiKey.DELETE_GROUPS, groups, 2), CODE)
    assert [(it.group_id, it.error_code) for it in answer.results] == [("a", CODE), ("b", CODE)]

    offsets = filled(ApiKey.OFFSET_FETCH.request_class, 1)
    offsets.topics[0].partition_indexes = [3, 4]
    answer = error_response(request_of(ApiKey.OFFSET_FETCH, offsets, 1), CODE)
    assert [(it.partition_index, it.committed_offset) for it in answer.topics[0].partitions] == [
        (3, -1),
        (4, -1),
    ]


def test_offsets_of_later_versions_have_one_error_alone():
    for key, version in ((ApiKey.OFFSET_FETCH, 2), (ApiKey.OFFSET_DELETE, 0)):
        answer = error_response(request_of(key, filled(key.request_class, version), version), CODE)
        assert (answer.error_code, answer.topics) == (CODE, [])
