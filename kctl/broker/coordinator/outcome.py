"""Outcome: what a coordinator decided, for the runtime to carry out.

A coordinator's core is pure: a request (or a deadline) and the time go in, an Outcome comes out.
What is persisted changes in two steps only: the core asks for a `Write`; once its records are
committed the runtime gives each of them to `replay`, and then the Write's `on_settled` says what
follows (mostly: the reply). If the write failed nothing is replayed and `on_settled` learns why.
What is not persisted (who waits for which reply, deadlines) changes at once.

Kafka trunk: org.apache.kafka.coordinator.common.runtime.CoordinatorResult.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1

# Takes the one answer to a request, a message or whatever the request's caller agreed on.
Reply = Callable[[Any], object]


class Moment(NamedTuple):
    """Now, on both clocks: deadlines count monotonic time, records carry wall time."""

    monotonic_ms: int
    wall_ms: int


class CoordinatorRecord(Protocol):
    """A record for a coordinator's topic; a value of None is a tombstone."""

    @property
    def key(self) -> bytes: ...

    @property
    def value(self) -> bytes | None: ...


@dataclass(slots=True)
class Write:
    """Records that belong together: all are in the log or none."""

    records: Sequence[CoordinatorRecord]
    # Called once with an error code (0: committed and replayed); may want more done.
    on_settled: "Callable[[int, Moment], Outcome | None] | None" = None
    # Set for offsets that a transaction commits: the batch is transactional then.
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@dataclass(slots=True)
class Outcome:
    """Replies to release now, records to write, messages to send, and what happened."""

    replies: list[tuple[Reply, Any]] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    # For other brokers, by way of whoever sends them: what exactly is the coordinator's business.
    messages: list[Any] = field(default_factory=list)
    # (name, fields) as `Trace.event` takes them.
    events: list[tuple[str, dict[str, object]]] = field(default_factory=list)

    def reply(self, reply: Reply, response: Any) -> "Outcome":
        """Answer somebody now."""
        self.replies.append((reply, response))
        return self

    def event(self, name: str, **fields: object) -> None:
        """Note something that happened."""
        self.events.append((name, fields))
