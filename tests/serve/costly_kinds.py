"""Kinds of clients for the search of the costliest turn: what takes answers, connections or state.

A kind is a function of a `Crowd`, the connections of one hostile client, which may send so many
bytes in all. Each does its worst with them: 64 KiB make hundreds of members, users or ACLs, and a
topic of 5,000 partitions takes 60 bytes.
"""

import contextlib
import random  # noqa: TID251 - only ever seeded
import select
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, Self

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.codec import decode
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
from kctl.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from kctl.protocol.messages.sasl_handshake import SaslHandshakeRequest
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
from tests.support.raw_requests import produce_request

USER, PASSWORD = "admin", "secret"
# May do nothing.
STRANGER = "stranger"
SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": f"User:{USER}",
    "delegation.token.master.key": "master-key",
    "group.min.session.timeout.ms": "100",
}
ANSWER_S = 60
WIDE = 5_000
MEMBERS_MAX = 2_000
TOKENS_MAX = 1_000
# A topic of this many partitions is the widest that a controller announces at once.
WIDEST = 20_000


class SpentError(Exception):
    """The client has sent all that it may."""


class Peer:
    """One connection."""

    def __init__(self, crowd: "Crowd", port: int, *, is_stranger: bool = False) -> None:
        self._crowd = crowd
        self._version = 0
        self.socket = socket.create_connection(("127.0.0.1", port), ANSWER_S)
        if crowd.has_password:
            self.socket.sendall(STRANGERS_LOGIN if is_stranger else LOGIN)
            self._frame()
            self._frame()

    def tell(self, message: Message, version: int) -> None:
        """Send a request without waiting for its answer."""
        self._crowd.send(self.socket, bad_frames.asked(message, version))

    def ask(self, message: Message, version: int) -> Any:
        """Return the answer."""
        self.tell(message, version)
        return self.answer(message, version)

    def answer(self, message: Message, version: int) -> Any:
        """Return the next answer, to a `message` that was sent."""
        api = message.api
        assert api is not None
        tags = 1 if version >= api.flexible_from and api is not ApiKey.API_VERSIONS else 0
        return decode(api.response_class, version, self._frame(), 4 + tags)

    def _frame(self) -> bytes:
        size = int.from_bytes(self._bytes(4), "big")
        return self._bytes(size)

    def _bytes(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError
            data += part
        return bytes(data)


class Crowd:
    """The connections of one client, and the bytes it may still send."""

    def __init__(self, port: int, bytes_max: int, *, has_password: bool = True) -> None:
        self.left = bytes_max
        self.sent = 0
        self.has_password = has_password
        self._port = port
        self._peers: list[Peer] = []

    def peer(self, *, is_stranger: bool = False) -> Peer:
        """Return a new connection."""
        peer = Peer(self, self._port, is_stranger=is_stranger)
        self._peers.append(peer)
        return peer

    def send(self, to: socket.socket, data: bytes) -> None:
        """Send `data`; raise SpentError if it is more than what is left."""
        if len(data) > self.left:
            raise SpentError
        self.left -= len(data)
        self.sent += len(data)
        to.sendall(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for peer in self._peers:
            peer.socket.close()


def _login(user: str) -> bytes:
    return bad_frames.asked(SaslHandshakeRequest(mechanism="PLAIN"), 1) + bad_frames.asked(
        SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{PASSWORD}".encode()), 1
    )


LOGIN, STRANGERS_LOGIN = _login(USER), _login(STRANGER)
Kind = Callable[[Crowd, random.Random], None]


def run(kind: Kind, crowd: Crowd, draw: random.Random) -> None:
    """Have `kind` do its worst, until it is done or has sent all it may."""
    with crowd, contextlib.suppress(SpentError, OSError):
        kind(crowd, draw)


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
        many_members, big_metadata, many_groups, wide_topics, parked_fetches, client_quotas,
        scram_users, acls, delegation_tokens, token_changes, judged_names, many_transactions,
        wide_transaction,
    )
}  # fmt: skip
# These leave a broker behind that serves no other candidate.
LAST: dict[str, Kind] = {"widest_metadata": widest_metadata, "broker_orders": broker_orders}


def all_kinds() -> Iterator[tuple[str, Kind]]:
    """Yield each kind with its name."""
    yield from KINDS.items()
    yield from LAST.items()
