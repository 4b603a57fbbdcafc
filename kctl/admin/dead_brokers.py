"""What a plan does about replicas on brokers that are not alive. Pure.

A broker that is down for a restart looks like one that never returns. A plan that moves its
replicas copies all of its data, and a reassignment whose target contains it does not complete
before it is back (Kafka waits until every target replica is in sync). The caller decides.

Kafka 2.7: kafka.controller.KafkaController (isReassignmentComplete); KIP-455.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum

from kctl.errors import UsageError
from kctl.model import TopicPartition


class DeadBrokers(StrEnum):
    """The values of `--dead-brokers`."""

    # There is no plan; the error names the brokers.
    REFUSE = "refuse"
    # Partitions with a replica on a dead broker do not change.
    KEEP = "keep"
    # Replicas on dead brokers move to live brokers.
    EVACUATE = "evacuate"


def dead_replicas(
    live: Collection[int], assignment: Mapping[TopicPartition, Sequence[int]]
) -> dict[int, int]:
    """Return dead broker -> the number of its replicas, in order of broker ids."""
    found: dict[int, int] = {}
    for replicas in assignment.values():
        for broker in replicas:
            if broker not in live:
                found[broker] = found.get(broker, 0) + 1
    return dict(sorted(found.items()))


def partitions_to_keep(
    dead: DeadBrokers,
    live: Collection[int],
    assignment: Mapping[TopicPartition, Sequence[int]],
    concerned: Iterable[TopicPartition],
    named: Collection[int] = (),
) -> set[TopicPartition]:
    """Return the `concerned` partitions that a plan must leave as they are.

    They have replicas on dead brokers other than `named`, the brokers that the caller asks to
    empty. Raise UsageError with REFUSE if there are any; with EVACUATE there are none.
    """
    if dead is DeadBrokers.EVACUATE:
        return set()
    allowed = {*live, *named}
    affected = {tp: assignment[tp] for tp in concerned if not allowed.issuperset(assignment[tp])}
    if affected and dead is DeadBrokers.REFUSE:
        raise _refusal(dead_replicas(allowed, affected))
    return set(affected)


def brokers_text(brokers: Iterable[int]) -> str:
    """Return "Broker 3 is not alive" or "Brokers 3, 4 are not alive"."""
    ids = ", ".join(map(str, brokers))
    return f"Brokers {ids} are not alive" if "," in ids else f"Broker {ids} is not alive"


def _refusal(replicas: Mapping[int, int]) -> UsageError:
    count = sum(replicas.values())
    verb = "has" if len(replicas) == 1 else "have"
    noun = "replica" if count == 1 else "replicas"
    return UsageError(
        f"{brokers_text(replicas)} and {verb} {count} {noun} that the plan concerns",
        hint="start it again, or pass --dead-brokers keep to leave these partitions as they are, "
        "or --dead-brokers evacuate to move the replicas to live brokers",
    )
