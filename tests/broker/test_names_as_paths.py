"""T33: names of topics and groups that look like paths reach no file outside the log directory."""

import re

import pytest

from kctl.admin.topics import NewTopic
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kctl.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.broker_cluster import running_brokers

NAMES = [
    "",
    ".",
    "..",
    "../x",
    "../../etc/x",
    "/etc/x",
    "a/b",
    "a/../../b",
    "a\\b",
    "..\\b",
    "a\x00b",
    "\x00",
    "a\nb",
    "a b",
    "~",
    "~root/x",
    "$HOME",
    "%2e%2e%2fx",
    "x" * 250,
    "x" * 1000,
    "\u2024\u2024/x",  # one dot leaders
    "\uff0e\uff0e\uff0fx",  # full width
    "\u2025",  # two dot leader
    "e\u0301",
    "a:b",
    "a*",
    "-\u2010",
    "\u202egol",
]
DIRECTORY = re.compile(r"(orders|__consumer_offsets)-\d+")


@pytest.fixture
def cluster(tmp_path):
    (tmp_path / "inside").mkdir()
    with running_brokers(tmp_path / "inside") as cluster:
        cluster.start(
            1,
            auto_create_topics_enable="true",
            offsets_topic_num_partitions=1,
            offsets_topic_replication_factor=1,
        )
        yield cluster


def paths_of(directory):
    """Every directory and file below `directory` but segments, indexes and checkpoints."""
    found = {str(it.relative_to(directory)) for it in directory.rglob("*")}
    return {it for it in found if not re.search(r"/\d{20}\.|checkpoint|partition", it)}


def test_no_topic_has_such_a_name(cluster, tmp_path):
    before = paths_of(tmp_path)
    admin = cluster.admin()
    for name in NAMES:
        (result,) = cluster.run(admin.topics.create([NewTopic(name, 1, 1)]))
        assert result.error.code == ErrorCode.INVALID_TOPIC_EXCEPTION, name
    assert paths_of(tmp_path) == before


def test_no_topic_is_created_automatically_with_such_a_name(cluster, tmp_path):
    before = paths_of(tmp_path)
    for name in NAMES:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
        )
        (topic,) = cluster.run(cluster.router().send_to_any(request)).topics
        assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION, name
    assert paths_of(tmp_path) == before


def test_a_group_with_such_a_name_is_a_record_and_no_file(cluster, tmp_path):
    admin = cluster.admin()
    (result,) = cluster.run(admin.topics.create([NewTopic("orders", 1, 1)]))
    assert result.error is None
    for name in filter(None, NAMES):
        request = OffsetCommitRequest(
            group_id=name,
            topics=[
                OffsetCommitRequestTopic(
                    name="orders",
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=0, committed_offset=1, committed_metadata=""
                        )
                    ],
                )
            ],
        )
        answer = cluster.run(cluster.router().send_to_coordinator(name, request))
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE, name
    broker = tmp_path / "inside" / "broker-1"
    directories = {it.name for it in broker.iterdir() if it.is_dir()}
    assert all(DIRECTORY.fullmatch(it) for it in directories), directories
    assert [it.name for it in tmp_path.iterdir()] == ["inside"]
