"""TODO."""

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message, Struct, array, int16, int32, int64, string


class ControlledShutdownRequest(Message, api=ApiKey.CONTROLLED_SHUTDOWN):
    """TODO."""

    broker_id: int = int32()
    broker_epoch: int = int64("2+", default=-1, ignorable=True)


class RemainingPartition(Struct):
    """TODO."""

    topic_name: str = string()
    partition_index: int = int32()


class ControlledShutdownResponse(Message, api=ApiKey.CONTROLLED_SHUTDOWN):
    """TODO."""

    error_code: int = int16()
    remaining_partitions: list[RemainingPartition] = array(RemainingPartition)
