"""What is known about groups: their types, states, members, and progress by partition.

Kafka 2.7: org.apache.kafka.clients.admin.ConsumerGroupDescription; Kafka 4.1: GroupListing,
GroupType
"""

import contextlib
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING

from kctl.client.assignment import decode_assignment
from kctl.client.results import error_of
from kctl.errors import CorruptDataError, KctlError
from kctl.lazy_dataclass import dataclass
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ApiError, ErrorCode
from kctl.protocol.internal.consumer_protocol import PROTOCOL_TYPE

if TYPE_CHECKING:
    from kctl.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember


class GroupType(StrEnum):
    """The kinds of groups of Kafka 4. Before Kafka 3.8, all groups are classic."""

    # The protocol of JoinGroup and SyncGroup.
    CLASSIC = "classic"
    # The protocol of ConsumerGroupHeartbeat: the coordinator assigns partitions (KIP-848).
    CONSUMER = "consumer"
    # Several members read the same partition (KIP-932).
    SHARE = "share"
    # Kafka Streams (KIP-1071).
    STREAMS = "streams"


@dataclass(slots=True)
class GroupListing:
    """A group as its coordinator lists it; state "" if the broker is too old to report it."""

    group_id: str
    protocol_type: str
    state: str
    coordinator: int
    # One of GroupType, or the name of a type that a later Kafka has.
    group_type: str = GroupType.CLASSIC


@dataclass(slots=True)
class MemberDescription:
    """A member of a group and its assigned partitions."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    partitions: list[TopicPartition] = field(default_factory=list)
    # Of the consumer protocol and share groups: the epoch of its assignment, and its topics.
    epoch: int | None = None
    subscribed_topics: list[str] = field(default_factory=list)
    # Of the consumer protocol: the partitions that it is to have in the end.
    target_partitions: list[TopicPartition] | None = None
    # Of Kafka Streams: its process, and its tasks as in `0_3` (subtopology and partition), by kind.
    process_id: str | None = None
    tasks: dict[str, list[str]] = field(default_factory=dict)


@dataclass(slots=True)
class GroupDescription:
    """A group, its state as Kafka names it (Empty, Stable, ...) and its members."""

    group_id: str
    state: str = ""
    protocol_type: str = ""
    # The assignor that the group uses.
    protocol: str = ""
    coordinator: int = -1
    members: list[MemberDescription] = field(default_factory=list)
    error: ApiError | None = None
    group_type: str = GroupType.CLASSIC
    # Of the consumer protocol and share groups: the epoch of the group, and that of its assignment.
    epoch: int | None = None
    assignment_epoch: int | None = None

    @property
    def is_unknown(self) -> bool:
        """Return whether the coordinator does not know the group."""
        return self.error is not None and self.error.code == ErrorCode.GROUP_ID_NOT_FOUND


@dataclass(slots=True)
class GroupResult:
    """The result of one group."""

    group_id: str
    error: ApiError | None = None


@dataclass(slots=True)
class PartitionLag:
    """The progress of a group in one partition; None where unknown or nothing is committed."""

    partition: TopicPartition
    committed_offset: int | None
    log_start_offset: int | None
    log_end_offset: int | None
    member: MemberDescription | None = None
    error: KctlError | None = None

    @property
    def lag(self) -> int | None:
        """Return the number of records between the committed offset and the end; never negative."""
        if self.committed_offset is None or self.log_end_offset is None:
            return None
        return max(0, self.log_end_offset - self.committed_offset)

    @property
    def log_records(self) -> int | None:
        """Return the number of records between both ends of the log."""
        if self.log_start_offset is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.log_start_offset


@dataclass(slots=True)
class GroupList:
    """The groups of all brokers that answered, and the errors of those that did not."""

    groups: list[GroupListing] = field(default_factory=list)
    # Broker -> its error.
    errors: dict[int, Exception] = field(default_factory=dict)
    # Whether the cluster has types of groups other than classic.
    has_types: bool = False


def classic_description(group: "DescribedGroup", coordinator: int) -> GroupDescription:
    """Return a group of DescribeGroups as a description."""
    error = error_of(group.error_code)
    if error is None and group.group_state == "Dead":
        error = ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
    return GroupDescription(
        group.group_id,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        coordinator,
        [_member(member, group.protocol_type) for member in group.members],
        error,
    )


def _member(member: "DescribedGroupMember", protocol_type: str) -> MemberDescription:
    partitions: list[TopicPartition] = []
    if protocol_type == PROTOCOL_TYPE and member.member_assignment:
        # The assignor of another client may use a format of its own.
        with contextlib.suppress(CorruptDataError):
            partitions = decode_assignment(member.member_assignment)
    return MemberDescription(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host.removeprefix("/"),
        sorted(partitions),
    )


def listed_only(listing: GroupListing) -> GroupDescription:
    """Return what a list says about a group of a type that cannot be described."""
    return GroupDescription(
        listing.group_id,
        listing.state,
        listing.protocol_type,
        coordinator=listing.coordinator,
        group_type=listing.group_type,
    )
