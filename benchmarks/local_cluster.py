"""Three brokers with their metadata store: how soon they are ready, and what they take of memory.

    python -m benchmarks.local_cluster --rounds 3

`kctl serve --brokers 3` beside ZooKeeper and three brokers of Apache Kafka 2.7.2, which are
started together as soon as ZooKeeper answers, with the flags of its start scripts. Ready: every
broker names a controller and three brokers. Memory is the sum of all processes, pages that they
share counted once (Pss), five seconds later, idle. Rounds alternate; medians and their ratio are
printed.
"""

import argparse
import contextlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.servers import KAFKA_VERSION, SERVER_FLAGS, START_TIMEOUT_S, Client, stop_process
from kctl.protocol.messages.metadata import MetadataRequest
from tests.support.apache_kafka import free_port, java_command

BROKERS = 3
GOAL = 1 / 8
IDLE_S = 5


@dataclass
class Started:
    """One cluster that was started."""

    seconds: float
    megabytes: float
    cpu_s: float


def is_ready(port: int) -> bool:
    """Whether the broker there knows a controller and all brokers."""
    try:
        with contextlib.closing(Client(port)) as client:
            answer = client.ask(MetadataRequest(topics=[]), 8)
    except (OSError, ConnectionError):
        return False
    return answer.controller_id >= 0 and len(answer.brokers) == BROKERS


def with_children(pid: int) -> list[int]:
    """A process and those that it started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


def proportional_mb(pid: int) -> float:
    """A process's memory in 10^6 bytes; of pages shared by n processes an n-th."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError("no Pss")


def cpu_s(pid: int) -> float:
    """Processor time used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


@contextmanager
def running(directory: Path, *command: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that is stopped at the end."""
    with (directory / "output").open("ab") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        yield process
    finally:
        stop_process(process)


def measured(begin: float, ports: list[int], processes: "list[subprocess.Popen[bytes]]") -> Started:
    """Wait until all are ready, then for quiet."""
    waiting = list(ports)
    while waiting:
        waiting = [port for port in waiting if not is_ready(port)]
        if time.perf_counter() - begin > START_TIMEOUT_S:
            raise RuntimeError(f"no broker on {waiting}")
        time.sleep(0.005)
    seconds = time.perf_counter() - begin
    pids = [pid for process in processes for pid in with_children(process.pid)]
    used_s = sum(map(cpu_s, pids))
    time.sleep(IDLE_S)
    return Started(seconds, sum(map(proportional_mb, pids)), used_s)


def start_kctl(directory: Path) -> Started:
    """`kctl serve --brokers 3`."""
    first = free_port()
    begin = time.perf_counter()
    command = [
        *(sys.executable, "-m", "kctl", "serve", "--brokers", str(BROKERS)),
        *("--port", str(first), "--data-dir", str(directory / "data")),
    ]
    with running(directory, *command) as process:
        return measured(begin, [first + index for index in range(BROKERS)], [process])


def start_apache(directory: Path) -> Started:
    """ZooKeeper, then three brokers."""
    zookeeper, ports = free_port(), [free_port() for _ in range(BROKERS)]
    config = directory / "zoo.cfg"
    config.write_text(
        f"dataDir={directory / 'data'}\nclientPort={zookeeper}\nclientPortAddress=127.0.0.1\n"
        "maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=*\n"
    )
    main_class = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    command = java_command(KAFKA_VERSION, main_class, heap="512M", flags=SERVER_FLAGS)
    begin = time.perf_counter()
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(running(directory, *command, str(config)))]
        while not answers(zookeeper):
            time.sleep(0.01)
        for index, port in enumerate(ports):
            processes.append(
                stack.enter_context(
                    running(directory, *apache_command(directory, index, port, zookeeper))
                )
            )
        return measured(begin, ports, processes)


def answers(port: int) -> bool:
    """Whether a ZooKeeper serves."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as peer:
        peer.sendall(b"srvr")
        return b"Mode" in peer.recv(1000)
    return False


def apache_command(directory: Path, index: int, port: int, zookeeper: int) -> list[str]:
    """What starts one broker."""
    path = directory / f"server-{index}.properties"
    path.write_text(
        f"broker.id={index}\nlisteners=PLAINTEXT://127.0.0.1:{port}\n"
        f"log.dirs={directory / f'logs-{index}'}\nzookeeper.connect=127.0.0.1:{zookeeper}\n"
    )
    flags = ("-Xms1G", *SERVER_FLAGS)
    command = java_command(KAFKA_VERSION, "kafka.Kafka", level="INFO", heap="1G", flags=flags)
    return [*command, str(path)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    results: dict[str, list[Started]] = {"kctl": [], "Apache Kafka": []}
    for _ in range(rounds):
        for name, start in (("kctl", start_kctl), ("Apache Kafka", start_apache)):
            with tempfile.TemporaryDirectory() as directory:
                results[name].append(start(Path(directory)))
    for title, attribute, unit in (
        ("Three brokers with their store: ready after", "seconds", "s"),
        ("Processor time until then", "cpu_s", "s"),
        ("Resident memory, idle", "megabytes", "MB"),
    ):
        ours, theirs = (
            statistics.median(getattr(each, attribute) for each in started)
            for started in results.values()
        )
        verdict = "met" if ours / theirs <= GOAL else "not met"
        print(  # noqa: T201
            f"{title}: kctl {ours:.2f} {unit}, Apache Kafka {KAFKA_VERSION} {theirs:.2f} {unit}:"
            f" {ours / theirs:.3f} of it (goal {GOAL}: {verdict})"
        )


if __name__ == "__main__":
    main()
