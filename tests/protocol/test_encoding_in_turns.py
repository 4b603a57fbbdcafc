"""`encoding` gives the bytes of `encode`, with turns for other work in between."""

import pytest

from kctl.errors import UsageError
from kctl.protocol.codec import encode, encoding
from kctl.protocol.encoder_source import STRUCTS_PER_YIELD
from kctl.protocol.messages.api_versions import ApiVersionsResponse, FinalizedFeatureKey
from kctl.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from kctl.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kctl.work import at_once

COUNT = 5 * STRUCTS_PER_YIELD


@pytest.mark.parametrize(
    "version", range(MetadataResponse.min_version, MetadataResponse.max_version + 1)
)
def test_a_wide_topic_is_encoded_in_turns_of_bounded_work(version):
    partitions = [
        MetadataResponsePartition(partition_index=n, leader_id=1, replica_nodes=[1], isr_nodes=[1])
        for n in range(COUNT)
    ]
    message = MetadataResponse(
        topics=[MetadataResponseTopic(name="t", partitions=partitions)], controller_id=1
    )
    work = encoding(message, version)
    assert sum(1 for _ in work) == COUNT // STRUCTS_PER_YIELD
    parts = at_once(encoding(message, version))
    (whole,) = encode(message, version)
    assert b"".join(parts) == whole
    # Nor are the pieces of all structs joined in one turn.
    assert max(map(len, parts)) < len(whole) // 4


def test_an_array_in_a_tagged_field_is_one_part():
    features = [
        FinalizedFeatureKey(name=f"f{number}", max_version_level=1, min_version_level=1)
        for number in range(COUNT)
    ]
    message = ApiVersionsResponse(finalized_features=features)
    assert sum(1 for _ in encoding(message, 3)) == COUNT // STRUCTS_PER_YIELD
    assert at_once(encoding(message, 3)) == encode(message, 3)


def test_a_small_message_is_encoded_at_once():
    message = ListGroupsResponse(groups=[ListedGroup(group_id="g")])
    assert list(encoding(message, 0)) == []
    assert at_once(encoding(message, 0)) == encode(message, 0)


def test_a_value_that_does_not_fit_is_the_same_error():
    message = ListGroupsResponse(error_code=1 << 20)
    with pytest.raises(UsageError, match="cannot be encoded"):
        at_once(encoding(message, 0))
