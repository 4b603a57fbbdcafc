"""The faults. Each strikes and leaves what it broke as it is: `System.heal` undoes it later, so
that a second fault can meet the first.
"""

import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from tests.support.segment_check import batches_of
from tests.torture.hosts import CLIENTS, STORE, why_no_network
from tests.torture.systems import why_no_disks

FREE_BYTES = 20_000
BITS = 8
HEADER_BYTES = 61
# How long a broker whose bit was flipped may take to rejoin the ISR without help.
BY_ITSELF_S = 8
# Rounds of reassignments, each with the death of a broker.
MOVES = 3


@dataclass(frozen=True)
class Scene:
    """What a fault acts on: the cluster, the client processes by mode, and the draw."""

    system: object
    clients: dict
    chance: object
    directory: object


@dataclass(frozen=True)
class Fault:
    """A fault; `lasts` is its shortest and longest duration, in session timeouts."""

    number: str
    strike: Callable[[Scene], None]
    lasts: tuple[float, float]
    systems: tuple[str, ...] = ("K1", "K3", "X", "M", "J")
    # Directories of each broker that are disks of their own.
    disks: tuple[str, ...] = ()
    # Replicas lose what was acknowledged: no two such at a time.
    is_harmful: bool = False
    # Acknowledged is what is on disk; where that must be so.
    durable_on: tuple[str, ...] = field(default=())
    needs_network: bool = False

    @property
    def name(self):
        return self.strike.__name__

    def why_not(self, system, modes):
        """Why it cannot be played; None if it can."""
        if system not in self.systems:
            return REASONS[self.number]
        if self.strike is disturb_clients and not set(modes) & {"D"}:
            return "no client of these modes holds a transaction"
        if self.disks:
            return why_no_disks()
        return why_no_network() if self.needs_network else None


def everybody(scene):
    """All brokers in any order, each awake when its turn comes."""
    machines = list(scene.system.machines.values())
    for machine in scene.chance.sample(machines, len(machines)):
        machine.resume()
        yield machine


def kill_leader(scene):
    """kill -9."""
    scene.system.leader(scene.chance).kill()


def kill_controller(scene):
    """kill -9."""
    scene.system.controller(scene.chance).kill()


def kill_all(scene):
    """Kill every broker with kill -9, within some milliseconds."""
    for machine in everybody(scene):
        machine.kill()
        time.sleep(scene.chance.choice([0, 0, 0.05]))


def pause_leader_beyond_session(scene):
    """SIGSTOP until others have taken its place: it wakes up and believes that it leads."""
    scene.system.leader(scene.chance).pause()


def pause_leader_within_session(scene):
    """Pause a broker with SIGSTOP, too briefly for the cluster to notice."""
    scene.system.leader(scene.chance).pause()


def cut_leader_from_followers(scene):
    """The store and the clients reach it still."""
    leader = scene.system.leader(scene.chance)
    others = [it.broker_id for it in scene.system.others(leader)]
    scene.system.network.cut(leader.broker_id, others)


def cut_leader_from_all(scene):
    """Cut off a broker, with its clients or without; such clients keep using a deposed leader."""
    leader = scene.system.leader(scene.chance)
    others = [it.broker_id for it in scene.system.others(leader)]
    clients = scene.chance.choice([[], [CLIENTS]]) if others else [CLIENTS]
    store = [STORE] if scene.system.zookeeper else []
    scene.system.network.cut(leader.broker_id, others + store + clients)


def pause_followers(scene):
    """Pause all followers of a partition with SIGSTOP: its leader has none left to wait for."""
    for machine in scene.system.others(scene.system.leader(scene.chance)):
        machine.pause()


def kill_store(scene):
    """kill -9 of ZooKeeper; it comes back with its data."""
    scene.system.kill_store()


def cut_power_of_leader(scene):
    """What it had not written to its disk is gone."""
    scene.system.leader(scene.chance).cut_power()


def cut_power_of_all(scene):
    """Kill brokers in sequence, within some milliseconds."""
    for machine in everybody(scene):
        machine.cut_power()


def flip_bit(scene):
    """kill -9 of a broker of kctl, and one bit of its files changes, in a batch that others follow.

    It must not serve what is damaged. A lone broker is given the bit back; another one is given a
    new copy by the others.
    """
    system, chance = scene.system, scene.chance
    machine = chance.choice([it for it in system.machines.values() if it.is_kctl])
    machine.resume()
    machine.kill()
    places = _places(machine)
    if not places:
        return
    log, start, size = chance.choice(places)
    position, bit = chance.randrange(start + HEADER_BYTES, start + size), chance.randrange(BITS)
    flip(log, position, bit)
    machine.launch()
    machine.await_start()
    if len(system.machines) == 1:
        machine.repairs.append(lambda: flip(log, position, bit))
    elif not _is_in_sync_soon(system):
        machine.repairs.append(lambda: shutil.rmtree(log.parent))


def _places(machine):
    """(file, position, size) of batches of a start's recovery that are not the last."""
    found = []
    for log_dir in machine.log_dirs:
        for directory in sorted(log_dir.glob("queue-*")):
            log = max(directory.glob("*.log"))
            found += [(log, it.position, it.size) for it in batches_of(log)[-20:-1]]
    return found


def flip(log, position, bit):
    """Change one bit of a file."""
    with log.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))


def _is_in_sync_soon(system):
    try:
        system.until_in_sync(BY_ITSELF_S)
    except AssertionError:
        return False
    return True


def stop_in_good_order(scene):
    """SIGTERM of each in turn, as in a rolling restart; the last one stays down for a while."""
    machines = list(scene.system.machines.values())
    for machine in scene.chance.sample(machines, len(machines)):
        scene.system.heal()
        machine.stop()


def fail_a_log_directory(scene):
    """Each read and write of one of the leader's two directories is EIO from now on."""
    machine = scene.system.leader(scene.chance)
    disk = machine.disks["second"]
    disk.fail(machine.server.process)
    machine.repairs.insert(0, disk.restore)


def fill_the_disk(scene):
    """ENOSPC in one of the leader's two directories."""
    machine = scene.system.leader(scene.chance)
    filler = machine.disks["second"].mount_point / "filler"
    # Where the directory has failed already there is nothing to fill.
    with suppress(OSError):
        free = os.statvfs(filler.parent)
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - FREE_BYTES)
    machine.repairs.append(partial(filler.unlink, missing_ok=True))


def disturb_clients(scene):
    """A copier in the middle of a transaction is killed, or sleeps until it is fenced."""
    copiers = scene.clients["D"].copiers
    number = scene.chance.randrange(len(copiers.processes))
    if scene.chance.random() < 0.5:
        copiers.kill(number)
    else:
        copiers.processes[number].send_signal(signal.SIGSTOP)


def move_replicas_and_kill(scene):
    """Reassign all partitions in sequence, while brokers die by kill -9."""
    system, chance = scene.system, scene.chance
    session_s = system.session_ms / 1000
    machines = list(system.machines.values())
    for _ in range(MOVES):
        system.move_replicas(chance)
        time.sleep(chance.uniform(0, 0.5))
        victim = chance.choice(machines)
        victim.kill()
        time.sleep(session_s * chance.uniform(0, 1.2))
        # Two may be down at a time only if one of them has only just been started again.
        victim.heal()
        if chance.random() < 0.5:
            victim.await_start()
    for machine in machines:
        machine.await_start()


MANY = ("K3", "X", "M", "J")
AT_ONCE, LONG, BEYOND, WITHIN = (0.0, 0.1), (0.0, 2.5), (1.3, 2.5), (0.1, 0.5)
FAULTS = {
    it.number: it
    for it in (
        Fault("F1", kill_leader, LONG),
        Fault("F2", kill_controller, LONG, MANY),
        Fault("F3", kill_all, LONG),
        Fault("F4", pause_leader_beyond_session, BEYOND),
        Fault("F5", pause_leader_within_session, WITHIN),
        Fault("F6", cut_leader_from_followers, BEYOND, MANY, needs_network=True),
        Fault("F7", cut_leader_from_all, BEYOND, needs_network=True),
        Fault("F8", pause_followers, BEYOND, MANY),
        Fault("F9", kill_store, BEYOND, MANY),
        Fault("F10", cut_power_of_leader, LONG, disks=("data",), is_harmful=True,
              durable_on=("K1",)),
        Fault("F11", cut_power_of_all, LONG, disks=("data",), is_harmful=True,
              durable_on=("K1", "K3", "X", "M", "J")),
        Fault("F12", flip_bit, AT_ONCE, is_harmful=True),
        Fault("F13", stop_in_good_order, LONG),
        Fault("F14", fail_a_log_directory, LONG, disks=("second",), is_harmful=True,
              durable_on=("K1",)),
        Fault("F15", fill_the_disk, LONG, disks=("second",)),
        Fault("F16", disturb_clients, BEYOND),
        Fault("F17", move_replicas_and_kill, LONG, MANY),
    )
}  # fmt: skip
REASONS = {
    "F2": "a lone broker is its controller: F1",
    "F6": "a lone broker has no followers",
    "F8": "a lone broker has no followers",
    "F9": "a lone broker has its metadata itself",
    "F17": "a lone broker has nowhere to move a replica",
}
