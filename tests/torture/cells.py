"""A cell: some faults strike a cluster whose clients are at work, all is healed, and the clients'
histories and the replicas' bytes are judged. A cell of the same seed draws the same.
"""

import hashlib
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from random import Random  # noqa: TID251 - the seed enters here

from kctl.simulation.queue_checker import Kind
from tests.torture.faults import FAULTS, Scene
from tests.torture.modes import IDEMPOTENT_MODES, MODES, topic_of, topics_of, wait_for_progress
from tests.torture.repeats import repeated_by_clients
from tests.torture.systems import PARTITIONS, System, why_no_system

# Apache Kafka takes longer to start, and is not to lose its session over that.
SESSION_MS = {"K1": 1500, "K3": 1500, "X": 3000, "M": 3000, "J": 3000}
ALLOWANCE_MS = 500
BEFORE, AFTER = 20, 10
WORDS_MAX = 10


@dataclass(frozen=True)
class Cell:
    """What is played: two faults meet each other."""

    system: str
    faults: tuple[str, ...]
    modes: str
    seed: int

    def __str__(self):
        names = "+".join(f"{it} {FAULTS[it].name}" for it in self.faults)
        return f"{self.system} {names} {self.modes} seed {self.seed}"

    def why_not(self):
        """Why it cannot be played here; None if it can."""
        faults = [FAULTS[it] for it in self.faults]
        reasons = [it.why_not(self.system, self.modes) for it in faults]
        if sum(it.is_harmful for it in faults) > 1:
            reasons.insert(0, "two replicas lose what they hold: more than three can bear")
        reasons.append(why_no_system(self.system))
        return next((it for it in reasons if it is not None), None)


@dataclass
class Row:
    """What became of a cell."""

    cell: Cell
    acknowledged: int = 0
    transactions: int = 0
    # Writes that a client sent again under another producer epoch, and that are there twice.
    resent: int = 0
    without_offset: int = 0
    anomalies: list = field(default_factory=list)
    # The longest time without an acknowledgement in some partition, and whose it was.
    gap_s: float = 0.0
    gap_mode: str = "-"
    # The longest time from a start after the fault until the broker was ready.
    up_after_s: float = 0.0
    seconds: float = 0.0

    @property
    def is_good(self):
        return not self.anomalies

    @property
    def is_late(self):
        """Longer than the session time-out and ALLOWANCE_MS was nothing acknowledged."""
        return self.gap_s * 1000 > SESSION_MS[self.cell.system] + ALLOWANCE_MS

    def __str__(self):
        kinds = Counter(getattr(it, "kind", None) for it in self.anomalies)
        named = (Kind.LOST_WRITE, Kind.DUPLICATE, Kind.REORDERED, Kind.ABORTED_READ)
        lost, duplicated, reordered, aborted = (kinds.pop(it, 0) for it in named)
        return (
            f"{'ok  ' if self.is_good else 'FAIL'} {self.cell}: {self.acknowledged} acknowledged, "
            f"{self.transactions} transactions, {lost} lost, {duplicated} duplicated, "
            f"{reordered} reordered, {aborted} aborted reads, {kinds.total()} other; "
            f"{self.resent} resent by clients, {self.without_offset} without an offset; "
            f"gap {self.gap_s:.2f} s ({self.gap_mode}), up after {self.up_after_s:.2f} s, "
            f"{self.seconds:.0f} s"
        )


def play(cell, directory):
    """Play a cell and return its row, which also reports what failed."""
    row, begin = Row(cell), time.monotonic()
    with ExitStack() as stack:
        try:
            _play(cell, directory, row, stack)
        except Exception as error:  # noqa: BLE001 - the next cell must be played nevertheless
            row.anomalies.append(f"{type(error).__name__}: {error}")
    row.seconds = time.monotonic() - begin
    return row


def _play(cell, directory, row, stack):
    chance = Random(str(cell))
    faults = [FAULTS[it] for it in cell.faults]
    system = System(
        cell.system,
        directory,
        chance,
        session_ms=SESSION_MS[cell.system],
        disks=sorted({disk for it in faults for disk in it.disks}),
        durable=any(cell.system in it.durable_on for it in faults),
    )
    stack.callback(system.close)
    stack.callback(system.keep, row)
    system.create(*topics_of(cell.modes))
    clients = {}
    for mode in cell.modes:
        clients[mode] = MODES[mode](mode, system, cell.seed, directory)
        stack.callback(clients[mode].close)
        clients[mode].start()
    wait_for_progress(clients.values(), BEFORE)
    system.until_in_sync()
    begin = time.monotonic()
    _strike(faults, Scene(system, clients, chance, directory))
    for each in clients.values():
        each.heal()
    wait_for_progress(clients.values(), AFTER)
    row.gap_s, row.gap_mode = max(
        (it.longest_gap_s(begin, time.monotonic()), mode) for mode, it in clients.items()
    )
    _judge(system, clients.values(), row)


def _strike(faults, scene):
    chance, session_s = scene.chance, scene.system.session_ms / 1000
    time.sleep(chance.uniform(0, 0.5))
    for fault in faults:
        fault.strike(scene)
        time.sleep(session_s * chance.uniform(*fault.lasts))
    scene.system.heal()


def _judge(system, clients, row):
    found = {}
    for each in clients:
        found[each.mode] = each.finish()
        row.acknowledged += each.written
        row.without_offset += each.without_offset
        row.transactions += each.commits
    row.up_after_s = max((s for it in system.machines.values() for s in it.starts), default=0.0)
    system.until_in_sync()
    system.stop()
    for mode, anomalies in found.items():
        resent = _resent(system, mode) if mode in IDEMPOTENT_MODES else set()
        mine = {it.value for it in anomalies if it.kind is Kind.DUPLICATE} & resent
        row.resent += len(mine)
        row.anomalies += [
            replace(it, words=f"{mode}: {it.words}") for it in anomalies if it.value not in mine
        ]
    for machine in system.machines.values():
        row.anomalies += machine.alarms()
    row.anomalies += different_replicas(system)


def _resent(system, mode):
    """Values that an idempotent client sent again under another producer epoch."""
    machine = next(iter(system.machines.values()))
    found = set()
    for partition in range(PARTITIONS):
        for log_dir in machine.log_dirs:
            found |= repeated_by_clients(log_dir / f"{topic_of(mode)}-{partition}")
    return found


def different_replicas(system):
    """Describe the replicas whose bytes differ from their neighbour's."""
    for topic in system.topics:
        for partition in range(PARTITIONS):
            name = f"{topic}-{partition}"
            replicas = [
                log_dir / name
                for machine in system.machines.values()
                for log_dir in machine.log_dirs
                if (log_dir / name).exists()
            ]
            if len(replicas) != len(system.machines):
                yield f"{name} is there {len(replicas)} times"
            elif len({_digest(it) for it in replicas}) > 1:
                yield from (_compared(replicas[0], it) for it in replicas[1:])


def _digest(directory):
    digest = hashlib.sha256()
    for path in sorted(directory.glob("*.log")):
        digest.update(path.read_bytes())
    return digest.digest()


def _compared(one, other):
    words = ["verify-log", str(one), "--compare", str(other)]
    done = subprocess.run(
        [sys.executable, "-m", "kctl", *words], capture_output=True, text=True, check=False
    )
    return f"{one} and {other} differ: {done.stdout}{done.stderr}"


def text_of(row):
    """Return the row and the first of its anomalies as text."""
    more = [f"     {it}" for it in row.anomalies[:WORDS_MAX]]
    if len(row.anomalies) > WORDS_MAX:
        more.append(f"     and {len(row.anomalies) - WORDS_MAX} more")
    return "\n".join([str(row), *more])
