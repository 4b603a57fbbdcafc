"""The clusters of a cell: K1 is one kctl, K3 three kctl on a ZooKeeper, X two brokers of Apache
Kafka 2.7.2 and one of kctl on a ZooKeeper. Faults act on their machines; `heal` undoes them all.
"""

import os
import shutil
import signal
import tempfile
import time
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from kctl.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kctl.protocol.messages.metadata import MetadataRequest
from tests.support import apache_kafka, power_cut, zookeeper
from tests.support.apache_kafka import ApacheBroker
from tests.support.broker_client import BrokerClient
from tests.support.kctl_process import KctlBroker
from tests.support.power_cut import CutError, PowerCutFileSystem
from tests.torture.hosts import STORE, Network, OneAddress, why_no_network

PATIENCE_S = 180
PARTITIONS = 3
PORT = 9092
# Broker ids by system, and which of them run Apache Kafka 2.7.2.
SYSTEMS = {"K1": (1,), "K3": (1, 2, 3), "X": (1, 2, 3), "M": (1, 2, 3), "J": (1, 2, 3)}
APACHE = {"X": (2, 3), "M": (3,), "J": (1, 2, 3)}
SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "log.segment.bytes": "1000000",
    "offsets.topic.num.partitions": "3",
    "replica.lag.time.max.ms": "3000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.state.log.num.partitions": "3",
}
DURABLE = {"log.flush.interval.messages": "1"}
# What a broker of kctl says when something went wrong that it did not expect.
ALARMS = ("Traceback", "Unexpected")


def until(condition, what, patience_s=PATIENCE_S):
    """AssertionError if it never comes to be."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"never came to be: {what}"
        time.sleep(0.1)


class Machine:
    """One broker with its disks; all that is done to it is undone by `heal`."""

    def __init__(self, broker_id, server, disks):
        self.broker_id = broker_id
        self.server = server
        # By the name of the directory where they are mounted.
        self.disks = disks
        self.is_kctl = isinstance(server, KctlBroker)
        self.is_paused = False
        # What else must be done before a start: calls without arguments.
        self.repairs = []
        # Seconds from each start after a kill until it was ready.
        self.starts = []
        self.deaths = []
        self._is_down = True
        # None: it was ready since.
        self._launched = None

    @property
    def log_dirs(self):
        """Return the brokers that exist."""
        found = [self.server.directory / "data" / "logs", self.server.directory / "second" / "logs"]
        return [path for path in found if path.exists()]

    def is_up(self):
        return not (self._is_down or self.is_paused) and self.server.process.poll() is None

    def kill(self):
        """kill -9."""
        if not self._is_down:
            self._note_death()
            self.server.kill()
            self._is_down = True

    def pause(self):
        """Pause the broker with SIGSTOP."""
        if self.is_up():
            self.server.process.send_signal(signal.SIGSTOP)
            self.is_paused = True

    def resume(self):
        if self.is_paused:
            self.server.process.send_signal(signal.SIGCONT)
            self.is_paused = False

    def stop(self):
        """Stop the broker with SIGTERM, and wait for its end."""
        if not self._is_down:
            self._note_death()
            self.server.stop()
            self._is_down = True

    def cut_power(self):
        if not self._is_down:
            power_cut.cut_power(self.server.process, *self.disks.values())
            # Before what others want to do to the files that are there again.
            self.repairs[:0] = [disk.restore for disk in self.disks.values()]
            self._is_down = True

    def _note_death(self):
        """Record brokers of kctl that exited without being stopped."""
        code = self.server.process.poll()
        if code is not None and self.is_kctl:
            self.deaths.append(f"broker {self.broker_id} exited by itself: {code}")

    def heal(self):
        """Up again, with its disks; one whose disk failed is killed for that."""
        self.resume()
        if self.repairs:
            self.kill()
            for repair in self.repairs:
                repair()
            self.repairs.clear()
        if self._is_down or self.server.process.poll() is not None:
            self.launch()

    def launch(self):
        if not self._is_down:
            self._note_death()
        self._is_down = False
        self._launched = time.monotonic()
        self.server.launch()

    def await_start(self):
        """Apache Kafka ends where its old session lives on: it is started again and again."""
        deadline = time.monotonic() + PATIENCE_S
        while self._launched is not None:
            try:
                self.server.wait_until_ready()
                self.starts.append(time.monotonic() - self._launched)
                self._launched = None
            except RuntimeError:
                is_over = self.server.process.poll() is not None
                if (is_over and self.is_kctl) or time.monotonic() > deadline:
                    raise
                if is_over:
                    self.server.launch()

    def alarms(self):
        """Lines in which it says what it should never have to."""
        if not self.is_kctl:
            return self.deaths
        said = self.server.errors.splitlines()
        lines = [line for line in said if any(word in line for word in ALARMS)]
        return self.deaths + [f"broker {self.broker_id}: {line}" for line in lines]


class System:
    """A running cluster; `machines` by broker id."""

    def __init__(self, kind, directory, chance, *, session_ms, disks=(), durable=False):
        self.kind = kind
        self.session_ms = session_ms
        self.topics = []
        self.machines = {}
        self._directory = directory
        self._disks = disks
        self._stack = ExitStack()
        self._is_durable = durable
        self._settings = self._settings_of()
        try:
            self._build()
            self._start(chance)
        except BaseException:
            self.close()
            raise

    def _settings_of(self):
        several = len(SYSTEMS[self.kind]) > 1
        return {
            **SETTINGS,
            **(DURABLE if self._is_durable else {}),
            "zookeeper.session.timeout.ms": str(self.session_ms),
            "min.insync.replicas": "2" if several else "1",
            "offsets.topic.replication.factor": "3" if several else "1",
            "transaction.state.log.replication.factor": "3" if several else "1",
            "transaction.state.log.min.isr": "2" if several else "1",
        }

    def _build(self):
        numbers = SYSTEMS[self.kind]
        self.network = OneAddress() if why_no_network() else Network(numbers)
        self._stack.callback(self.network.close)
        self.zookeeper, self._is_store_down = None, False
        self._is_moved = False
        if len(numbers) > 1:
            directory = self._directory / "zookeeper"
            directory.mkdir(parents=True)
            where = {"host": self.network.address(STORE), "prefix": self.network.command(STORE)}
            started = zookeeper.running_zookeeper(directory, tick_ms=200, **where)
            self.zookeeper = self._stack.enter_context(started)
        for number in numbers:
            self.machines[number] = self._machine(number)

    def _machine(self, number):
        home = self._directory / str(number)
        disks = {}
        for name in self._disks:
            kind = "xfs" if shutil.which("mkfs.xfs") and number % 2 else "ext4"
            disk = PowerCutFileSystem(kind, self._directory / f"{number}-{name}", home / name)
            disks[name] = self._stack.enter_context(disk)
        settings = dict(self._settings)
        if "second" in self._disks:
            settings["log.dirs"] = f"{home}/data/logs,{home}/second/logs"
        where = {"host": self.network.address(number), "prefix": self.network.command(number)}
        port = PORT if where["prefix"] else apache_kafka.free_port()
        if number in APACHE.get(self.kind, ()):
            settings.setdefault("log.dirs", f"{home}/data/logs")
            settings["zookeeper.connection.timeout.ms"] = str(1000 * PATIENCE_S)
            address = self.zookeeper.address
            server = ApacheBroker(
                home, address, broker_id=number, settings=settings, port=port, **where
            )
        else:
            settings["broker.id"] = str(number)
            words = [word for it in settings.items() for word in ("-c", "=".join(it))]
            words += ["--durable"] if self._is_durable else []
            if self.zookeeper:
                words += ["--zookeeper", self.zookeeper.address]
            server = KctlBroker(home, *words, port=port, **where)
        return Machine(number, server, disks)

    def _start(self, chance):
        """One is first, and controller."""
        self._stack.callback(self._kill_all)
        first, *others = chance.sample(sorted(self.machines.values(), key=_id), len(self.machines))
        first.launch()
        first.await_start()
        for machine in others:
            machine.launch()
        for machine in others:
            machine.await_start()
        for machine in self.machines.values():
            machine.starts.clear()
        servers = ",".join(it.server.address for it in self.machines.values())
        self.address = servers
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})

    # --- what it is asked --------------------------------------------------------------------

    def create(self, *names):
        """Topics with as many replicas as there are brokers."""
        new = [NewTopic(name, PARTITIONS, len(self.machines)) for name in names]
        for made in self._admin.create_topics(new, operation_timeout=30).values():
            made.result(PATIENCE_S)
        self.topics += names
        self.until_in_sync()

    def metadata(self):
        """Return None while no broker answers."""
        try:
            return self._admin.list_topics(timeout=5)
        except KafkaException:
            return None

    def until_in_sync(self, patience_s=PATIENCE_S):
        """Each broker says that all replicas of all topics are in sync, the internal ones too."""
        lagging = []

        def no_replica_lags():
            lagging[:] = [words for it in self.machines.values() for words in self._lagging(it)]
            return not lagging

        until(no_replica_lags, lagging, patience_s)

    def _lagging(self, machine):
        """Describe what keeps the cluster from being healthy, as a broker sees it."""
        try:
            with BrokerClient(machine.server.address) as client:
                found = client.ask(MetadataRequest(topics=None), 8)
        except (OSError, ConnectionError) as error:
            return [f"broker {machine.broker_id}: {error}"]
        lagging = [
            f"broker {machine.broker_id}: {topic.name}-{it.partition_index} is led by "
            f"{it.leader_id}, in sync {it.isr_nodes}"
            for topic in found.topics
            for it in topic.partitions
            if it.leader_id not in self.machines or len(it.isr_nodes) < len(self.machines)
        ]
        if len(found.brokers) < len(self.machines):
            lagging.append(f"broker {machine.broker_id} knows of {len(found.brokers)}")
        there = {topic.name for topic in found.topics}
        return lagging + [f"no topic {it}" for it in self.topics if it not in there]

    def leader(self, chance):
        """Return the leader of a random partition, or any live machine if it is unknown."""
        topic, number = chance.choice(self.topics), chance.randrange(PARTITIONS)
        found = self.metadata()
        leader = -1
        if found is not None and topic in found.topics:
            leader = found.topics[topic].partitions[number].leader
        return self._this_or_any(leader, chance)

    def controller(self, chance):
        found = self.metadata()
        return self._this_or_any(found.controller_id if found else -1, chance)

    def _this_or_any(self, broker_id, chance):
        if not any(it.is_up() for it in self.machines.values()):
            self.heal()
        machine = self.machines.get(broker_id)
        if machine is not None and machine.is_up():
            return machine
        return chance.choice([it for it in self.machines.values() if it.is_up()])

    def others(self, machine):
        return [it for it in self.machines.values() if it is not machine]

    # --- the end of faults -------------------------------------------------------------------

    def heal(self):
        """Undo all faults; returns when all brokers are ready and all replicas in sync."""
        self.network.join()
        if self._is_store_down:
            self.zookeeper.start()
            self._is_store_down = False
        for machine in self.machines.values():
            machine.heal()
        for machine in self.machines.values():
            machine.await_start()
        self._move_back()
        self.until_in_sync()

    def move_replicas(self, chance):
        """Ask for new replicas of all partitions of the topics, drawn, at least two of each. What
        the controller refuses, or does not hear, stays as it is."""
        self._is_moved = True
        numbers = sorted(self.machines)
        wanted = {
            topic: [chance.sample(numbers, chance.choice([2, 2, 3])) for _ in range(PARTITIONS)]
            for topic in self.topics
        }
        with suppress(OSError, ConnectionError):
            self._reassign(wanted)

    def _reassign(self, wanted):
        """Whether the controller accepted it all."""
        found = self.metadata()
        machine = self.machines.get(found.controller_id) if found is not None else None
        if machine is None or not machine.is_up():
            return False
        topics = [
            ReassignableTopic(
                name=topic,
                partitions=[
                    ReassignablePartition(partition_index=number, replicas=replicas)
                    for number, replicas in enumerate(each)
                ],
            )
            for topic, each in wanted.items()
        ]
        with BrokerClient(machine.server.address) as client:
            answer = client.ask(AlterPartitionReassignmentsRequest(topics=topics), 0)
        codes = [it.error_code for topic in answer.responses for it in topic.partitions]
        return answer.error_code == 0 and not any(codes)

    def _move_back(self):
        """Replicas of all partitions on all brokers, as they were created."""
        if not self._is_moved:
            return
        wanted = {topic: [sorted(self.machines)] * PARTITIONS for topic in self.topics}

        def is_accepted():
            try:
                return self._reassign(wanted)
            except (OSError, ConnectionError):
                return False

        until(is_accepted, "the controller accepts a reassignment")
        self._is_moved = False

    def kill_store(self):
        """kill -9 of ZooKeeper."""
        self.zookeeper.kill()
        self._is_store_down = True

    def stop(self):
        """Stop the brokers cleanly, in sequence."""
        for machine in self.machines.values():
            machine.stop()

    def keep(self, row):
        """Of a cell that failed: what is on disks that will be gone."""
        for machine in self.machines.values():
            for name, disk in machine.disks.items():
                if not row.is_good and os.path.ismount(disk.mount_point):
                    kept = machine.server.directory / f"{name}-kept"
                    with suppress(OSError, shutil.Error):
                        shutil.copytree(disk.mount_point, kept)

    def _kill_all(self):
        for machine in self.machines.values():
            if machine.server.process is not None and machine.server.process.poll() is None:
                machine.server.kill()

    def close(self):
        with suppress(OSError):
            self._stack.close()


def _id(machine):
    return machine.broker_id


@cache
def why_no_disks():
    """Why the power of disks cannot be cut here; None if it can."""
    if (reason := power_cut.why_not("ext4")) is not None:
        return reason
    try:
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            with PowerCutFileSystem("ext4", directory / "image", directory / "mounted"):
                return None
    except CutError as error:
        return str(error)


def why_no_system(kind):
    """Why there can be no such cluster here; None if there can."""
    if len(SYSTEMS[kind]) > 1 and (reason := zookeeper.why_not()) is not None:
        return reason
    if kind in APACHE and apache_kafka.libs() is None:
        return "no jars of Apache Kafka 2.7.2: python tests/support/apache_kafka.py 2.7.2"
    return None
