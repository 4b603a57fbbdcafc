"""Fetch, ListOffsets, DeleteRecords and OffsetForLeaderEpoch in every version, on kctl and on
Apache Kafka 2.7.2."""

from functools import partial

import pytest

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages import delete_records, fetch, offset_for_leader_epoch
from tests.support.broker_client import assert_same, plain
from tests.support.twin_requests import (
    CODECS,
    GZIP,
    HIGHEST,
    T0_MS,
    ZSTD,
    by_name,
    comparable,
    comparable_produce,
    error_of,
    fetch_request,
    filled,
    list_offsets_request,
    produce_request,
    read_down_converted,
    records,
)


@pytest.fixture
def new_topic(new_topic):
    """Topics that keep records with old timestamps, which Apache Kafka deletes 30 seconds after its
    start."""
    return partial(new_topic, retention_ms="-1")


@pytest.mark.parametrize("version", HIGHEST[ApiKey.FETCH])
def test_fetch_from_anywhere(twins, new_topic, version):
    for codec in (*CODECS, ZSTD):
        topic = filled(twins, new_topic, codec=codec)
        for offset in (0, 1, 5, 11, 12, 13, -1):
            request = fetch_request(topic, offset)
            ours, theirs = map(comparable, twins.both(request, version))
            (partition,) = theirs["responses"][0]["partition_responses"]
            if version < 4 and partition["record_set"]:
                read_down_converted(twins, topic, version, offset)
            else:
                assert_same(ours, theirs)
    for version in HIGHEST[ApiKey.FETCH]:
        twins.ask(fetch_request("no-such-topic", 0), version)
        twins.ask(fetch_request(topic, 12, 0), version)


@pytest.mark.parametrize("version", HIGHEST[ApiKey.FETCH])
def test_fetch_limits(twins, new_topic, version):
    topic = filled(twins, new_topic, count=4, size=100)
    batch = len(records(2, size=100))
    for limit in (0, 1, 50, batch - 1, batch, batch + 1, 2 * batch, 3 * batch - 1):
        for options in ({"partition_max_bytes": limit}, {"max_bytes": limit}):
            ours, theirs = map(comparable, twins.both(fetch_request(topic, 0, **options), version))
            if version >= 4:
                assert_same(ours, theirs), (options, version)


@pytest.mark.parametrize("version", range(3))
def test_old_fetchers_receive_the_part_of_a_large_batch_that_fits(twins, new_topic, version):
    topic = filled(twins, new_topic, count=4, size=100)
    stored = twins.ask(fetch_request(topic, 0), 4)["responses"][0]["partition_responses"][0]
    first_batch = len(records(2, size=100))
    for limit in (1, 50, first_batch - 1):
        request = fetch_request(topic, 0, partition_max_bytes=limit)
        answer = twins.ask(request, version)
        (partition,) = answer["responses"][0]["partition_responses"]
        assert partition["record_set"] == stored["record_set"][:limit]


def test_fetch_keeps_the_order_of_interleaved_partitions(twins, new_topic):
    a, b = new_topic(2), new_topic(2)
    for topic in (a, b):
        assert error_of(twins, 8, topic, records(2)) == 0
        produced = produce_request(topic, records(2), records(2))
        assert twins.ask(produced, 8, but=comparable_produce)
    request = fetch_request(a, 0)
    request.topics = [fetch_request(topic, 0).topics[0] for topic in (a, b, a, b)]
    request.topics[2].partitions[0].partition = request.topics[3].partitions[0].partition = 1
    for version in range(4, 13):
        answer = twins.ask(request, version)
        assert [
            (topic["topic"], [found["partition"] for found in topic["partition_responses"]])
            for topic in answer["responses"]
        ] == [(a, [0]), (b, [0]), (a, [1]), (b, [1])]


def test_a_partition_named_twice_is_answered_once_for_its_last_values(twins, new_topic):
    topic = filled(twins, new_topic)
    for version in range(4, 13):
        request = fetch_request(topic, 0)
        last = fetch_request(topic, 12).topics[0].partitions[0]
        request.topics[0].partitions.append(last)
        answer = twins.ask(request, version)
        (partition,) = answer["responses"][0]["partition_responses"]
        assert partition["record_set"] == b""


def test_old_fetchers_get_what_comes_before_zstd(twins, new_topic):
    topic = new_topic()
    for codec in (0, GZIP, ZSTD, 0):
        assert error_of(twins, 8, topic, records(2, codec=codec)) == 0
    for version in range(4):
        # Apache Kafka converts on the way out, piece by piece.
        assert 3 <= read_down_converted(twins, topic, version) <= 6
    for version in range(10):
        answer = twins.ask(fetch_request(topic, 6), version, but=comparable)
        (partition,) = answer["responses"][0]["partition_responses"]
        expected = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if version < 4 else 0
        assert partition["error_code"] == expected


def test_a_topic_may_refuse_old_fetchers(twins, new_topic):
    topic = new_topic(message_downconversion_enable="false")
    assert error_of(twins, 8, topic, records(2)) == 0
    zstd = new_topic(compression_type="zstd")
    assert error_of(twins, 8, zstd, records(2)) == 0
    for version in HIGHEST[ApiKey.FETCH]:
        for name in (topic, zstd):
            twins.ask(fetch_request(name, 0), version, but=comparable)


def test_fetch_sessions(twins, new_topic):
    topic = new_topic(3)
    assert error_of(twins, 8, topic, records(2)) == 0
    sessions = [0, 0]

    def ask(epoch, *offsets, version, forget=(), wrong_id=0):
        """Return the partitions of the response, each with its number of records."""
        answers = []
        for number, client in enumerate(twins.clients):
            request = fetch_request(topic, *offsets, session_epoch=epoch)
            request.session_id = sessions[number] + wrong_id
            if not offsets:
                request.topics = []
            if forget:
                request.forgotten_topics_data = [
                    fetch.ForgottenTopic(topic=topic, partitions=list(forget))
                ]
            answer = comparable(plain(client.ask(request, version)))
            sessions[number] = answer["session_id"] or sessions[number]
            answer["session_id"] = bool(answer["session_id"])
            answers.append(answer)
        assert_same(*answers)
        (answer, _) = answers
        return answer["error_code"], {
            partition["partition"]: len(partition["record_set"])
            for found in answer["responses"]
            for partition in found["partition_responses"]
        }

    for version in range(7, 13):
        sessions[:] = [0, 0]
        end = ask(-1, 0, version=version)[1][0]
        assert ask(0, 0, 0, 0, version=version) == (0, {0: end, 1: 0, 2: 0})
        assert ask(1, end * 3, version=version) == (0, {})
        assert ask(2, version=version) == (0, {})
        assert error_of(twins, 8, topic, records(2)) == 0
        assert ask(3, version=version) == (0, {0: 1})
        assert ask(4, 0, version=version, forget=[1])[1].keys() == {0}
        assert ask(9, version=version) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, {})
        wrong = ask(5, version=version, wrong_id=1)
        assert wrong == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, {})
        assert ask(5, -5, version=version)[0] == 0
        assert ask(-1, 0, version=version)[1].keys() == {0}
        assert ask(6, version=version) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, {})


@pytest.mark.parametrize("epoch", [-1, 0, 1, 7])
def test_leader_epochs_are_checked_where_requests_have_them(twins, new_topic, epoch):
    topic = filled(twins, new_topic)
    for version in HIGHEST[ApiKey.FETCH]:
        request = fetch_request(topic, 0)
        request.topics[0].partitions[0].current_leader_epoch = epoch
        if version >= 4:
            twins.ask(request, version, but=comparable)
        if version >= 12:
            request.topics[0].partitions[0].last_fetched_epoch = epoch
            twins.ask(request, version, but=comparable)
    for version in HIGHEST[ApiKey.LIST_OFFSETS]:
        twins.ask(list_offsets_request(topic, -1, current_leader_epoch=epoch), version)
    for version in HIGHEST[ApiKey.OFFSET_FOR_LEADER_EPOCH]:
        for asked in (-1, 0, 1, 5):
            twins.ask(
                offset_for_leader_epoch.OffsetForLeaderEpochRequest(
                    topics=[
                        offset_for_leader_epoch.OffsetForLeaderTopic(
                            name=topic,
                            partitions=[
                                offset_for_leader_epoch.OffsetForLeaderPartition(
                                    partition_index=number,
                                    current_leader_epoch=epoch,
                                    leader_epoch=asked,
                                )
                                for number in range(2)
                            ],
                        )
                    ]
                ),
                version,
            )


@pytest.mark.parametrize("version", HIGHEST[ApiKey.LIST_OFFSETS])
def test_list_offsets_by_timestamp(twins, new_topic, version):
    for codec in (0, GZIP):
        topic = new_topic(2)
        for data in (records(2, codec=codec), records(2, 9, codec), records(2, 1, codec)):
            assert error_of(twins, 8, topic, data) == 0
        for n in (-2, -1, 0, 5, 10, 11, 20, 75, 80, 81, 10**9):
            timestamp = n if n < 0 else T0_MS + n
            twins.ask(list_offsets_request(topic, timestamp, timestamp, -1), version)
        twins.ask(list_offsets_request(topic, 0), version)
        twins.ask(list_offsets_request(topic, -3), version)
        twins.ask(list_offsets_request("no-such-topic", -1), version)
        twice = list_offsets_request(topic, -1)
        twice.topics.append(list_offsets_request(topic, -2).topics[0])
        twins.ask(twice, version)
        replica = list_offsets_request(topic, -1)
        replica.replica_id = -2
        twins.ask(replica, version)


def test_old_list_offsets_returns_the_starts_of_segments(twins, new_topic):
    topic = new_topic(segment_bytes="200")
    for _ in range(5):
        assert error_of(twins, 8, topic, records(2)) == 0
    for count in (0, 1, 3, 100):
        for timestamp in (-1, -2):
            answer = twins.ask(list_offsets_request(topic, timestamp, max_num_offsets=count), 0)
            assert len(answer["topics"][0]["partitions"][0]["old_style_offsets"]) <= count


def test_delete_records(twins, new_topic):
    topic = filled(twins, new_topic)
    for version in HIGHEST[ApiKey.DELETE_RECORDS]:
        for offset in (version + 1, 0, 100, -1, -2) if version else (1, 0, 100, -2):
            request = delete_records.DeleteRecordsRequest(
                topics=[
                    delete_records.DeleteRecordsTopic(
                        name=topic,
                        partitions=[
                            delete_records.DeleteRecordsPartition(
                                partition_index=number, offset=offset
                            )
                            for number in range(2)
                        ],
                    )
                ],
                timeout_ms=10_000,
            )
            twins.ask(request, version, but=by_name)
        for offset in (0, 1, 2, 12):
            ours, theirs = map(comparable, twins.both(fetch_request(topic, offset), 12))
            assert_same(ours, theirs)
        twins.ask(list_offsets_request(topic, -2), 5)
        twins.ask(list_offsets_request(topic, T0_MS), 5)
