"""Messages as JSON and back. tests/protocol/test_against_apache_kafka.py compares the names of all
fields with those of Apache Kafka's converters."""

import json

import pytest

from kctl.errors import UsageError
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.json_form import from_json, to_json
from kctl.protocol.later_apis import LaterApi
from kctl.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kctl.protocol.messages.sasl_authenticate import SaslAuthenticateRequest


@pytest.mark.parametrize("api", [*ApiKey, *LaterApi])
def test_every_message_of_every_version_survives_the_way_through_json(api):
    for version in range(api.min_version, api.max_version + 1):
        for cls in (api.request_class, api.response_class):
            text = json.dumps(to_json(cls(), version))

            assert from_json(cls, version, json.loads(text)) == cls()


def test_nested_values_and_bytes_survive():
    message = MetadataRequest(topics=[MetadataRequestTopic(name="é")])
    login = SaslAuthenticateRequest(auth_bytes=b"\x00\xff")

    assert from_json(MetadataRequest, 9, to_json(message, 9)) == message
    assert to_json(login, 2) == {"authBytes": "AP8="}
    assert from_json(SaslAuthenticateRequest, 2, {"authBytes": "AP8="}) == login


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "must be an object"),
        ({"authBytes": "?"}, "authBytes is not base64"),
        ({"authBytes": True}, "authBytes must be a text in base64, not true"),
        ({"auth_bytes": "AP8="}, "has no field auth_bytes"),
    ],
)
def test_wrong_documents_are_refused_with_a_hint(document, message):
    with pytest.raises(UsageError, match=message) as caught:
        from_json(SaslAuthenticateRequest, 2, document)

    assert caught.value.hint
