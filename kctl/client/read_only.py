"""Decides which requests a client that may only read sends.

The list is of APIs that read, not of those that write: an API that is added later is refused until
it is listed here.
"""

from kctl.errors import UsageError
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.later_apis import LaterApi
from kctl.protocol.schema import Message

# The APIs that change nothing, whatever their requests contain, in all versions.
READING: frozenset[int] = frozenset(
    {
        ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.OFFSET_FETCH,
        ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS, ApiKey.API_VERSIONS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.DESCRIBE_ACLS, ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_LOG_DIRS, ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, LaterApi.DESCRIBE_QUORUM,
        LaterApi.CONSUMER_GROUP_DESCRIBE, LaterApi.DESCRIBE_TOPIC_PARTITIONS,
        LaterApi.SHARE_GROUP_DESCRIBE, LaterApi.DESCRIBE_SHARE_GROUP_OFFSETS,
    }
)  # fmt: skip


def is_reading(message: Message) -> bool:
    """Return whether the request changes nothing in the cluster: its API reads, or it asks the
    broker only to validate a change."""
    return message.api in READING or bool(getattr(message, "validate_only", False))


def check_reads_only(message: Message) -> None:
    """Raise UsageError if the request can change something in the cluster."""
    if not is_reading(message):
        name = message.api.title if message.api is not None else type(message).__name__
        raise UsageError(
            f"This client is read-only and does not send {name}",
            hint="use a profile without read-only, or -C with another one",
        )
