"""TopicAdmin with brokers of several versions."""

import pytest

from kctl.admin.topics import NewTopic
from kctl.errors import UnsupportedVersionError
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.create_partitions import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from kctl.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from kctl.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse


def created(*results):
    topics = [CreatableTopicResult(name=name, error_code=int(code)) for name, code in results]
    return CreateTopicsResponse(topics=topics)


def test_each_topic_has_its_own_outcome(make_broker, admin_of, run):
    broker = make_broker()
    broker.answer(
        ApiKey.CREATE_TOPICS,
        created(("b", ErrorCode.TOPIC_ALREADY_EXISTS), ("a", ErrorCode.NONE)),
    )

    results = run(admin_of(broker).topics.create([NewTopic("a"), NewTopic("b"), NewTopic("c")]))

    assert [(it.name, it.error and it.error.code) for it in results] == [
        ("a", None),
        ("b", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("c", ErrorCode.UNKNOWN_SERVER_ERROR),  # no result in the response
    ]


def test_a_request_follows_the_controller(make_broker, admin_of, run):
    broker = make_broker()
    broker.answer(
        ApiKey.CREATE_TOPICS,
        created(("a", ErrorCode.NOT_CONTROLLER)),
        created(("a", ErrorCode.NONE)),
    )

    [result] = run(admin_of(broker).topics.create([NewTopic("a")]))

    assert result.error is None
    assert len(broker.requests(ApiKey.CREATE_TOPICS)) == 2


def test_a_broker_without_defaults_requires_the_numbers(make_broker, admin_of, run):
    broker = make_broker(versions={ApiKey.CREATE_TOPICS: (0, 3)})
    broker.answer(ApiKey.CREATE_TOPICS, created(("a", ErrorCode.NONE)))
    topics = admin_of(broker).topics

    with pytest.raises(UnsupportedVersionError, match="no defaults"):
        run(topics.create([NewTopic("a")]))
    [result] = run(topics.create([NewTopic("a", 2, 1)]))
    assert result.error is None


def test_a_broker_that_cannot_validate_creates_nothing(make_broker, admin_of, run):
    broker = make_broker(versions={ApiKey.CREATE_TOPICS: (0, 0)})

    with pytest.raises(UnsupportedVersionError, match="too old to validate"):
        run(admin_of(broker).topics.create([NewTopic("a", 1, 1)], validate_only=True))
    assert broker.requests(ApiKey.CREATE_TOPICS) == []


def test_the_error_names_the_api_that_a_broker_lacks(make_broker, admin_of, run):
    """Kafka 0.10.0 has neither CreateTopics nor CreatePartitions."""
    broker = make_broker(versions={ApiKey.CREATE_PARTITIONS: None})

    with pytest.raises(ApiError, match="CreatePartitions") as caught:
        run(admin_of(broker).topics.add_partitions({"a": 3}))
    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_partitions_are_added_topic_by_topic(make_broker, admin_of, run):
    broker = make_broker()
    broker.answer(
        ApiKey.CREATE_PARTITIONS,
        CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(name="a"),
                CreatePartitionsTopicResult(name="b", error_code=37, error_message="too few"),
            ]
        ),
    )

    results = run(admin_of(broker).topics.add_partitions({"a": 3, "b": 1}))

    assert [(it.name, str(it.error) if it.error else None) for it in results] == [
        ("a", None),
        ("b", "too few"),
    ]


def test_topics_are_deleted_one_by_one(make_broker, admin_of, run):
    broker = make_broker()
    broker.answer(
        ApiKey.DELETE_TOPICS,
        DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(name="a"),
                DeletableTopicResult(name="b", error_code=3),
            ]
        ),
    )

    results = run(admin_of(broker).topics.delete(["b", "a"]))

    assert [(it.name, it.error is None) for it in results] == [("b", False), ("a", True)]


def test_describing_a_topic_does_not_create_it(make_broker, admin_of, run):
    broker = make_broker({"here": 2})

    here, gone = run(admin_of(broker).topics.describe(["here", "gone"]))

    assert [it.partition for it in here.partitions] == [0, 1]
    assert gone.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    asked = broker.requests(ApiKey.METADATA)[-1].body
    assert asked.allow_auto_topic_creation is False


def test_an_old_broker_is_asked_for_all_topics_as_naming_one_creates_it(make_broker, admin_of, run):
    broker = make_broker({"here": 2}, versions={ApiKey.METADATA: (0, 1)})

    here, gone = run(admin_of(broker).topics.describe(["here", "gone"]))

    assert len(here.partitions) == 2
    assert gone.error is not None
    assert all(it.body.topics is None for it in broker.requests(ApiKey.METADATA))
