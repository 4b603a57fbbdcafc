"""ControlledShutdown: a broker that is about to stop asks the controller to move its leaders.

API 7, v0-3. v0 has a request header of its own, without client id; v2: broker epochs (KIP-380).
"""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int16, int32, int64, string


class ControlledShutdownRequest(Message, api=ApiKey.CONTROLLED_SHUTDOWN):
    """Which broker is about to stop."""

    broker_id: int = int32()
    broker_epoch: int = int64("2+", default=-1, ignorable=True)


class RemainingPartition(Struct):
    """A partition that the broker leads still."""

    topic_name: str = string()
    partition_index: int = int32()


class ControlledShutdownResponse(Message, api=ApiKey.CONTROLLED_SHUTDOWN):
    """What is left to move."""

    error_code: int = int16()
    remaining_partitions: list[RemainingPartition] = array(RemainingPartition)
