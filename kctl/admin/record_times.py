"""Reads the timestamps of single records of many partitions, with few Fetch requests.

A timestamp is that of the first record at or after an offset. A request asks for a small part of
each partition; partitions whose next batch is larger are asked for one at a time.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kctl.errors import KctlError
from kctl.model import TopicPartition
from kctl.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kctl.records.memory_records import batches

if TYPE_CHECKING:
    from kctl.client.router import Router

# Partitions asked for at once, and the bytes of each: 8 MiB for a response.
_PARTITIONS_MAX = 128
_PARTITION_BYTES = 64 * 1024
_RESPONSE_BYTES_MAX = _PARTITIONS_MAX * _PARTITION_BYTES
# Of a partition that is asked for alone; brokers return its first batch whole.
_ALONE_BYTES = 1024 * 1024
_NO_TIMESTAMP = -1


async def record_times(
    router: "Router", offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | KctlError]:
    """Return, per partition, the timestamp (ms) of the first record at or after an offset.

    Partitions without such a record or with records without timestamps are left out; what a broker
    refuses, or the bytes of a damaged batch, is an error in the result.
    """
    found: dict[TopicPartition, int | KctlError] = {}
    large: list[TopicPartition] = []
    wanted = sorted(offsets)
    for start in range(0, len(wanted), _PARTITIONS_MAX):
        part = wanted[start : start + _PARTITIONS_MAX]
        large += await _read(router, offsets, part, _PARTITION_BYTES, found)
    for partition in large:
        await _read(router, offsets, [partition], _ALONE_BYTES, found)
    return found


async def _read(
    router: "Router",
    offsets: Mapping[TopicPartition, int],
    partitions: Iterable[TopicPartition],
    size: int,
    found: dict[TopicPartition, int | KctlError],
) -> list[TopicPartition]:
    """Add the timestamps of `partitions` to `found`; return those without a complete batch."""

    def build(of_leader: list[TopicPartition]) -> FetchRequest:
        return _request(offsets, of_leader, size)

    answers = await router.send_to_leaders(partitions, build, _data_of)
    incomplete = []
    for partition, answer in answers.items():
        try:
            if isinstance(answer, KctlError):
                raise answer
            timestamp = _timestamp(answer, offsets[partition])
        except KctlError as error:
            found[partition] = error
            continue
        if timestamp is None:
            incomplete.append(partition)
        elif timestamp != _NO_TIMESTAMP:
            found[partition] = timestamp
    return incomplete


def _request(
    offsets: Mapping[TopicPartition, int], partitions: list[TopicPartition], size: int
) -> FetchRequest:
    topics: dict[str, list[FetchPartition]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(
            FetchPartition(
                partition=partition.partition,
                fetch_offset=offsets[partition],
                partition_max_bytes=size,
            )
        )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=_RESPONSE_BYTES_MAX,
        topics=[FetchTopic(topic=name, partitions=items) for name, items in topics.items()],
    )


def _data_of(response: Any) -> Iterable[tuple[TopicPartition, int, bytes | memoryview]]:
    for topic in response.responses:
        for item in topic.partition_responses:
            data = item.record_set or b""
            yield TopicPartition(topic.topic, item.partition), item.error_code, data


def _timestamp(data: bytes | memoryview, offset: int) -> int | None:
    """Return the timestamp of the first record at or after `offset`, None without one."""
    for batch in batches(data):
        if batch.last_offset < offset:
            continue
        batch.ensure_valid()
        for record in batch.records():
            if record.offset >= offset:
                return record.timestamp
    return None
