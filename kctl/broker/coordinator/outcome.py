"""Outcome: a coordinator's decision, for the runtime to execute.

A coordinator's core is pure: a request (or a deadline) and the time go in, an Outcome comes out.
Persistent state changes in two steps: the core requests a `Write`; once its records are committed
the runtime passes each of them to `replay`, and then the Write's `on_settled` returns what follows
(mostly the reply). If the write fails nothing is replayed, and `on_settled` gets the error. State
that is not persisted (pending replies, deadlines) changes at once.

Kafka trunk: org.apache.kafka.coordinator.common.runtime.CoordinatorResult.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Any, NamedTuple, Protocol

from kctl.lazy_dataclass import dataclass
from kctl.records.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from kctl.work import Work

# Takes the single response to a request: a message, or whatever the caller agreed on.
Reply = Callable[[Any], object]


# Yields replies and their responses; None where the next one should wait for another turn.
ReplyStream = Iterable[tuple[Reply, Any] | None]


class Moment(NamedTuple):
    """The current time on both clocks: deadlines use monotonic time, records wall time."""

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
    """Records that belong together: either all are in the log or none."""

    records: Sequence[CoordinatorRecord]
    # Called once with an error code (0: committed and replayed); may return a further Outcome.
    on_settled: "Settled | None" = None
    # Set for offsets committed in a transaction, which makes the batch transactional.
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class Later(NamedTuple):
    """A decision that may take several turns of the loop."""

    # Returns what follows from the decision.
    work: "Work[Outcome]"
    # Called if a turn raises an error, which is also logged; returns what follows from that.
    on_error: "Callable[[Moment], Outcome | None]" = lambda _moment: None


# Takes the error code of a Write and returns what follows.
Settled = Callable[[int, Moment], "Outcome | None"]


@dataclass(slots=True)
class Outcome:
    """Replies to send now, records to write, messages to send, and events."""

    replies: list[tuple[Reply, Any]] = field(default_factory=list)
    # Replies whose responses are made while they are sent, some in each turn of the loop. What
    # they are made of was captured when the decision was made.
    streams: list[ReplyStream] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    # For other brokers, passed to the runtime's `on_message`; the coordinator defines their type.
    messages: list[Any] = field(default_factory=list)
    # (name, fields) as `Trace.event` takes them.
    events: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    # Decisions that may take several turns of the loop.
    later: "list[Later]" = field(default_factory=list)
    # What parts of the decision raised, to be logged; the other parts are valid.
    errors: list[Exception] = field(default_factory=list)

    def reply(self, reply: Reply, response: Any) -> "Outcome":
        """Add a reply to send now."""
        self.replies.append((reply, response))
        return self

    def event(self, name: str, **fields: object) -> None:
        """Add an event for the trace."""
        self.events.append((name, fields))
