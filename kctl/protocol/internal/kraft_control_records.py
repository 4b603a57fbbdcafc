"""Values of the control records of KRaft: leader changes, snapshot headers and footers, voters.

Kafka 4.1: org.apache.kafka.common.record.ControlRecordType, ControlRecordUtils; KIP-595, KIP-630,
KIP-853.
"""

from functools import cache

from kctl.protocol.internal.table_schema import TableSchema, parse_tables

_TABLE = """
KRaftVersionRecord - 0 flexible 0+
  version int16 0+
  kRaftVersion int16 0+
LeaderChangeMessage - 0-1 flexible 0+
  version int16 0+
  leaderId int32 0+
  voters []struct 0+
    voterId int32 0+
    voterDirectoryId uuid 1+
  grantingVoters []struct 0+
    voterId int32 0+
    voterDirectoryId uuid 1+
SnapshotFooterRecord - 0 flexible 0+
  version int16 0+
SnapshotHeaderRecord - 0 flexible 0+
  version int16 0+
  lastContainedLogTimestamp int64 0+
VotersRecord - 0 flexible 0+
  version int16 0+
  voters []struct 0+
    voterId int32 0+
    voterDirectoryId uuid 0+
    endpoints []struct 0+
      name string 0+
      host string 0+
      port uint16 0+
    kRaftVersionFeature struct 0+
      minSupportedVersion int16 0+
      maxSupportedVersion int16 0+
"""


@cache
def kraft_control_schemas() -> dict[str, TableSchema]:
    """Return the values by name."""
    return {schema.name: schema for schema in parse_tables(_TABLE)}
