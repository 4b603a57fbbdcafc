"""ConfigAdmin: which broker gets a request, and the requests to old brokers."""

import pytest

from kctl.admin.config_plan import losses
from kctl.admin.configs import (
    ConfigChanges,
    ConfigDescription,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from kctl.errors import UsageError
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.messages.alter_configs import AlterConfigsResourceResponse, AlterConfigsResponse
from kctl.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

TOPIC = ConfigResource(ResourceType.TOPIC, "t")


def described(resource, **values):
    """Return a response to DescribeConfigs; values in upper case are the topic's own."""
    configs = [
        DescribeConfigsResourceResult(
            name=name.lower().replace("_", "."),
            value=value,
            is_default=name.islower(),
            config_source=-1,
        )
        for name, value in values.items()
    ]
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                resource_type=int(resource.resource_type),
                resource_name=resource.name,
                configs=configs,
            )
        ]
    )


def test_without_incremental_changes_the_rest_is_read_and_written_back(make_broker, admin_of, run):
    """IncrementalAlterConfigs came with Kafka 2.3; AlterConfigs deletes every override that it does
    not contain."""
    broker = make_broker(
        versions={ApiKey.INCREMENTAL_ALTER_CONFIGS: None, ApiKey.DESCRIBE_CONFIGS: (0, 0)}
    )
    broker.answer(
        ApiKey.DESCRIBE_CONFIGS,
        described(TOPIC, FLUSH_MS="1", CLEANUP_POLICY="delete", RETENTION_MS="5", segment_ms="7"),
    )
    broker.answer(
        ApiKey.ALTER_CONFIGS,
        AlterConfigsResponse(
            responses=[AlterConfigsResourceResponse(resource_type=2, resource_name="t")]
        ),
    )
    changes = ConfigChanges(
        set={"flush.ms": "2"}, delete=["retention.ms"], append={"cleanup.policy": "compact"}
    )

    [result] = run(admin_of(broker).configs.alter({TOPIC: changes}))

    assert result.error is None
    [request] = broker.requests(ApiKey.ALTER_CONFIGS)
    assert {it.name: it.value for it in request.body.resources[0].configs} == {
        "flush.ms": "2",
        "cleanup.policy": "delete,compact",
    }


def test_an_old_brokers_response_only_marks_defaults(make_broker, admin_of, run):
    broker = make_broker(versions={ApiKey.DESCRIBE_CONFIGS: (0, 0)})
    broker.answer(ApiKey.DESCRIBE_CONFIGS, described(TOPIC, FLUSH_MS="1", segment_ms="7"))

    [found] = run(admin_of(broker).configs.describe([TOPIC], include_synonyms=True))

    assert [(it.name, it.source_name) for it in found.entries] == [
        ("flush.ms", "DYNAMIC_TOPIC_CONFIG"),
        ("segment.ms", "DEFAULT_CONFIG"),
    ]


def test_a_brokers_configs_are_requested_from_that_broker(make_broker, admin_of, run):
    zero, one = make_broker(), make_broker(broker_id=1)
    zero.others[1] = one.address
    resource = ConfigResource(ResourceType.BROKER, "1")
    one.answer(ApiKey.DESCRIBE_CONFIGS, described(resource))

    run(admin_of(zero).configs.describe([resource]))

    assert zero.requests(ApiKey.DESCRIBE_CONFIGS) == []
    assert len(one.requests(ApiKey.DESCRIBE_CONFIGS)) == 1


def test_a_broker_is_named_by_its_id(make_broker, admin_of, run):
    resource = ConfigResource(ResourceType.BROKER, "first")

    with pytest.raises(UsageError, match="by its id"):
        run(admin_of(make_broker()).configs.describe([resource]))


def entry(name, value, source=ConfigSource.DYNAMIC_TOPIC_CONFIG):
    return ConfigEntry(name, value, int(source), source == ConfigSource.DEFAULT_CONFIG)


CURRENT = ConfigDescription(
    TOPIC,
    [
        entry("retention.ms", "1000"),
        entry("retention.bytes", "-1", ConfigSource.DEFAULT_CONFIG),
        entry("cleanup.policy", "compact"),
        entry("flush.ms", "9"),
    ],
)


@pytest.mark.parametrize(
    ("changes", "lost"),
    [
        (ConfigChanges({"retention.ms": "999"}), ["retention.ms"]),
        (ConfigChanges({"retention.ms": "1000"}), []),
        (ConfigChanges({"retention.ms": "-1"}), []),
        (ConfigChanges({"retention.bytes": "5"}), ["retention.bytes"]),
        (ConfigChanges({"retention.ms": "nonsense"}), []),
        (ConfigChanges(delete=["retention.ms"]), ["retention.ms"]),
        (ConfigChanges(delete=["retention.bytes"]), []),
        (ConfigChanges({"cleanup.policy": "delete"}), ["cleanup.policy"]),
        (ConfigChanges(append={"cleanup.policy": "delete"}), ["cleanup.policy"]),
        (ConfigChanges({"cleanup.policy": "compact"}), []),
        (ConfigChanges(subtract={"cleanup.policy": "compact"}), []),
        (ConfigChanges({"flush.ms": "1"}), []),
    ],
)
def test_changes_that_may_delete_records_are_found(changes, lost):
    assert [it.name for it in losses(CURRENT, changes)] == lost


def test_changes_of_a_broker_delete_no_records():
    resource = ConfigResource(ResourceType.BROKER, "0")

    assert losses(ConfigDescription(resource), ConfigChanges({"retention.ms": "1"})) == []
