"""The API versions of older releases of Apache Kafka, for `kctl_as_version`.

The figures are what brokers of these releases report in ApiVersions. Only APIs that kctl
serves are listed; all begin with version 0.
"""

from collections.abc import Mapping

from kctl.errors import UsageError
from kctl.protocol.api_keys import ApiKey

__all__ = ["RELEASES"]

NATIVE = "2.7"
RELEASES = ("0.10.2", "1.1", "2.0", "2.4", NATIVE)
_ABSENT = -1

# API: last version in 0.10.2, 1.1, 2.0, 2.4; those of 2.7 are in ApiKey.
_LAST_VERSIONS = {
    ApiKey.PRODUCE: (2, 5, 6, 8),
    ApiKey.FETCH: (3, 7, 8, 11),
    ApiKey.LIST_OFFSETS: (1, 2, 3, 5),
    ApiKey.METADATA: (2, 5, 6, 9),
    ApiKey.LEADER_AND_ISR: (0, 1, 1, 4),
    ApiKey.STOP_REPLICA: (0, 0, 0, 2),
    ApiKey.UPDATE_METADATA: (3, 4, 4, 6),
    ApiKey.CONTROLLED_SHUTDOWN: (1, 1, 1, 3),
    ApiKey.OFFSET_COMMIT: (2, 3, 4, 8),
    ApiKey.OFFSET_FETCH: (2, 3, 4, 6),
    ApiKey.FIND_COORDINATOR: (0, 1, 2, 3),
    ApiKey.JOIN_GROUP: (1, 2, 3, 6),
    ApiKey.HEARTBEAT: (0, 1, 2, 4),
    ApiKey.LEAVE_GROUP: (0, 1, 2, 4),
    ApiKey.SYNC_GROUP: (0, 1, 2, 4),
    ApiKey.DESCRIBE_GROUPS: (0, 1, 2, 5),
    ApiKey.LIST_GROUPS: (0, 1, 2, 3),
    ApiKey.API_VERSIONS: (0, 1, 2, 3),
    ApiKey.CREATE_TOPICS: (1, 2, 3, 5),
    ApiKey.DELETE_TOPICS: (0, 1, 2, 4),
    ApiKey.DELETE_RECORDS: (_ABSENT, 0, 1, 1),
    ApiKey.INIT_PRODUCER_ID: (_ABSENT, 0, 1, 2),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (_ABSENT, 0, 1, 3),
    ApiKey.ADD_PARTITIONS_TO_TXN: (_ABSENT, 0, 1, 1),
    ApiKey.ADD_OFFSETS_TO_TXN: (_ABSENT, 0, 1, 1),
    ApiKey.END_TXN: (_ABSENT, 0, 1, 1),
    ApiKey.WRITE_TXN_MARKERS: (_ABSENT, 0, 0, 0),
    ApiKey.TXN_OFFSET_COMMIT: (_ABSENT, 0, 1, 2),
    ApiKey.DESCRIBE_CONFIGS: (_ABSENT, 1, 2, 2),
    ApiKey.ALTER_CONFIGS: (_ABSENT, 0, 1, 1),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (_ABSENT, 0, 1, 1),
    ApiKey.DESCRIBE_LOG_DIRS: (_ABSENT, 0, 1, 1),
    ApiKey.CREATE_PARTITIONS: (_ABSENT, 0, 1, 1),
    ApiKey.DELETE_GROUPS: (_ABSENT, 0, 1, 2),
    ApiKey.ELECT_LEADERS: (_ABSENT, _ABSENT, _ABSENT, 2),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (_ABSENT, _ABSENT, _ABSENT, 0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (_ABSENT, _ABSENT, _ABSENT, 0),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (_ABSENT, _ABSENT, _ABSENT, 1),
    ApiKey.OFFSET_DELETE: (_ABSENT, _ABSENT, _ABSENT, 0),
    ApiKey.SASL_HANDSHAKE: (0, 1, 1, 1),
    ApiKey.DESCRIBE_ACLS: (_ABSENT, 0, 1, 1),
    ApiKey.CREATE_ACLS: (_ABSENT, 0, 1, 1),
    ApiKey.DELETE_ACLS: (_ABSENT, 0, 1, 1),
    ApiKey.SASL_AUTHENTICATE: (_ABSENT, 0, 0, 1),
    ApiKey.CREATE_DELEGATION_TOKEN: (_ABSENT, 0, 1, 2),
    ApiKey.RENEW_DELEGATION_TOKEN: (_ABSENT, 0, 1, 1),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (_ABSENT, 0, 1, 1),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (_ABSENT, 0, 1, 1),
}


def served_as(release: str) -> Mapping[ApiKey, tuple[int, int]] | None:
    """Return API -> (first, last) version of a broker of `release`; None for kctl's own versions.

    UsageError if the release is not in RELEASES.
    """
    if release == NATIVE:
        return None
    if release not in RELEASES:
        raise UsageError(
            f"kctl cannot serve as Kafka {release}", hint=f"releases: {', '.join(RELEASES)}"
        )
    column = RELEASES.index(release)
    return {
        key: (0, last_versions[column])
        for key, last_versions in _LAST_VERSIONS.items()
        if last_versions[column] != _ABSENT
    }
