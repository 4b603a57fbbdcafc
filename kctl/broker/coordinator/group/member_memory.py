"""MemberMemory: limits the bytes that the members of all groups of a broker hold.

A member holds its metadata for each assignment protocol and its assignment, possibly megabytes, for
as long as it is a member. Apache Kafka limits neither a group nor all groups together. Here a
member that would exceed a limit is rejected with GROUP_MAX_SIZE_REACHED (KIP-389), which clients
report and do not retry. A group of more than 1 MiB could not be stored in `__consumer_offsets`
anyway, because `message.max.bytes` limits its record. Assignments beyond a limit are rejected in
the same way as a record that is too large.

A member id that was given to a client, which must join with it (KIP-394), counts as a member until
the client joins or the id expires.

Invariant: `held_bytes` is the sum of `size_of` over all members and pending members of all groups.
"""

from collections.abc import Mapping

# Maximum for the members of one group together.
GROUP_BYTES_MAX = 16 * 1024 * 1024
# Maximum for the members of all groups of a broker together.
BROKER_BYTES_MAX = 64 * 1024 * 1024
# Fixed cost of a member: objects and timers. It limits a group to 8,192 members.
MEMBER_BYTES = 2_048
# Fixed cost of a protocol that a member supports: two objects and their places in two tables.
PROTOCOL_BYTES = 256
# Maximum for the protocols of a member, which are examined at once; clients have a few.
PROTOCOLS_MAX = 1_000


class MemberMemory:
    """The bytes held by one broker's members; its shards share one instance."""

    def __init__(self) -> None:
        self.held_bytes = 0

    def has_room(self, group_bytes: int, change: int) -> bool:
        """Return whether the members of a group that hold `group_bytes` may hold `change` more."""
        return change <= 0 or (
            group_bytes + change <= GROUP_BYTES_MAX and self.held_bytes + change <= BROKER_BYTES_MAX
        )


def size_of(name_bytes: int, protocols: Mapping[str, bytes], assignment: bytes = b"") -> int:
    """Return the bytes that a member with these protocols and this assignment holds.

    `name_bytes` is the length of its ids and other names.
    """
    size = sum(len(name) + len(metadata) for name, metadata in protocols.items())
    return MEMBER_BYTES + name_bytes + len(assignment) + size + PROTOCOL_BYTES * len(protocols)
