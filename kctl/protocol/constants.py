"""Values of Kafka's protocol that clients, the broker and the tools share.

Kafka 2.7: org.apache.kafka.common.internals.Topic, IsolationLevel, ListOffsetRequest,
ProduceRequest, FindCoordinatorRequest, ConfigResource
"""

# ProduceRequest.acks: 1 waits for the leader only.
ACKS_ALL = -1
ACKS_LEADER = 1
ACKS_NONE = 0

# isolation_level of FetchRequest and ListOffsetsRequest (KIP-98).
READ_UNCOMMITTED = 0
READ_COMMITTED = 1

# ListOffsetsRequest accepts these in place of a timestamp (KIP-79).
LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
# Later versions accept these, too: the record with the largest timestamp (KIP-734), the start of
# the log on the leader's disk (KIP-405), the last record in tiered storage (KIP-1005).
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5

# replica_id of FetchRequest and ListOffsetsRequest, if a consumer sends it.
CONSUMER_REPLICA_ID = -1

# resource_type of DescribeConfigs, AlterConfigs and IncrementalAlterConfigs (KIP-133, KIP-412).
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
BROKER_LOGGER_RESOURCE = 8

# key_type of FindCoordinatorRequest (KIP-98).
GROUP_KEY_TYPE = 0
TRANSACTION_KEY_TYPE = 1

# No leader epoch is known, or none is checked (KIP-101, KIP-320).
NO_EPOCH = -1
# StopReplicaRequest.leader_epoch while the topic is being deleted (KIP-570): never stale.
EPOCH_DURING_DELETE = -2

# Topics in which the coordinators keep their state. Clients must not write to them.
GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
INTERNAL_TOPICS = (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC)
