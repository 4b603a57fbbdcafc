"""Records of __cluster_metadata, the log of a KRaft controller, in every version up to Kafka 4.1.

A value is framed: a varint frame version (1), the record's apiKey and version as varints, the
record. Kafka 4.1: org.apache.kafka.server.common.ApiMessageAndVersion, MetadataRecordSerde;
KIP-631.
"""

from functools import cache

from kctl.protocol.internal.table_schema import TableSchema, parse_tables

_TABLE = """
RegisterBrokerRecord 0 0-3 flexible 0+
  brokerId int32 0+
  isMigratingZkBroker bool 2+
  incarnationId uuid 0+
  brokerEpoch int64 0+
  endPoints []struct 0+
    name string 0+
    host string 0+
    port uint16 0+
    securityProtocol int16 0+
  features []struct 0+
    name string 0+
    minSupportedVersion int16 0+
    maxSupportedVersion int16 0+
  rack string 0+ ?0+
  fenced bool 0+
  inControlledShutdown bool 1+
  logDirs []uuid 3+ #0
UnregisterBrokerRecord 1 0 flexible 0+
  brokerId int32 0+
  brokerEpoch int64 0+
TopicRecord 2 0 flexible 0+
  name string 0+
  topicId uuid 0+
PartitionRecord 3 0-2 flexible 0+
  partitionId int32 0+
  topicId uuid 0+
  replicas []int32 0+
  isr []int32 0+
  removingReplicas []int32 0+
  addingReplicas []int32 0+
  leader int32 0+
  leaderRecoveryState int8 0+ #0
  leaderEpoch int32 0+
  partitionEpoch int32 0+
  directories []uuid 1+
  eligibleLeaderReplicas []int32 2+ ?2+ #1 =null
  lastKnownElr []int32 2+ ?2+ #2 =null
ConfigRecord 4 0 flexible 0+
  resourceType int8 0+
  resourceName string 0+
  name string 0+
  value string 0+ ?0+
PartitionChangeRecord 5 0-2 flexible 0+
  partitionId int32 0+
  topicId uuid 0+
  isr []int32 0+ ?0+ #0 =null
  leader int32 0+ #1 =-2
  replicas []int32 0+ ?0+ #2 =null
  removingReplicas []int32 0+ ?0+ #3 =null
  addingReplicas []int32 0+ ?0+ #4 =null
  leaderRecoveryState int8 0+ #5 =-1
  directories []uuid 1+ ?1+ #8 =null
  eligibleLeaderReplicas []int32 2+ ?2+ #6 =null
  lastKnownElr []int32 2+ ?2+ #7 =null
FenceBrokerRecord 7 0 flexible 0+
  id int32 0+
  epoch int64 0+
UnfenceBrokerRecord 8 0 flexible 0+
  id int32 0+
  epoch int64 0+
RemoveTopicRecord 9 0 flexible 0+
  topicId uuid 0+
DelegationTokenRecord 10 0 flexible 0+
  owner string 0+
  requester string 0+
  renewers []string 0+
  issueTimestamp int64 0+
  maxTimestamp int64 0+
  expirationTimestamp int64 0+
  tokenId string 0+
UserScramCredentialRecord 11 0 flexible 0+
  name string 0+
  mechanism int8 0+
  salt bytes 0+
  storedKey bytes 0+
  serverKey bytes 0+
  iterations int32 0+
FeatureLevelRecord 12 0 flexible 0+
  name string 0+
  featureLevel int16 0+
ClientQuotaRecord 14 0 flexible 0+
  entity []struct 0+
    entityType string 0+
    entityName string 0+ ?0+
  key string 0+
  value float64 0+
  remove bool 0+
ProducerIdsRecord 15 0 flexible 0+
  brokerId int32 0+
  brokerEpoch int64 0+
  nextProducerId int64 0+
BrokerRegistrationChangeRecord 17 0-2 flexible 0+
  brokerId int32 0+
  brokerEpoch int64 0+
  fenced int8 0+ #0
  inControlledShutdown int8 1+ #1
  logDirs []uuid 2+ #2
AccessControlEntryRecord 18 0 flexible 0+
  id uuid 0+
  resourceType int8 0+
  resourceName string 0+
  patternType int8 0+
  principal string 0+
  host string 0+
  operation int8 0+
  permissionType int8 0+
RemoveAccessControlEntryRecord 19 0 flexible 0+
  id uuid 0+
NoOpRecord 20 0 flexible 0+
ZkMigrationStateRecord 21 0 flexible 0+
  zkMigrationState int8 0+
RemoveUserScramCredentialRecord 22 0 flexible 0+
  name string 0+
  mechanism int8 0+
BeginTransactionRecord 23 0 flexible 0+
  name string 0+ ?0+ #0 =null
EndTransactionRecord 24 0 flexible 0+
AbortTransactionRecord 25 0 flexible 0+
  reason string 0+ ?0+ #0 =null
RemoveDelegationTokenRecord 26 0 flexible 0+
  tokenId string 0+
RegisterControllerRecord 27 0 flexible 0+
  controllerId int32 0+
  incarnationId uuid 0+
  zkMigrationReady bool 0+
  endPoints []struct 0+
    name string 0+
    host string 0+
    port uint16 0+
    securityProtocol int16 0+
  features []struct 0+
    name string 0+
    minSupportedVersion int16 0+
    maxSupportedVersion int16 0+
ClearElrRecord 28 0 flexible 0+
  topicName string 0+
"""


@cache
def metadata_schemas() -> dict[int, TableSchema]:
    """Return the records by apiKey."""
    return {schema.number: schema for schema in parse_tables(_TABLE)}
