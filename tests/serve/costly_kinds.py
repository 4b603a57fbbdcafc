"""Kinds of clients for the search of the costliest turn: what takes answers, connections or state.

A kind is a function of a `Crowd`, the connections of one hostile client, which may send so many
bytes in all. Each does its worst with them: 64 KiB make hundreds of members, users or ACLs, and a
topic of 5,000 partitions takes 60 bytes.
"""

import contextlib
import random  # noqa: TID251 - only ever seeded
import select
import time
from collections.abc import Iterator
from typing import Any

from kctl.broker.coordinator.group.member_memory import PROTOCOLS_MAX
from kctl.protocol.internal.consumer_protocol import ConsumerProtocolSubscription, encode_blob
from kctl.protocol.messages import alter_client_quotas as quotas
from kctl.protocol.messages import alter_user_scram_credentials as scram
from kctl.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from kctl.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kctl.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kctl.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from kctl.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kctl.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kctl.protocol.messages.delete_groups import DeleteGroupsRequest
from kctl.protocol.messages.delete_topics import DeleteTopicsRequest
from kctl.protocol.messages.describe_acls import DescribeAclsRequest
from kctl.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from kctl.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from kctl.protocol.messages.describe_groups import DescribeGroupsRequest
from kctl.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from kctl.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)
from kctl.protocol.messages.elect_leaders import ElectLeadersRequest
from kctl.protocol.messages.end_txn import EndTxnRequest
from kctl.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kctl.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kctl.protocol.messages.init_producer_id import InitProducerIdRequest
from kctl.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kctl.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from kctl.protocol.messages.list_groups import ListGroupsRequest
from kctl.protocol.messages.metadata import MetadataRequest
from kctl.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kctl.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from kctl.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from kctl.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kctl.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kctl.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from kctl.protocol.schema import Message
from tests.serve import bad_frames
from tests.serve.costly_configs import many_configs, wide_configs
from tests.serve.costly_crowd import (
    ANSWER_S,
    MEMBERS_MAX,
    STRANGER,
    TOKENS_MAX,
    WIDE,
    WIDEST,
    Crowd,
    Kind,
    Peer,
    SpentError,
)
from tests.support.raw_requests import produce_request

# Groups


def _members(crowd: Crowd, metadata: bytes, count: int) -> None:
    def join(member: str = "") -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id="crowded", session_timeout_ms=1_000, rebalance_timeout_ms=2_000,
            member_id=member, protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )  # fmt: skip

    joined: list[Peer] = []
    with contextlib.suppress(SpentError):
        for _ in range(count):
            peer = crowd.peer()
            peer.tell(join(), 3)
            joined.append(peer)
    # What the members answer is not counted: they have joined, and follow the protocol.
    crowd.left = 1 << 40
    synced = []
    for peer in joined:
        answer = peer.answer(join(), 3)
        if answer.error_code:
            continue
        assignments = [
            SyncGroupRequestAssignment(member_id=each.member_id, assignment=metadata)
            for each in answer.members
        ]
        sync = SyncGroupRequest(
            group_id="crowded", generation_id=answer.generation_id,
            member_id=answer.member_id, assignments=assignments,
        )  # fmt: skip
        peer.tell(sync, 2)
        synced.append((peer, sync))
    describer = crowd.peer()
    for _ in range(3):
        describer.ask(DescribeGroupsRequest(groups=["crowded"] * 10), 4)


def many_members(crowd: Crowd, draw: random.Random) -> None:
    """A group of as many members as there are bytes for, up to MEMBERS_MAX; they disappear."""
    _members(crowd, bytes(draw.choice([0, 20, 100])), MEMBERS_MAX)


def big_metadata(crowd: Crowd, draw: random.Random) -> None:
    """A group of a few members with metadata as large as there are bytes for."""
    count = draw.choice([3, 8, 20])
    _members(crowd, bytes(max(crowd.left // count - 200, 1)), count)


def wide_subscriptions(crowd: Crowd, draw: random.Random) -> None:
    """A group of few members that subscribe to as many topics as there are bytes for."""
    count, size = draw.choice([1, 3, 20]), draw.choice([0, 3, 20])
    left = max(crowd.left // count - 200, 0)
    topics = [f"{number:0{size}x}" if size else "" for number in range(left // (size + 4))]
    _members(crowd, encode_blob(ConsumerProtocolSubscription(topics=topics)), count)


def wide_memberships(crowd: Crowd, draw: random.Random) -> None:
    """A member of as many protocols as it may have, or more, that assigns to as many members."""
    peer = crowd.peer()
    count = min(crowd.left // 2 // 16, 29_000)
    for protocol_count in (count, min(count, PROTOCOLS_MAX)):
        names = [f"{number:x}" for number in range(protocol_count)]
        join = JoinGroupRequest(
            group_id="wide", session_timeout_ms=1_000, rebalance_timeout_ms=2_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=name, metadata=b"") for name in names],
        )  # fmt: skip
        answer = peer.ask(join, 3)
    assignments = [
        SyncGroupRequestAssignment(member_id=f"{number:x}", assignment=b"")
        for number in range(min(crowd.left // 16, 29_000))
    ]
    sync = SyncGroupRequest(
        group_id="wide", generation_id=answer.generation_id, member_id=answer.member_id,
        assignments=assignments,
    )  # fmt: skip
    peer.ask(sync, 2)


def many_groups(crowd: Crowd, draw: random.Random) -> None:
    """A group for each commit; then all of them are listed, described and deleted."""
    peer = crowd.peer()
    count = min(crowd.left // 160, 20_000)
    size = draw.choice([0, 0, 50])
    commits = []
    for number in range(count):
        part = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=1, committed_metadata="m" * size
        )
        topics = [OffsetCommitRequestTopic(name="log", partitions=[part])]
        commits.append(OffsetCommitRequest(group_id=f"{number:x}", topics=topics))
    pipelined(peer, commits, 2)
    peer.ask(ListGroupsRequest(), 2)
    names = [f"{number:x}" for number in range(count)]
    peer.ask(DescribeGroupsRequest(groups=names), 1)
    peer.ask(DeleteGroupsRequest(groups_names=names), 1)


def pipelined(peer: Peer, messages: list[Any], version: int) -> list[Any]:
    """Send them one behind the other, and read the answers as they come."""
    answers = []
    sent = 0
    for message in messages:
        peer.tell(message, version)
        sent += 1
        while len(answers) < sent and select.select([peer.socket], [], [], 0)[0]:
            answers.append(peer.answer(message, version))
    while len(answers) < sent:
        answers.append(peer.answer(messages[0], version))
    return answers


# Topics


def wide_topics(crowd: Crowd, draw: random.Random) -> None:
    """A topic of WIDE partitions, which is created, described, changed and deleted."""
    peer = crowd.peer()
    name = f"w{draw.randrange(1 << 16):x}"
    peer.ask(bad_frames.create(name, WIDE), 4)
    until_served(peer, name, WIDE)
    steps: list[tuple[Message, int]] = [
        (MetadataRequest(topics=None), 8),
        (DescribeLogDirsRequest(topics=None), 1),
        (ElectLeadersRequest(topic_partitions=None, timeout_ms=ANSWER_S * 1000), 1),
        (AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=name, partitions=[
            ReassignablePartition(partition_index=number, replicas=[0])
            for number in range(min(crowd.left // 12, WIDE))])]), 0),
        (CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=WIDE + 500)],
                                 timeout_ms=ANSWER_S * 1000), 1),
    ]  # fmt: skip
    draw.shuffle(steps)
    for message, version in steps:
        with contextlib.suppress(SpentError):
            peer.ask(message, version)
    crowd.left += 1_000
    peer.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=ANSWER_S * 1000), 3)
    until_served(peer, name, 0)


def until_served(peer: Peer, topic: str, count: int) -> None:
    """Wait until the broker knows `count` partitions of the topic (not counted as sent)."""
    request = MetadataRequest(topics=[])
    request.topics = [_metadata_topic(topic)]
    request.allow_auto_topic_creation = False
    end_s = time.monotonic() + ANSWER_S
    while time.monotonic() < end_s:
        peer.socket.sendall(bad_frames.asked(request, 8))
        answer = peer.answer(request, 8)
        if len(answer.topics[0].partitions) == count:
            return
        time.sleep(0.2)


def _metadata_topic(topic: str) -> Any:
    from kctl.protocol.messages.metadata import MetadataRequestTopic

    return MetadataRequestTopic(name=topic)


def parked_fetches(crowd: Crowd, draw: random.Random) -> None:
    """Long fetches of many partitions, all of which examine each append to any of them."""
    per_fetch = draw.choice([100, 300])
    min_bytes = draw.choice([1, 1 << 20])
    parts = [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1_000)
        for number in range(per_fetch)
    ]
    request = FetchRequest(
        replica_id=-1, max_wait_ms=3_000, min_bytes=min_bytes, max_bytes=1 << 20,
        topics=[FetchTopic(topic="wide", partitions=parts)],
    )  # fmt: skip
    room = crowd.left - 10_000
    while crowd.left > 10_000 + room // 20:
        crowd.peer().tell(request, 4)
    producer = crowd.peer()
    message = produce_request(bytes(bad_frames.batch()), topic="wide")
    for _ in range(20):
        producer.ask(message, 7)


def wide_fetches(crowd: Crowd, draw: random.Random) -> None:
    """Sessions of as many partitions as there are bytes for, which short requests continue."""
    peer = crowd.peer(is_stranger=draw.random() < 0.5)
    max_wait_ms = draw.choice([0, 100])
    is_known = draw.random() < 0.5
    parts = [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1_000)
        for number in range(min(crowd.left // 40, 25_000) if is_known else 1)
    ]
    names = ["wide"] if is_known else [f"{n:x}" for n in range(min(crowd.left // 50, 14_000))]
    topics = [FetchTopic(topic=name, partitions=parts) for name in names]
    request = FetchRequest(
        replica_id=-1, max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20,
        session_id=0, session_epoch=0, topics=topics,
    )  # fmt: skip
    session_id = peer.ask(request, 11).session_id
    for epoch in range(1, 4):
        again = FetchRequest(
            replica_id=-1, max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20,
            session_id=session_id, session_epoch=epoch, topics=[],
        )  # fmt: skip
        peer.ask(again, 11)


# Users, quotas and access


def client_quotas(crowd: Crowd, draw: random.Random) -> None:
    """A quota for each of as many users as there are bytes for; described and removed."""
    peer = crowd.peer()
    count = min(crowd.left // 110, 4_000)
    kinds = draw.choice([("user",), ("client-id",), ("user", "client-id")])

    def altered(*, remove: bool) -> quotas.AlterClientQuotasRequest:
        entries = []
        for number in range(count):
            entity = [quotas.EntityData(entity_type=k, entity_name=f"{number:x}") for k in kinds]
            op = quotas.OpData(key="producer_byte_rate", value=1e6, remove=remove)
            entries.append(quotas.EntryData(entity=entity, ops=[op]))
        return quotas.AlterClientQuotasRequest(entries=entries)

    peer.ask(altered(remove=False), 0)
    components = [ComponentData(entity_type=kind, match_type=2, match=None) for kind in kinds]
    peer.ask(DescribeClientQuotasRequest(components=components), 0)
    peer.ask(altered(remove=True), 0)


def scram_users(crowd: Crowd, draw: random.Random) -> None:
    """Credentials with the most iterations, described and deleted."""
    peer = crowd.peer()
    count = min(crowd.left // 2 // 110, 4_000)
    mechanisms = draw.choice([[1], [2], [1, 2]])
    iterations = draw.choice([4_096, 16_384])
    upsertions = [
        scram.ScramCredentialUpsertion(name=f"{number:x}", mechanism=mechanism,
                                       iterations=iterations, salt=b"salt" * 4,
                                       salted_password=bytes(64))
        for number in range(count) for mechanism in mechanisms
    ]  # fmt: skip
    peer.ask(scram.AlterUserScramCredentialsRequest(upsertions=upsertions[: crowd.left // 100]), 0)
    peer.ask(DescribeUserScramCredentialsRequest(users=None), 0)
    deletions = [
        scram.ScramCredentialDeletion(name=f"{number:x}", mechanism=mechanism)
        for number in range(count) for mechanism in mechanisms
    ]  # fmt: skip
    peer.ask(scram.AlterUserScramCredentialsRequest(deletions=deletions), 0)


def acls(crowd: Crowd, draw: random.Random) -> None:
    """ACLs of one resource or of many, described and deleted by one filter."""
    peer = crowd.peer()
    count = min(crowd.left // 60, 20_000)
    is_one = draw.random() < 0.5
    creations = [
        AclCreation(resource_type=2, resource_name="one" if is_one else f"{number:x}",
                    resource_pattern_type=draw.choice([3, 4]), principal=f"User:{number:x}",
                    host="*", operation=3, permission_type=3)
        for number in range(count)
    ]  # fmt: skip
    peer.ask(CreateAclsRequest(creations=creations), 1)
    everything = {
        "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
        "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
    }  # fmt: skip
    peer.ask(DescribeAclsRequest(**everything), 1)
    filters = [DeleteAclsFilter(**everything) for _ in range(draw.choice([1, 100]))]
    peer.ask(DeleteAclsRequest(filters=filters), 1)


def delegation_tokens(crowd: Crowd, draw: random.Random) -> None:
    """Tokens with few or many renewers, described."""
    peer = crowd.peer()
    renewers = [
        CreatableRenewers(principal_type="User", principal_name=f"{number:x}")
        for number in range(draw.choice([0, 100, 2_000]))
    ]
    request = CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=1_000)
    with contextlib.suppress(SpentError):
        for _ in range(TOKENS_MAX):
            peer.ask(request, 1)
    for _ in range(3):
        peer.ask(DescribeDelegationTokenRequest(owners=None), 1)


def token_changes(crowd: Crowd, draw: random.Random) -> None:
    """Tokens that are renewed and expire again and again, one request each."""
    peer = crowd.peer()
    count = min(crowd.left // 400, TOKENS_MAX)
    creation = CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=1_000_000)
    hmacs = [answer.hmac for answer in pipelined(peer, [creation] * count, 1)]
    renewals = [RenewDelegationTokenRequest(hmac=it, renew_period_ms=-1) for it in hmacs]
    pipelined(peer, renewals, 1)
    expiries = [ExpireDelegationTokenRequest(hmac=it, expiry_time_period_ms=-1) for it in hmacs]
    pipelined(peer, expiries, 1)


def judged_names(crowd: Crowd, draw: random.Random) -> None:
    """ACLs of many patterns, by which a client without permissions has many names judged."""
    peer = crowd.peer()
    count = min(crowd.left // 2 // 70, 10_000)
    creations = [
        AclCreation(resource_type=2, resource_name=f"{number:x}", resource_pattern_type=4,
                    principal=f"User:{STRANGER}" if draw.random() < 0.5 else "User:other",
                    host="10.0.0.1", operation=draw.choice([2, 3, 10]), permission_type=3)
        for number in range(count)
    ]  # fmt: skip
    peer.ask(CreateAclsRequest(creations=creations), 1)
    stranger = crowd.peer(is_stranger=True)
    names = [f"{number:x}{number:x}" for number in range(crowd.left // 3 // 16)]
    for message, version in (
        (MetadataRequest(topics=list(map(_metadata_topic, names))), 8),
        (DeleteTopicsRequest(topic_names=names, timeout_ms=1_000), 3),
    ):
        with contextlib.suppress(SpentError):
            stranger.ask(message, version)


def crowded_rules(crowd: Crowd, draw: random.Random) -> None:
    """ACLs that all apply to the same names, of which a client without permissions has many judged:
    very many of one pattern, or patterns of every length."""
    peer = crowd.peer()
    creations = []
    left = crowd.left // 2
    is_one = draw.random() < 0.5
    while left > 60 and len(creations) < 4_000:
        number = len(creations)
        creations.append(
            AclCreation(resource_type=2, resource_name="*" if is_one else "n" * (number + 1),
                        resource_pattern_type=3 if is_one else 4, principal=f"User:{number:x}",
                        host="*", operation=3, permission_type=3)
        )  # fmt: skip
        left -= 30 + len(f"{number:x}") + (1 if is_one else number)
    peer.ask(CreateAclsRequest(creations=creations), 1)
    stranger = crowd.peer(is_stranger=True)
    prefix = "" if is_one else "n" * min(len(creations), 200)
    names = [f"{prefix}{number:x}" for number in range(crowd.left // 3 // (10 + len(prefix)))]
    parts = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)]
    fetched = [FetchTopic(topic=name, partitions=parts) for name in names[: len(names) // 2]]
    for message, version in (
        (MetadataRequest(topics=list(map(_metadata_topic, names))), 8),
        (DeleteTopicsRequest(topic_names=names, timeout_ms=1_000), 3),
        (FetchRequest(replica_id=-1, max_wait_ms=0, topics=fetched), 10),
    ):
        with contextlib.suppress(SpentError):
            stranger.ask(message, version)


# Transactions


def many_transactions(crowd: Crowd, draw: random.Random) -> None:
    """A transactional id in each request, half of them with a transaction that is left open."""
    peer = crowd.peer()
    count = min(crowd.left // 130, 20_000)
    starts = [
        InitProducerIdRequest(transactional_id=f"{number:x}", transaction_timeout_ms=1_000)
        for number in range(count)
    ]
    answers = pipelined(peer, starts, 1)
    topic = AddPartitionsToTxnTopic(name="wide", partitions=[draw.randrange(300)])
    adds = [
        AddPartitionsToTxnRequest(transactional_id=start.transactional_id,
                                  producer_id=answer.producer_id,
                                  producer_epoch=answer.producer_epoch, topics=[topic])
        for start, answer in zip(starts, answers, strict=True)
    ]  # fmt: skip
    pipelined(peer, adds, 1)


def wide_transaction(crowd: Crowd, draw: random.Random) -> None:
    """One transaction over WIDE partitions and thousands of offsets, which ends."""
    peer = crowd.peer()
    name = f"t{draw.randrange(1 << 16):x}"
    peer.ask(bad_frames.create(name, WIDE), 4)
    until_served(peer, name, WIDE)
    started = peer.ask(
        InitProducerIdRequest(transactional_id="wide", transaction_timeout_ms=60_000), 1
    )
    who = {"transactional_id": "wide", "producer_id": started.producer_id,
           "producer_epoch": started.producer_epoch}  # fmt: skip
    numbers = list(range(min(crowd.left // 5, WIDE)))
    topics = [AddPartitionsToTxnTopic(name=name, partitions=numbers)]
    peer.ask(AddPartitionsToTxnRequest(**who, topics=topics), 1)
    parts = [
        TxnOffsetCommitRequestPartition(partition_index=number, committed_offset=1)
        for number in range(min(max(crowd.left - 1_000, 0) // 20, WIDE))
    ]
    offsets = [TxnOffsetCommitRequestTopic(name=name, partitions=parts)]
    peer.ask(TxnOffsetCommitRequest(**who, group_id="g", topics=offsets), 2)
    peer.ask(EndTxnRequest(**who, committed=draw.random() < 0.5), 1)
    peer.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=ANSWER_S * 1000), 3)
    until_served(peer, name, 0)


# Other brokers


def widest_metadata(crowd: Crowd, draw: random.Random) -> None:
    """The controller announces a topic of WIDEST partitions with three replicas, repeatedly."""
    peer = crowd.peer()
    count = min(crowd.left // 60 // 3, WIDEST)
    states = [
        UpdateMetadataPartitionState(
            partition_index=number, controller_epoch=1_000, leader=7, leader_epoch=0,
            isr=[7, 8, 9], zk_version=0, replicas=[7, 8, 9], offline_replicas=[],
        )
        for number in range(count)
    ]  # fmt: skip
    brokers = [
        UpdateMetadataBroker(
            id=number, rack=None, endpoints=[UpdateMetadataEndpoint(
                port=9_000 + number, host="127.0.0.1", listener="SASL_PLAINTEXT",
                security_protocol=2)],
        )
        for number in (0, 7, 8, 9)
    ]  # fmt: skip
    for _ in range(3):
        request = UpdateMetadataRequest(
            controller_id=0, controller_epoch=1_000, broker_epoch=-1, live_brokers=brokers,
            topic_states=[
                UpdateMetadataTopicState(topic_name="announced", partition_states=states)
            ],
        )  # fmt: skip
        peer.ask(request, 6)


def broker_orders(crowd: Crowd, draw: random.Random) -> None:
    """The controller gives this broker a topic of WIDE partitions to lead or to follow, and takes
    it away."""
    peer = crowd.peer()
    leader = draw.choice([0, 7])
    count = min(crowd.left // 2 // 60, WIDE)
    states = [
        LeaderAndIsrPartitionState(
            partition_index=number, controller_epoch=1_000, leader=leader, leader_epoch=0,
            isr=[leader], zk_version=0, replicas=[0, 7], is_new=True,
        )
        for number in range(count)
    ]  # fmt: skip
    orders = LeaderAndIsrRequest(
        controller_id=0, controller_epoch=1_000, broker_epoch=-1,
        topic_states=[LeaderAndIsrTopicState(topic_name="ordered", partition_states=states)],
        live_leaders=[LeaderAndIsrLiveLeader(broker_id=7, host_name="127.0.0.1", port=1)],
    )  # fmt: skip
    peer.ask(orders, 4)
    stops = [
        StopReplicaPartitionState(
            partition_index=number, leader_epoch=1, delete_partition=draw.random() < 0.5
        )
        for number in range(count)
    ]
    topics = [StopReplicaTopicState(topic_name="ordered", partition_states=stops)]
    stop = StopReplicaRequest(
        controller_id=0, controller_epoch=1_000, broker_epoch=-1, topic_states=topics
    )
    peer.ask(stop, 3)


# Any client, any order.
KINDS: dict[str, Kind] = {
    kind.__name__: kind
    for kind in (
        many_members, big_metadata, wide_subscriptions, wide_memberships, many_groups, wide_topics,
        parked_fetches, wide_fetches,
        client_quotas, scram_users, acls, delegation_tokens, token_changes, judged_names,
        crowded_rules, many_transactions, wide_transaction, many_configs, wide_configs,
    )
}  # fmt: skip
# These leave a broker behind that serves no other candidate.
LAST: dict[str, Kind] = {"widest_metadata": widest_metadata, "broker_orders": broker_orders}


def all_kinds() -> Iterator[tuple[str, Kind]]:
    """Yield each kind with its name."""
    yield from KINDS.items()
    yield from LAST.items()
