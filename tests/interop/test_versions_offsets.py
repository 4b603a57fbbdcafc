"""FindCoordinator, OffsetCommit, OffsetFetch and OffsetDelete in every version, on kctl and on
Apache Kafka 2.7.2."""

from functools import partial

import pytest

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages import find_coordinator, offset_commit, offset_delete
from tests.support.twin_requests import HIGHEST, by_name, fetched


@pytest.fixture
def new_topic(new_topic):
    """Topics that keep records with old timestamps, which Apache Kafka deletes 30 seconds after its
    start."""
    return partial(new_topic, retention_ms="-1")


def commit_request(group, topic, version, *offsets, metadata="note", **fields):
    partitions = [
        offset_commit.OffsetCommitRequestPartition(
            partition_index=number, committed_offset=offset, committed_metadata=metadata
        )
        for number, offset in enumerate(offsets)
    ]
    if version >= 6:
        for partition in partitions:
            partition.committed_leader_epoch = 0
    return offset_commit.OffsetCommitRequest(
        group_id=group,
        topics=[offset_commit.OffsetCommitRequestTopic(name=topic, partitions=partitions)],
        **fields,
    )


def test_offsets_are_committed_and_fetched_in_every_version(twins, new_topic, group):
    topic = new_topic(2)
    for version in HIGHEST[ApiKey.OFFSET_COMMIT]:
        # Partition 2 does not exist.
        answer = twins.ask(commit_request(group, topic, version, 10, 20 + version, 30), version)
        (found,) = answer["topics"]
        codes = [partition["error_code"] for partition in found["partitions"]]
        assert codes == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        for fetch_version in HIGHEST[ApiKey.OFFSET_FETCH]:
            answer = fetched(twins, group, {topic: [0, 1, 2], "no-such-topic": [0]}, fetch_version)
            offsets = [p["committed_offset"] for t in answer["topics"] for p in t["partitions"]]
            # Version 0 is kept in ZooKeeper, apart from the others.
            if fetch_version == 0:
                assert offsets == [-1, 10, 20, -1]
            elif version == 0:
                assert offsets == [-1, -1, -1, -1]
            else:
                assert offsets == [-1, 10, 20 + version, -1]
            if fetch_version >= 2:
                assert len(fetched(twins, group, None, fetch_version)["topics"]) == (version > 0)


def test_commits_are_refused_in_every_version(twins, new_topic, group):
    topic = new_topic()
    for version in HIGHEST[ApiKey.OFFSET_COMMIT]:
        twins.ask(commit_request(group, topic, version, 1, metadata="m" * 5000), version)
        twins.ask(commit_request(group, topic, version, 1, metadata=None), version)
        twins.ask(commit_request(group, topic, version, -1), version)
        twins.ask(commit_request("", topic, version, 1), version)
        twins.ask(commit_request(group, "no-such-topic", version, 1), version)
        if version >= 1:
            for generation, member in ((1, "m"), (-1, "m"), (0, ""), (1, "")):
                request = commit_request(
                    group, topic, version, 1, generation_id=generation, member_id=member
                )
                twins.ask(request, version)
        if version >= 7:
            request = commit_request(group, topic, version, 1, group_instance_id="i")
            twins.ask(request, version)
    for version in HIGHEST[ApiKey.OFFSET_FETCH]:
        fetched(twins, "", {topic: [0]}, version)
        fetched(twins, "no-such-group", {topic: [0]}, version)


def test_offsets_are_deleted(twins, new_topic, group):
    topic = new_topic(2)
    twins.ask(commit_request(group, topic, 8, 1, 2), 8)
    for name in (group, "no-such-group", ""):
        request = offset_delete.OffsetDeleteRequest(
            group_id=name,
            topics=[
                offset_delete.OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[
                        offset_delete.OffsetDeleteRequestPartition(partition_index=number)
                        for number in (1, 5)
                    ],
                )
            ],
        )
        twins.ask(request, but=by_name)
    (found,) = fetched(twins, group, None, 7)["topics"]
    assert [partition["partition_index"] for partition in found["partitions"]] == [0]


def test_find_coordinator(twins, group):
    def without_port(answer):
        return {**answer, "port": min(answer["port"], 0)}

    for version in HIGHEST[ApiKey.FIND_COORDINATOR]:
        for key in (group, "", "other"):
            request = find_coordinator.FindCoordinatorRequest(key=key)
            twins.ask(request, version, but=without_port)
