"""ControlledShutdown: move leaders away from a broker that is about to stop.

API 7, v0-3. v0 has a separate request header, without client id; v2: broker epochs (KIP-380).
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int16, int32, int64, string


class ControlledShutdownRequest(Message, api=ApiKey.CONTROLLED_SHUTDOWN):
    """The broker that is about to stop."""

    broker_id: int = int32()
    broker_epoch: int = int64("2+", default=-1, ignorable=True)


class RemainingPartition(Struct):
    """A partition that the broker still leads."""

    topic_name: str = string()
    partition_index: int = int32()


class ControlledShutdownResponse(Message, api=ApiKey.CONTROLLED_SHUTDOWN):
    """The partitions that are left to move."""

    error_code: int = int16()
    remaining_partitions: list[RemainingPartition] = array(RemainingPartition)
