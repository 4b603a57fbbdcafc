"""A kind of client for the search of the costliest turn: configs of very many resources.

The description of one topic's configs takes ten bytes and about half a millisecond. A sweep does
not find that, as it names few topics again and again, which are described once.
"""

import random  # noqa: TID251 - only ever seeded

from kctl.protocol.constants import BROKER_RESOURCE, TOPIC_RESOURCE
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
