"""Records of __consumer_offsets as Kafka 4.1 writes them: keys of types 0 to 23 and their values.

A key begins with the record's type as an int16, a value with its version. Types 0 to 2 are those
of Kafka 2.7 with later versions of their values; 3 to 8 and 16 are consumer groups, 10 to 15 share
groups, 17 to 23 streams groups. Kafka 4.1: GroupCoordinatorRecordSerde; KIP-848, KIP-932, KIP-1071.
"""

from functools import cache

from kctl.protocol.internal.table_schema import TableSchema, parse_tables

_TABLE = """
LegacyOffsetCommitKey 0 0 flexible none
  group string 0
  topic string 0
  partition int32 0
LegacyOffsetCommitValue 0 0 flexible none
  offset int64 0
  metadata string 0
  commitTimestamp int64 0
OffsetCommitKey 1 0 flexible none
  group string 0
  topic string 0
  partition int32 0
OffsetCommitValue 1 0-4 flexible 4+
  offset int64 0+
  leaderEpoch int32 3+
  metadata string 0+
  commitTimestamp int64 0+
  expireTimestamp int64 1
  topicId uuid 4+ #0
GroupMetadataKey 2 0 flexible none
  group string 0
GroupMetadataValue 2 0-4 flexible 4+
  protocolType string 0+
  generation int32 0+
  protocol string 0+ ?0+
  leader string 0+ ?0+
  currentStateTimestamp int64 2+
  members []struct 0+
    memberId string 0+
    groupInstanceId string 3+ ?3+
    clientId string 0+
    clientHost string 0+
    rebalanceTimeout int32 1+
    sessionTimeout int32 0+
    subscription bytes 0+
    assignment bytes 0+
ConsumerGroupMetadataKey 3 0 flexible none
  groupId string 0
ConsumerGroupMetadataValue 3 0 flexible 0+
  epoch int32 0+
  metadataHash int64 0+ #0
ConsumerGroupPartitionMetadataKey 4 0 flexible none
  groupId string 0
ConsumerGroupPartitionMetadataValue 4 0 flexible 0+
  topics []struct 0+
    topicId uuid 0+
    topicName string 0+
    numPartitions int32 0+
    partitionMetadata []struct 0+
      partition int32 0+
      racks []string 0+
ConsumerGroupMemberMetadataKey 5 0 flexible none
  groupId string 0
  memberId string 0
ConsumerGroupMemberMetadataValue 5 0 flexible 0+
  instanceId string 0+ ?0+
  rackId string 0+ ?0+
  clientId string 0+
  clientHost string 0+
  subscribedTopicNames []string 0+
  subscribedTopicRegex string 0+ ?0+
  rebalanceTimeoutMs int32 0+
  serverAssignor string 0+ ?0+
  classicMemberMetadata struct 0+ ?0+ #0 =null
    sessionTimeoutMs int32 0+
    supportedProtocols []struct 0+
      name string 0+
      metadata bytes 0+
ConsumerGroupTargetAssignmentMetadataKey 6 0 flexible none
  groupId string 0
ConsumerGroupTargetAssignmentMetadataValue 6 0 flexible 0+
  assignmentEpoch int32 0+
ConsumerGroupTargetAssignmentMemberKey 7 0 flexible none
  groupId string 0
  memberId string 0
ConsumerGroupTargetAssignmentMemberValue 7 0 flexible 0+
  topicPartitions []struct 0+
    topicId uuid 0+
    partitions []int32 0+
ConsumerGroupCurrentMemberAssignmentKey 8 0 flexible none
  groupId string 0
  memberId string 0
ConsumerGroupCurrentMemberAssignmentValue 8 0 flexible 0+
  memberEpoch int32 0+
  previousMemberEpoch int32 0+
  state int8 0+
  assignedPartitions []struct 0+
    topicId uuid 0+
    partitions []int32 0+
  partitionsPendingRevocation []struct 0+
    topicId uuid 0+
    partitions []int32 0+
ShareGroupMemberMetadataKey 10 0 flexible none
  groupId string 0
  memberId string 0
ShareGroupMemberMetadataValue 10 0 flexible 0+
  rackId string 0+ ?0+
  clientId string 0+
  clientHost string 0+
  subscribedTopicNames []string 0+
ShareGroupMetadataKey 11 0 flexible none
  groupId string 0
ShareGroupMetadataValue 11 0 flexible 0+
  epoch int32 0+
  metadataHash int64 0+
ShareGroupTargetAssignmentMetadataKey 12 0 flexible none
  groupId string 0
ShareGroupTargetAssignmentMetadataValue 12 0 flexible 0+
  assignmentEpoch int32 0+
ShareGroupTargetAssignmentMemberKey 13 0 flexible none
  groupId string 0
  memberId string 0
ShareGroupTargetAssignmentMemberValue 13 0 flexible 0+
  topicPartitions []struct 0+
    topicId uuid 0+
    partitions []int32 0+
ShareGroupCurrentMemberAssignmentKey 14 0 flexible none
  groupId string 0
  memberId string 0
ShareGroupCurrentMemberAssignmentValue 14 0 flexible 0+
  memberEpoch int32 0+
  previousMemberEpoch int32 0+
  state int8 0+
  assignedPartitions []struct 0+
    topicId uuid 0+
    partitions []int32 0+
ShareGroupStatePartitionMetadataKey 15 0 flexible none
  groupId string 0
ShareGroupStatePartitionMetadataValue 15 0 flexible 0+
  initializingTopics []struct 0+
    topicId uuid 0+
    topicName string 0+
    partitions []int32 0+
  initializedTopics []struct 0+
    topicId uuid 0+
    topicName string 0+
    partitions []int32 0+
  deletingTopics []struct 0+
    topicId uuid 0+
    topicName string 0+
ConsumerGroupRegularExpressionKey 16 0 flexible none
  groupId string 0
  regularExpression string 0
ConsumerGroupRegularExpressionValue 16 0 flexible 0+
  topics []string 0+
  version int64 0+
  timestamp int64 0+
StreamsGroupMetadataKey 17 0 flexible none
  groupId string 0
StreamsGroupMetadataValue 17 0 flexible 0+
  epoch int32 0+
  metadataHash int64 0+
StreamsGroupMemberMetadataKey 19 0 flexible none
  groupId string 0
  memberId string 0
StreamsGroupMemberMetadataValue 19 0 flexible 0+
  instanceId string 0+ ?0+
  rackId string 0+ ?0+
  clientId string 0+
  clientHost string 0+
  rebalanceTimeoutMs int32 0+
  topologyEpoch int32 0+
  processId string 0+
  userEndpoint struct 0+ ?0+
    host string 0+
    port uint16 0+
  clientTags []struct 0+
    key string 0+
    value string 0+
StreamsGroupTargetAssignmentMetadataKey 20 0 flexible none
  groupId string 0
StreamsGroupTargetAssignmentMetadataValue 20 0 flexible 0+
  assignmentEpoch int32 0+
StreamsGroupTargetAssignmentMemberKey 21 0 flexible none
  groupId string 0
  memberId string 0
StreamsGroupTargetAssignmentMemberValue 21 0 flexible 0+
  activeTasks []struct 0+
    subtopologyId string 0+
    partitions []int32 0+
  standbyTasks []struct 0+
    subtopologyId string 0+
    partitions []int32 0+
  warmupTasks []struct 0+
    subtopologyId string 0+
    partitions []int32 0+
StreamsGroupCurrentMemberAssignmentKey 22 0 flexible none
  groupId string 0
  memberId string 0
StreamsGroupCurrentMemberAssignmentValue 22 0 flexible 0+
  memberEpoch int32 0+
  previousMemberEpoch int32 0+
  state int8 0+
  activeTasks []struct 0+
    subtopologyId string 0+
    partitions []int32 0+
  standbyTasks []struct 0+
    subtopologyId string 0+
    partitions []int32 0+
  warmupTasks []struct 0+
    subtopologyId string 0+
    partitions []int32 0+
  activeTasksPendingRevocation []struct 0+
    subtopologyId string 0+
    partitions []int32 0+
  standbyTasksPendingRevocation []struct 0+
    subtopologyId string 0+
    partitions []int32 0+
  warmupTasksPendingRevocation []struct 0+
    subtopologyId string 0+
    partitions []int32 0+
StreamsGroupTopologyKey 23 0 flexible none
  groupId string 0
StreamsGroupTopologyValue 23 0 flexible 0+
  epoch int32 0+
  subtopologies []struct 0+
    subtopologyId string 0+
    sourceTopics []string 0+
    sourceTopicRegex []string 0+
    stateChangelogTopics []struct 0+
      name string 0+
      partitions int32 0+
      replicationFactor int16 0+
      topicConfigs []struct 0+
        key string 0+
        value string 0+
    repartitionSinkTopics []string 0+
    repartitionSourceTopics []struct 0+
      name string 0+
      partitions int32 0+
      replicationFactor int16 0+
      topicConfigs []struct 0+
        key string 0+
        value string 0+
    copartitionGroups []struct 0+
      sourceTopics []int16 0+
      sourceTopicRegex []int16 0+
      repartitionSourceTopics []int16 0+
"""
_MEMBER_PROTOCOL = """
ConsumerProtocolAssignment - 0-3 flexible none
  assignedPartitions []struct 0+
    topic string 0+
    partitions []int32 0+
  userData bytes 0+ ?0+
ConsumerProtocolSubscription - 0-3 flexible none
  topics []string 0+
  userData bytes 0+ ?0+
  ownedPartitions []struct 1+
    topic string 1+
    partitions []int32 1+
  generationId int32 2+
  rackId string 3+ ?3+
"""


@cache
def group_schemas() -> dict[str, TableSchema]:
    """Return keys and values by name."""
    return {schema.name: schema for schema in parse_tables(_TABLE)}


@cache
def member_protocol_schemas() -> dict[str, TableSchema]:
    """Return subscription and assignment, which members of classic groups exchange, by name."""
    return {schema.name: schema for schema in parse_tables(_MEMBER_PROTOCOL)}
