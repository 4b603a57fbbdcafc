"""kctl api, on kctl and on Apache Kafka 2.7.2."""

import base64
import json

import pytest


def test_a_request_and_its_response_are_json_with_kafkas_names(on, topic):
    ran = on(
        "api", "Metadata", json.dumps({"topics": [{"name": topic}]}), "--version", 9, "-o", "json"
    )

    assert ran.status == 0, ran.err
    [described] = ran.documents["topics"]
    assert described["name"] == topic
    assert sorted(it["partitionIndex"] for it in described["partitions"]) == [0, 1, 2]
    assert ran.documents["throttleTimeMs"] == 0
    assert {"nodeId", "host", "port", "rack"} == ran.documents["brokers"][0].keys()


def test_a_version_decides_which_fields_there_are(on, topic):
    ran = on("api", "metadata", json.dumps({"topics": [{"name": topic}]}), "--version", 0)

    assert ran.status == 0, ran.err
    assert ran.documents.keys() == {"brokers", "topics"}


def test_a_request_that_changes_something_is_shown_and_needs_a_yes(on, topic):
    words = ("api", "DeleteTopics", json.dumps({"topicNames": [topic], "timeoutMs": 5000}))

    refused = on(*words)
    dry = on(*words, "-n")

    assert refused.status == 2
    assert "Send DeleteTopics to broker" in refused.err
    assert dry.status == 0, dry.err
    assert dry.documents == {"topicNames": [topic], "timeoutMs": 5000}
    assert on("topic", "describe", topic).status == 0

    done = on(*words, "-y")

    assert done.status == 0, done.err
    assert [it["errorCode"] for it in done.documents["responses"]] == [0]
    assert on("topic", "describe", topic).status == 1


def test_an_error_code_in_the_response_is_named_and_is_exit_status_1(on, name):
    topics = [{"name": name}]
    ran = on("api", "Metadata", json.dumps({"topics": topics, "allowAutoTopicCreation": False}))

    assert ran.status == 1
    assert ran.documents["topics"][0]["errorCode"] == 3
    assert "error: topics[0].errorCode is 3, UNKNOWN_TOPIC_OR_PARTITION" in ran.err


def test_the_list_has_names_and_versions_of_both_sides(on):
    ran = on("api", "--list", "-o", "json")

    assert ran.status == 0, ran.err
    found = {it["name"]: it for it in ran.documents}
    assert found["Metadata"] == {
        "name": "Metadata", "number": 3, "kctl": "0-12", "broker": "0-9", "both": "0-9"
    }  # fmt: skip
    assert found["ListOffsets"]["number"] == 2


def test_records_are_base64(on, topic):
    on("produce", topic, "hello", "-p", 0)
    partition = {"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 100_000}
    ran = on(
        "api", "Fetch", "--version", 4,
        json.dumps({
            "replicaId": -1, "maxWaitMs": 100, "minBytes": 1,
            "topics": [{"topic": topic, "partitions": [partition]}],
        }),
    )  # fmt: skip

    assert ran.status == 0, ran.err
    [partition] = ran.documents["responses"][0]["partitionResponses"]
    assert b"hello" in base64.b64decode(partition["recordSet"])


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["Metadata", '{"topcs": []}'], "MetadataRequest has no field topcs", "topics?"),
        (["Metadata", '{"zzz": 1}'], "MetadataRequest has no field zzz", "fields: topics"),
        (["Metadata", '{"topics": {}}'], "topics must be a list, not {}", "array"),
        (["Metadata", '{"topics": ["t"]}'], 'topics[0] must be an object, not "t"', ""),
        (["Metadata", '{"topics": [{"name": 5}]}'], "topics[0].name must be a text", "string"),
        (["Metadata", '{"topics": [{"name": null}]}'], "topics[0].name cannot be null", ""),
        (
            ["Metadata", '{"allowAutoTopicCreation": true}', "--version", "3"],
            "has no field allowAutoTopicCreation in version 3",
            "4+",
        ),
        (["DescribeGroups", '{"groups": 1}'], "groups must be a list", ""),
        (["DeleteTopics", '{"timeoutMs": 3000000000}'], "timeoutMs must be a whole", "int32"),
        (["DeleteTopics", '{"timeoutMs": "5"}'], "timeoutMs must be a whole number", "int32"),
        (["Metadata", "--version", "99"], "kctl knows Metadata 0 to 12, not 99", "--list"),
    ],
)
def test_a_wrong_field_names_the_way_out(on, words, message, hint):
    ran = on("api", *words)

    assert ran.status == 2, ran.err + ran.out
    assert message in ran.err
    assert hint in ran.err.splitlines()[-1]
