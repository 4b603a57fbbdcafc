"""Copies ranges of a partition from one broker, as segments of a directory.

The broker need not lead the partition: followers serve consumers, too (Fetch v11, KIP-392). It
returns batches up to the high watermark, byte for byte as its log has them.

Kafka 2.7: kafka.tools.ReplicaVerificationTool; KIP-392
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kctl.client.broker_channel import BrokerChannel
from kctl.client.security import NO_SECURITY, ClientSecurity
from kctl.errors import KctlError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kctl.protocol.messages.metadata import MetadataRequest
from kctl.records.memory_records import batches
from kctl.storage.layout import LOG_SUFFIX, file_name

if TYPE_CHECKING:
    from kctl.runtime.disk import Disk, DiskFile
    from kctl.runtime.runtime import Runtime

_FETCH_BYTES_MAX = 8 * 1024 * 1024
# The end of a segment: positions in its index are int32.
_SEGMENT_BYTES_MAX = 1 << 30
_NEVER = 2**63


@dataclass(frozen=True, slots=True)
class FetchedReplica:
    """What was copied."""

    cluster_id: str | None
    batches: int
    bytes: int


async def fetch_replica(
    runtime: "Runtime",
    disk: "Disk",
    address: tuple[str, int],
    partition: TopicPartition,
    ranges: Sequence[tuple[int, int | None]],
    directory: str,
    timeout_ms: int,
    security: ClientSecurity = NO_SECURITY,
) -> FetchedReplica:
    """Write the batches that overlap `ranges` (both ends inclusive, None: the high watermark) to
    segments in `directory`.

    Raise ApiError if the broker has no replica of the partition, UnreachableError.
    """
    channel = BrokerChannel(runtime, *address, request_timeout_ms=timeout_ms, security=security)
    await channel.connect(timeout_ms)
    try:
        metadata = await channel.send(MetadataRequest(topics=[]))
        writer = _Writer(disk, directory)
        try:
            for first, last in ranges:
                await _copy(channel, partition, first, last, writer)
        finally:
            writer.close()
    finally:
        channel.close()
    return FetchedReplica(metadata.cluster_id, writer.batches, writer.bytes)


async def _copy(
    channel: BrokerChannel,
    partition: TopicPartition,
    first: int,
    last: int | None,
    writer: "_Writer",
) -> None:
    offset, end = max(first, writer.end), _NEVER if last is None else last + 1
    size = _FETCH_BYTES_MAX
    while offset < end:
        data = await _fetch(channel, partition, offset, size)
        before = offset
        for batch in batches(data):
            if batch.base_offset >= end:
                return
            batch.ensure_valid()
            if batch.last_offset >= offset:
                writer.write(batch.base_offset, batch.last_offset, batch.to_bytes())
                offset = batch.last_offset + 1
        if offset == before:
            return


async def _fetch(
    channel: BrokerChannel, partition: TopicPartition, offset: int, size: int
) -> bytes | memoryview:
    item = FetchPartition(
        partition=partition.partition, fetch_offset=offset, partition_max_bytes=size
    )
    topic = FetchTopic(topic=partition.topic, partitions=[item])
    request = FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=size, topics=[topic]
    )
    response = await channel.send(request)
    if response.error_code:
        raise ApiError(response.error_code)
    found = response.responses[0].partition_responses[0]
    if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        # It begins later, or ends before.
        if found.log_start_offset > offset:
            return await _fetch(channel, partition, found.log_start_offset, size)
        return b""
    if found.error_code:
        text = ErrorCode(found.error_code).text
        raise ApiError(found.error_code, f"Cannot read {partition} of {channel.name}: {text}")
    return found.record_set or b""


class _Writer:
    """Writes batches to segments; a gap between them begins a new one."""

    def __init__(self, disk: "Disk", directory: str) -> None:
        self.batches = 0
        self.bytes = 0
        # The offset after the last batch.
        self.end = 0
        self._disk = disk
        self._directory = directory
        self._file: DiskFile | None = None

    def write(self, first_offset: int, last_offset: int, data: bytes) -> None:
        """Append a batch."""
        if first_offset < self.end:
            raise KctlError(f"The broker sent offset {first_offset} after {self.end - 1}")
        file = self._file
        if file is None or first_offset != self.end or file.size() > _SEGMENT_BYTES_MAX:
            self.close()
            path = f"{self._directory}/{file_name(first_offset, LOG_SUFFIX)}"
            file = self._file = self._disk.open(path, create=True)
        file.append([data])
        self.end = last_offset + 1
        self.batches += 1
        self.bytes += len(data)

    def close(self) -> None:
        """Close the segment."""
        if self._file is not None:
            self._file.close()
            self._file = None
