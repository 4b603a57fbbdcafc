"""Power cuts and kills: what a client has read is still there, and recovery leaves whole messages.

KCTL_POWER_CUTS_07 sets the number of cuts; CI makes some.
"""

import os

import pytest

from kctl.protocol.kafka07 import MultiProduceRequest, ProduceRequest, encode_request
from kctl.records.compression import GZIP, NONE, SNAPPY
from kctl.records.message07 import message_set, messages
from kctl.simulation.disk import NameOrder, SimDisk
from tests.support.kafka07_world import Kafka07World
from tests.support.virtual_runtime import SeededEntropy

CUTS = int(os.environ.get("KCTL_POWER_CUTS_07", "60"))
SEEDS = 3
SETTINGS = {
    "log.file.size": "300", "num.partitions": "2", "log.flush.interval": "7",
    "log.retention.size": "900",
}  # fmt: skip
PARTITIONS = [("t", 0), ("t", 1), ("u", 0), ("v", 1)]


class History:
    """A broker under random requests, and what a client has read of each partition."""

    def __init__(self, seed):
        self.entropy = SeededEntropy(seed)
        order = list(NameOrder)[seed % 3]
        self.world = Kafka07World(SETTINGS, SimDisk(order), seed=seed).start()
        # Partition -> the bytes that were read, by their offset.
        self.read = {}
        self.number = 0
        self.cuts = []

    def go_on(self):
        match self.entropy.random_below(10):
            case 0:
                self.world.advance(1_000 * self.entropy.random_below(80))
            case 1 | 2 | 3:
                self.fetch(*PARTITIONS[self.entropy.random_below(len(PARTITIONS))])
            case _:
                self.produce()

    def produce(self):
        parts = []
        for _ in range(1 + self.entropy.random_below(3)):
            topic, partition = PARTITIONS[self.entropy.random_below(len(PARTITIONS))]
            count = 1 + self.entropy.random_below(5)
            payloads = [b"message %d" % (self.number + n) for n in range(count)]
            self.number += count
            codec = (NONE, NONE, GZIP, SNAPPY)[self.entropy.random_below(4)]
            parts.append(ProduceRequest(topic, partition, message_set(payloads, codec)))
        self.world.exchange(encode_request(MultiProduceRequest(parts)))

    def fetch(self, topic, partition):
        seen = self.read.setdefault((topic, partition), {})
        ends = self.world.offsets(topic, partition)
        for offset in reversed(ends[1:]):
            found = bytes(self.world.fetch(topic, partition, offset).message_set)
            if len(found) >= len(seen.get(offset, b"")):
                seen[offset] = found


def survivors(history, is_power_cut):
    disk = history.world.disk
    after = disk.power_loss(history.entropy) if is_power_cut else disk.process_loss()
    return Kafka07World(SETTINGS, after).start()


def check(history, world):
    assert not world.logs.offline, world.warnings
    for (topic, partition), seen in history.read.items():
        ends = world.offsets(topic, partition)
        for offset, data in seen.items():
            if offset < ends[-1]:
                continue  # Deleted by retention.
            assert bytes(world.fetch(topic, partition, offset, len(data)).message_set) == data
    for topic, partition in PARTITIONS:
        list(whole(world, topic, partition))


def whole(world, topic, partition):
    for offset in reversed(world.offsets(topic, partition)[1:]):
        yield from messages(world.fetch(topic, partition, offset).message_set, offset)


def disks_at_random_changes(history, disks):
    """What a power cut leaves between some two changes of the disk."""

    def cut():
        if history.entropy.random_below(12) == 0:
            disks.append(history.world.disk.power_loss(history.entropy))

    return cut


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_was_read_survives(seed):
    history = History(seed)
    cuts = 0
    while cuts < CUTS // SEEDS:
        disks = []
        history.world.disk.on_change = disks_at_random_changes(history, disks)
        for _ in range(4):
            history.go_on()
        history.world.disk.on_change = None
        for is_power_cut in (True, False):
            check(history, survivors(history, is_power_cut))
            cuts += 1
        for disk in disks:
            world = Kafka07World(SETTINGS, disk).start()
            assert not world.logs.offline, world.warnings
            for topic, partition in PARTITIONS:
                list(whole(world, topic, partition))
            cuts += 1
    assert history.number > 10
