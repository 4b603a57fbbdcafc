"""Kinds of clients for the search of the costliest turn: configs of very many resources, and very
many configs of one.

The description of one topic's configs takes ten bytes and about half a millisecond. A sweep does
not find that, as it names few topics again and again, which are described once. Nor does it find
what takes the names of a request times the configs of a broker.
"""

import random  # noqa: TID251 - only ever seeded

from kctl.broker.config.config_changes import OVERRIDES_MAX
from kctl.protocol.constants import BROKER_LOGGER_RESOURCE, BROKER_RESOURCE, TOPIC_RESOURCE
from kctl.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kctl.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from kctl.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.serve.costly_crowd import Crowd

TOPICS_MAX = 1_000
# What one topic takes: its creation, a description and two alterations.
BYTES_PER_TOPIC = 150
BROKER_ID = "0"
# What one config of a resource takes, as it is altered or described; elements of a request.
BYTES_PER_CONFIG = 12
CONFIGS_MAX = 29_000


def many_configs(crowd: Crowd, draw: random.Random) -> None:
    """Topics that are created, described and altered together; and one broker, whose number may
    begin with any number of zeros."""
    peer = crowd.peer()
    names = [f"c{number}" for number in range(min(crowd.left // BYTES_PER_TOPIC, TOPICS_MAX))]
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    peer.ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 5)
    spelled = [BROKER_ID * number for number in range(1, 50)]
    config = draw.choice(["segment.bytes", "retention.bytes"])
    for kind, resources, name, value in (
        (TOPIC_RESOURCE, names, config, "1000000"),
        (BROKER_RESOURCE, spelled, "log.cleaner.threads", "1"),
    ):
        described = [
            DescribeConfigsResource(
                resource_type=kind, resource_name=resource, configuration_keys=None
            )
            for resource in resources
        ]
        peer.ask(DescribeConfigsRequest(resources=described, include_synonyms=True), 3)
        changes = [AlterableConfig(name=name, config_operation=0, value=value)]
        altered = [
            AlterConfigsResource(resource_type=kind, resource_name=resource, configs=changes)
            for resource in resources
        ]
        for validate_only in (True, kind == BROKER_RESOURCE):
            request = IncrementalAlterConfigsRequest(resources=altered, validate_only=validate_only)
            peer.ask(request, 1)


def wide_configs(crowd: Crowd, draw: random.Random) -> None:
    """A topic, a broker and its loggers, of which very many configs are described and altered."""
    crowd.peer().ask(
        CreateTopicsRequest(
            topics=[CreatableTopic(name="wide", num_partitions=1, replication_factor=1)],
            timeout_ms=60_000,
        ),
        5,
    )
    kinds = ((TOPIC_RESOURCE, "wide"), (BROKER_RESOURCE, BROKER_ID), (BROKER_LOGGER_RESOURCE, "0"))
    for kind, resource in kinds:
        count = min(crowd.left // (3 * len(kinds) * BYTES_PER_CONFIG), CONFIGS_MAX)
        names = [draw.choice("abc") + str(number) for number in range(count)]
        described = DescribeConfigsResource(
            resource_type=kind, resource_name=resource, configuration_keys=names
        )
        crowd.peer().ask(DescribeConfigsRequest(resources=[described], include_synonyms=True), 3)
        # As many as a resource may have, and more.
        for altered in (names[:OVERRIDES_MAX], names):
            changes = [
                AlterableConfig(name=name, config_operation=0, value="1") for name in altered
            ]
            wide = AlterConfigsResource(resource_type=kind, resource_name=resource, configs=changes)
            request = IncrementalAlterConfigsRequest(resources=[wide], validate_only=False)
            crowd.peer().ask(request, 1)
