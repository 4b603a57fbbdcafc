"""What `kctl mirror` and MirrorMaker 2 of Apache Kafka 2.7.2 say of the same positions and losses.

    python -m benchmarks.mirror_errors [--groups N]

**Positions.** The source is a log of transactions, a fifth of them aborted, that was compacted.
Groups have committed random positions, every other one near the end, and each mirror translates
them: kctl by its map, MirrorMaker 2 in its checkpoints. A translation is exact if it is the offset
of the first copied record at or after the position; a later one skips records, an earlier one
repeats some, and a group without a checkpoint is not carried over. **Losses.** Topics lose records
while no mirror runs; then each runs again. The output is what each copied, and what it said of it.

MirrorMaker 2 has one task, isolation.level=read_committed, and checkpoints every second.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random  # noqa: TID251 - seeded

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place

from benchmarks.mirror import mm2_command, on_cluster, show
from kctl.admin.admin_client import AdminClient
from kctl.admin.topics import NewTopic
from kctl.client.group_member import GroupMember
from kctl.mirror.mm2_formats import decode_checkpoint
from kctl.mirror.translation import read_translator
from kctl.model import TopicPartition
from tests.support.kctl_process import KctlBroker

LIMIT_S = 120.0
# Without anything new for so long, a mirror has copied and translated everything.
QUIET_S = 12.0
TRANSACTIONS = 300
RECORDS_EACH = 20
KEYS = 200
POSITIONS = "positions"
COMPACTED = {
    "cleanup.policy": "compact", "segment.bytes": "16384", "min.cleanable.dirty.ratio": "0.01",
}  # fmt: skip
CHECKPOINTS = "A.checkpoints.internal"
MM2_MORE = (
    "A->B.groups=.*\nA.consumer.isolation.level=read_committed\n"
    "emit.checkpoints.interval.seconds=1\n"
    "refresh.groups.interval.seconds=1\nrefresh.topics.interval.seconds=1\ntasks.max=1\n"
    "offset.flush.interval.ms=1000\nconfig.properties.exclude=cleanup\\.policy\n"
)
LOG4J = """log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %m (%c)%n
"""
# Loses nothing, and shows that a mirror has begun again.
CONTROL = "loss-none"
LOSSES = ("deleted", "recreated-shorter", "recreated-longer")


def fill_positions(source: KctlBroker) -> None:
    """Write transactions, abort a fifth of them, and let the broker compact them."""
    client = Producer({"bootstrap.servers": source.address, "transactional.id": "t"})
    client.init_transactions(30)
    chance = Random(1)
    for number in range(TRANSACTIONS):
        client.begin_transaction()
        for at in range(RECORDS_EACH):
            key = b"k%d" % chance.randrange(KEYS)
            client.produce(POSITIONS, b"%d-%d" % (number, at), key, 0)
        if number % 5 == 4:
            client.flush(30)
            client.abort_transaction(30)
        else:
            client.commit_transaction(30)


def read(broker: KctlBroker, topic: str) -> list[tuple[int, bytes]]:
    """Return offsets and values of the committed records of partition 0."""
    consumer = Consumer(
        {"bootstrap.servers": broker.address, "group.id": "judge", "enable.auto.commit": False,
         "isolation.level": "read_committed", "enable.partition.eof": True, "log_level": 0,
         "auto.offset.reset": "earliest"}
    )  # fmt: skip
    consumer.assign([Place(topic, 0, 0)])
    found = []
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error():
            break
        if message is not None:
            found.append((int(message.offset() or 0), bytes(message.value() or b"")))
    consumer.close()
    return found


def has_topic(broker: KctlBroker, topic: str) -> bool:
    """Return whether a topic exists."""

    async def names(admin: AdminClient) -> set[str]:
        return {it.name for it in await admin.topics.list_topics()}

    return topic in on_cluster(broker, names)


def ends(broker: KctlBroker, topics: Sequence[str]) -> list[int]:
    """Return the ends of partition 0 of topics; -1 for one that does not exist."""
    there = [topic for topic in topics if has_topic(broker, topic)]

    async def latest(admin: AdminClient) -> dict[str, int]:
        found = await admin.offsets.latest([TopicPartition(topic, 0) for topic in there])
        return {it.topic: offset.offset for it, offset in found.items()}

    by_topic = on_cluster(broker, latest) if there else {}
    return [by_topic.get(topic, -1) for topic in topics]


def wait_until_quiet(target: KctlBroker, topics: Sequence[str], copied: int) -> None:
    """Return once each topic exists, the control has `copied` records and none has grown for
    QUIET_S."""
    deadline, last, since = time.monotonic() + LIMIT_S, [-1], time.monotonic()
    while time.monotonic() < deadline and ends(target, [f"A.{CONTROL}"])[0] < copied:
        time.sleep(0.3)
    while time.monotonic() < deadline:
        found = ends(target, topics)
        if found != last:
            last, since = found, time.monotonic()
        elif -1 not in found and time.monotonic() - since > QUIET_S:
            return
        time.sleep(0.3)


@contextmanager
def mm2_running(command: list[str], log: Path) -> Iterator[None]:
    """MirrorMaker 2 in the background, which logs to a file; it is stopped cleanly."""
    with log.open("wb") as output, subprocess.Popen(
        command, stdout=output, stderr=subprocess.STDOUT
    ) as process:  # fmt: skip
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def kctl_run(source: KctlBroker, target: KctlBroker) -> "subprocess.CompletedProcess[str]":
    """Run kctl's mirror of all topics to the end."""
    return subprocess.run(
        [
            sys.executable, "-m", "kctl", "mirror", "run", "--source", source.address, "--target",
            target.address, "--topics", POSITIONS, "--topics", "loss-*", "--rename", "kctl.{topic}",
            "--exclude-config", "cleanup.policy", "--once",
        ],
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip


def mm2_translations(target: KctlBroker) -> dict[str, int]:
    """Return the offset of the last checkpoint of each group."""
    consumer = Consumer(
        {"bootstrap.servers": target.address, "group.id": "judge", "enable.auto.commit": False,
         "enable.partition.eof": True, "log_level": 0}
    )  # fmt: skip
    consumer.assign([Place(CHECKPOINTS, 0, 0)])
    found: dict[str, int] = {}
    while (message := consumer.poll(LIMIT_S)) is not None and not message.error():
        checkpoint = decode_checkpoint(message.key() or b"", message.value() or b"")
        if checkpoint.target.topic.endswith(POSITIONS):
            found[checkpoint.group] = checkpoint.target_offset
    consumer.close()
    return found


def show_errors(
    name: str,
    positions: dict[str, int],
    translate: Callable[[str, int], int | None],
    here: list[tuple[int, bytes]],
    there: list[tuple[int, bytes]],
) -> None:
    """Print a row: how many translations are exact, later, earlier, and not there."""
    copied = {value: at for at, (_, value) in enumerate(there)}
    exact = later = earlier = none = worst = 0
    for group, position in positions.items():
        # The target keeps all that was copied, so the first live record at or after it is there.
        value = next(value for offset, value in here if offset >= position)
        to = translate(group, position)
        if to is None:
            none += 1
            continue
        # How many records of the target lie between the translation and the record.
        begin = next((at for at, (offset, _) in enumerate(there) if offset >= to), len(there))
        distance = begin - copied[value]
        exact += distance == 0
        later += distance > 0
        earlier += distance < 0
        worst = max(worst, abs(distance))
    show(f"| {name} | {len(positions)} | {exact} | {later} | {earlier} | {none} | {worst} |")


def commit_positions(source: KctlBroker, positions: dict[str, int]) -> None:
    """Commit a position for each group."""

    async def commit(admin: AdminClient) -> None:
        for group, position in positions.items():
            # MirrorMaker 2 leaves out groups that never had a member.
            member = GroupMember(admin.router, group, [POSITIONS])
            await member.join()
            await member.commit({TopicPartition(POSITIONS, 0): position}, {})
            await member.leave()

    on_cluster(source, commit)


def write(broker: KctlBroker, topic: str, first: int, end: int, text: str = "v") -> None:
    """Write records `first` to `end` - 1."""
    client = Producer({"bootstrap.servers": broker.address, "log_level": 0})
    for number in range(first, end):
        client.produce(topic, f"{text}{number}".encode(), b"k", 0)
    client.flush(30)


def lose(source: KctlBroker) -> dict[str, list[bytes]]:
    """Let each topic lose records; return what it has then that was never copied."""

    async def delete(admin: AdminClient) -> None:
        await admin.offsets.delete_records({TopicPartition("loss-deleted", 0): 150})

    async def recreate(admin: AdminClient) -> None:
        names = [f"loss-{kind}" for kind in LOSSES[1:]]
        await admin.topics.delete(names)
        await admin.topics.create([NewTopic(name, 1, 1) for name in names])

    write(source, "loss-deleted", 100, 200)
    on_cluster(source, delete)
    on_cluster(source, recreate)
    for kind, count in (("recreated-shorter", 50), ("recreated-longer", 200)):
        write(source, f"loss-{kind}", 0, count, "new")
    return {f"loss-{kind}": [it[1] for it in read(source, f"loss-{kind}")] for kind in LOSSES}


def show_losses(
    name: str,
    target: KctlBroker,
    prefix: str,
    now: dict[str, list[bytes]],
    said: Callable[[str], str],
) -> None:
    """Print a row for each kind of loss."""
    for topic, values in now.items():
        copied = {value for _, value in read(target, prefix + topic)}
        left_out = sum(value not in copied for value in values)
        show(f"| {name} | {topic} | {left_out} of {len(values)} | {said(topic)} |")


def said_by_mm2(log: Path) -> Callable[[str], str]:
    """Return what MirrorMaker 2 logged of a topic at WARN and ERROR, and of a reset at INFO."""
    lines = log.read_text(errors="replace").splitlines()

    def said(topic: str) -> str:
        mine = [line for line in lines if f"{topic}-0" in line]
        loud = sum(" WARN " in line or " ERROR " in line for line in mine)
        resets = sum("out of range" in line or "Resetting offset" in line for line in mine)
        return f"it runs on; {loud} warnings or errors, {resets} lines at INFO of a reset offset"

    return said


def show_positions(
    target: KctlBroker, positions: dict[str, int], here: list[tuple[int, bytes]]
) -> None:
    """Print a row for each mirror."""
    show(f"{TRANSACTIONS * RECORDS_EACH} records written, {len(here)} left after compaction")
    show("| | positions | exact | later | earlier | none | furthest, in records |")
    show("|---|--:|--:|--:|--:|--:|--:|")
    translator = on_cluster(target, lambda admin: read_translator(admin, "default"))
    partition = TopicPartition(POSITIONS, 0)
    show_errors(
        "kctl", positions, lambda _, at: translator.to_target(partition, at).to_offset, here,
        read(target, f"kctl.{POSITIONS}"),
    )  # fmt: skip
    checkpoints = mm2_translations(target)
    show_errors(
        "MirrorMaker 2", positions, lambda group, _: checkpoints.get(group), here,
        read(target, f"A.{POSITIONS}"),
    )  # fmt: skip


def main() -> None:
    """Compare both mirrors and print the rows."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--groups", type=int, default=300)
    given = parser.parse_args()
    names = [f"loss-{kind}" for kind in LOSSES]
    with (
        tempfile.TemporaryDirectory() as home,
        KctlBroker(
            Path(home) / "a",
            "-c",
            "log.cleaner.backoff.ms=100",
            "-c",
            "group.initial.rebalance.delay.ms=0",
        ) as source,
        KctlBroker(Path(home) / "b") as target,
    ):

        async def create(admin: AdminClient) -> None:
            plain = [NewTopic(name, 1, 1) for name in (*names, CONTROL)]
            await admin.topics.create([NewTopic(POSITIONS, 1, 1, COMPACTED), *plain])

        on_cluster(source, create)
        fill_positions(source)
        for name in (*names, CONTROL):
            write(source, name, 0, 100)
        # The cleaner has come to rest.
        last: list[tuple[int, bytes]] = []
        while (here := read(source, POSITIONS)) != last:
            last = here
            time.sleep(2)
        chance = Random(2)
        end = here[-1][0] + 1
        # Every other group is nearly at the end, as those of consumers that keep up.
        positions = {
            f"g{n}": chance.randrange(0 if n % 2 else end - 60, end) for n in range(given.groups)
        }
        commit_positions(source, positions)

        log = Path(home) / "mm2.log"
        topics = f"{POSITIONS}|loss-.*"
        command = mm2_command(source, target, Path(home), topics, MM2_MORE)
        log4j = Path(home) / "log4j.properties"
        log4j.write_text(LOG4J)
        libs = command[command.index("-cp") + 1]
        # Before slf4j-nop, which is among the jars too.
        binding = f"{libs.removesuffix('*')}slf4j-log4j12-1.7.30.jar"
        command[command.index("-cp") + 1] = f"{binding}:{libs}"
        command.insert(1, f"-Dlog4j.configuration=file:{log4j}")
        with mm2_running(command, log):
            wait_until_quiet(target, [f"A.{name}" for name in (POSITIONS, *names)], 100)
        done = kctl_run(source, target)
        assert done.returncode == 0, done.stderr

        show_positions(target, positions, here)
        now = lose(source)
        write(source, CONTROL, 100, 101)
        with mm2_running(command, log):
            wait_until_quiet(target, [f"A.{name}" for name in names], 101)
        done = kctl_run(source, target)
        show("\n| | topic | records left out | what it says |\n|---|---|--:|---|")
        errors = {
            name: next((it for it in done.stderr.splitlines() if f"{name}-0" in it), "nothing")
            for name in names
        }
        said = f"exit {done.returncode}; "
        show_losses("kctl", target, "kctl.", now, lambda topic: said + errors[topic])
        show_losses("MirrorMaker 2", target, "A.", now, said_by_mm2(log))


if __name__ == "__main__":
    main()
