"""Random groups for the assignors; `python -m tests.kafka.assignment_cases` asks Java 1.1.1 about
the first GOLDEN_COUNT of them, and writes its answers to GOLDEN."""

import json
from pathlib import Path
from random import Random  # noqa: TID251 - seeded

from kctl.java_hash import java_hash
from kctl.kafka.assignment import Strategy, assign
from kctl.store.consumer_znodes import Subscription, encode_subscription

GOLDEN = Path(__file__).parent.parent / "golden" / "zookeeper_assignments.json"
GOLDEN_COUNT = 150


def random_group(seed):
    """(strategy, {consumer id: {topic: streams}}, {topic: number of partitions})."""
    random = Random(seed)
    small = random.random() < 0.7
    topics = {
        random.choice(["t", "topic-", "a.b_", "Z", "t1-"]) + str(number): random.randint(
            0 if random.random() < 0.1 else 1, 6 if small else 40
        )
        for number in range(random.randint(1, 4))
    }
    members = {}
    for number in range(random.randint(1, 5 if small else 12)):
        host = random.choice(["h", "host-10", "HOST-9", "h_"])
        name = f"g_{host}-{1_500_000_000_000 + number}-{random.getrandbits(32):08x}"
        read = random.sample(sorted(topics), random.randint(1, len(topics)))
        members[name] = {topic: random.randint(1, 3 if small else 12) for topic in read}
    return random.choice(list(Strategy)), members, topics


def for_java(seed):
    """A group as `java_assignments` takes it."""
    strategy, members, topics = random_group(seed)
    ids = {
        name: encode_subscription(Subscription(streams, timestamp_ms=1)).decode()
        for name, streams in members.items()
    }
    return {"strategy": strategy.value, "group": "g", "ids": ids, "topics": topics}


def ours(seed):
    """The assignment as `java_assignments` returns it."""
    strategy, members, topics = random_group(seed)
    counts = {topic: range(count) for topic, count in topics.items()}
    found = {}
    for it, thread in assign(members, counts, strategy).items():
        found.setdefault(it.topic, {})[str(it.partition)] = thread
    return found


def has_tie(seed):
    """Whether roundrobin has partitions of the same hash."""
    _, _, topics = random_group(seed)
    hashes = [java_hash(f"{topic}-{n}") for topic, count in topics.items() for n in range(count)]
    return len(set(hashes)) < len(hashes)


def same(ours_, javas):
    """Whether two assignments are equal; Java's may name topics without partitions."""
    return ours_ == {topic: owners for topic, owners in javas.items() if owners}


if __name__ == "__main__":
    from tests.support.java_consumers import java_assignments

    answers = java_assignments(for_java(seed) for seed in range(GOLDEN_COUNT))
    lines = [json.dumps(it, sort_keys=True, separators=(",", ":")) for it in answers]
    GOLDEN.write_text("[\n" + ",\n".join(lines) + "\n]\n")
