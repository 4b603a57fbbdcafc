"""What a group on ZooKeeper reads, and a judge of what its members deliver and own."""

import sys
import time
from bisect import bisect_right
from collections import Counter

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kazoo.client import KazooClient

from kctl.kafka.assignment import assign
from tests.support.waiting import wait_for

PARTITIONS = 6


class Topic:
    """A topic whose messages are numbers."""

    def __init__(self, address, name, partitions=PARTITIONS, **config):
        self.name, self.partitions, self.count = name, partitions, 0
        self.address = address
        self.admin = AdminClient({"bootstrap.servers": address})
        self.producer = Producer({"bootstrap.servers": address})
        new = NewTopic(name, partitions, config={it.replace("_", "."): config[it] for it in config})
        for made in self.admin.create_topics([new]).values():
            made.result()

    def write(self, count):
        failed = []

        def delivered(error, _message):
            if error is not None:
                failed.append(error)

        for number in range(self.count, self.count + count):
            self.producer.produce(
                self.name, str(number), partition=number % self.partitions, on_delivery=delivered
            )
        self.count += count
        self.producer.flush()
        assert failed == []

    def is_in_sync(self):
        """Whether every replica is in the ISR, so that any broker may stop."""
        partitions = self.admin.list_topics(self.name).topics[self.name].partitions.values()
        return all(len(it.isrs) == len(it.replicas) for it in partitions)

    def grow(self):
        self.partitions += 1
        wait_for(self._is_asked_to_grow, lambda: "no broker is the controller")
        # A producer that knew the topic learns of the partition later.
        wait_for(
            lambda: (
                len(self.admin.list_topics(self.name).topics[self.name].partitions)
                == self.partitions
            ),
            lambda: f"no {self.partitions} partitions",
        )
        self.producer = Producer({"bootstrap.servers": self.address})

    def _is_asked_to_grow(self):
        # librdkafka does not look for another controller by itself.
        self.admin = AdminClient({"bootstrap.servers": self.address})
        [grown] = self.admin.create_partitions([NewPartitions(self.name, self.partitions)]).values()
        try:
            grown.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_CONTROLLER:
                raise
            return False
        return True


class Watcher:
    """Every change of owners and of committed offsets, with the time at which it was seen."""

    def __init__(self, zookeeper, group, topic):
        self.client = KazooClient(zookeeper)
        self.client.start()
        self.group, self._topic = group, topic
        self.owners, self.offsets = {}, {}
        for kind, seen in (("owners", self.owners), ("offsets", self.offsets)):
            path = f"/consumers/{group}/{kind}/{topic}"
            self.client.ensure_path(path)
            self.client.ChildrenWatch(path, lambda names, p=path, s=seen: self._follow(p, s, names))

    def _follow(self, path, seen, names):
        for name in names:
            if int(name) not in seen:
                seen[int(name)] = []
            if not seen[int(name)] or seen[int(name)][-1][1] is None:
                self._watch(f"{path}/{name}", seen[int(name)])

    def _watch(self, path, log):
        def changed(data, _stat):
            log.append((time.monotonic(), None if data is None else data.decode()))
            return data is not None

        self.client.DataWatch(path, changed)

    def owners_now(self, partitions):
        logs = [self.owners.get(number) or [(0, None)] for number in range(partitions)]
        return [log[-1][1] for log in logs]

    def is_as_assigned(self, partitions):
        """Whether the owners are those of the range assignment, of members that read the topic
        with one stream each."""
        members = self.client.get_children(f"/consumers/{self.group}/ids")
        streams = {it: {self._topic: 1} for it in members}
        assignment = assign(streams, {self._topic: range(partitions)})
        # Some clients write their id without a thread.
        return all(
            owner in (thread, thread.removesuffix("-0"))
            for owner, thread in zip(self.owners_now(partitions), assignment.values(), strict=False)
        ) and bool(assignment)

    def last_before(self, log, at):
        place = bisect_right(log, at, key=lambda it: it[0])
        return log[place - 1][1] if place else None

    def close(self):
        self.client.stop()
        self.client.close()


def values(members, topic=None):
    """All numbers that members of either kind have delivered, of one topic or of all."""
    return [
        int(value)
        for it in members
        for name, value in map(_topic_and_value, it.said("message"))
        if topic is None or name == topic.name
    ]


def _topic_and_value(message):
    if isinstance(message, dict):
        return message["topic"], message["value"]
    return message[0], message[3]


def wrong_deliveries(watcher, members, topic=None):
    """Deliveries of kctl's members of what another owned, or of what was committed already."""
    wrong = []
    for member in members:
        for name, partition, offset, _, at, consumer_id in member.said("message"):
            if topic is not None and name != topic.name:
                continue
            owners = watcher.owners.get(partition, [])
            owner = watcher.last_before(owners, at)
            soon = any(at < t < at + 2 and it and consumer_id in it for t, it in owners)
            if owner is not None and consumer_id not in owner and not soon:
                wrong.append(("not the owner", partition, offset, consumer_id, owner))
            committed = watcher.last_before(watcher.offsets.get(partition, []), at)
            if committed is not None and int(committed) > offset:
                wrong.append(("committed", partition, offset, consumer_id, committed))
    return wrong


def report(events, watcher, topic, members, ours):
    """Print what became of all messages; `ours` are the members that are kctl's."""
    delivered = Counter(values(members, topic))
    wrong = Counter(kind for kind, *_ in wrong_deliveries(watcher, ours, topic))
    lost = topic.count - len(delivered.keys() & set(range(topic.count)))
    twice = sum(count > 1 for count in delivered.values())
    changes = sum(len(log) for log in watcher.owners.values())
    sys.stdout.write(
        f"{watcher.group}: {events} events, {len(members)} members ({len(ours)} of kctl), "
        f"{topic.count} messages, lost {lost}, more than once {twice}, {changes} changes of "
        f"owners; by kctl's members: {len(values(ours))} deliveries, {wrong['not the owner']} of "
        f"another's, {wrong['committed']} of what was committed\n"
    )


def settled(watcher, topic, members):
    """Whether every partition has an owner, and everything is delivered."""
    return None not in watcher.owners_now(topic.partitions) and (
        set(values(members, topic)) >= set(range(topic.count))
    )
