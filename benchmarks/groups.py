"""Consumer groups of kctl and of Apache Kafka 2.7.2, side by side.

    python -m benchmarks.groups [--rounds N] [--seconds S] [--groups 1000]

Per broker, in turn: one group of 100 members rebalances; many groups of 10 members are formed, all
rebalance at once and commit; offset commits per second on 1, 16 and 100 connections, by the load
generator. Medians of the rounds and their ratio: above 1.0 kctl is faster. Seconds of the brokers'
processors beside them, as they are steadier than the clock.
"""

import argparse
import resource
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.group_members import Crowd
from benchmarks.measures import Bench, build_load, commits
from benchmarks.servers import ApacheKafka, Kctl, Server, zookeeper

MEMBERS = 100
GROUP_SIZE = 10
REBALANCES = 20
COMMITS = 10
CONNECTIONS = (1, 16, 100)

Figures = dict[str, float]


def one_large_group(bench: Bench, server: Server) -> Figures:
    """Milliseconds of a rebalance of 100 members: all join again, one of them assigns."""
    name = f"large-{bench.new_number()}"
    server.wait_for_coordinators([f"{name}-0"])
    crowd = Crowd(server.port, name, 1, MEMBERS)
    crowd.rebalance(0)
    cpu_s = server.cpu_s()
    took = [crowd.rebalance(1 + number) for number in range(REBALANCES)]
    cpu_s = server.cpu_s() - cpu_s
    crowd.leave()
    return {
        f"rebalance of {MEMBERS} members, ms": 1e3 * statistics.median(took),
        f"rebalance of {MEMBERS} members, CPU ms": 1e3 * cpu_s / REBALANCES,
    }


def many_groups(groups: int) -> Callable[[Bench, Server], Figures]:
    """Many groups at once: from no member to all assigned, a rebalance of all, commits of all."""

    def measure(bench: Bench, server: Server) -> Figures:
        name = f"many-{bench.new_number()}"
        server.wait_for_coordinators([f"{name}-{number}" for number in range(groups)])
        what = f"{groups} groups of {GROUP_SIZE}"
        with bench.topic(server) as topic:
            crowd = Crowd(server.port, name, groups, GROUP_SIZE)
            cpu_s = server.cpu_s()
            found = {
                f"{what} formed, s": crowd.rebalance(0),
                f"{what} rebalanced, s": crowd.rebalance(1),
                f"{what} commit {COMMITS} times, s": crowd.commit(topic, COMMITS),
            }
            found[f"{what}, CPU s"] = server.cpu_s() - cpu_s
            crowd.leave()
        return found

    return measure


def commits_per_second(connections: int) -> Callable[[Bench, Server], Figures]:
    """The load generator's commits."""

    def measure(bench: Bench, server: Server) -> Figures:
        found = commits(connections)(bench, server)
        what = f"commits on {connections} connections"
        return {
            f"{what}, 1/s": found["requests_per_second"],
            f"{what}, CPU us": found["cpu_us_per_request"],
        }

    return measure


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--groups", type=int, default=1_000)
    options = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    measures = [
        one_large_group,
        many_groups(options.groups),
        *map(commits_per_second, CONNECTIONS),
    ]
    found: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as name, zookeeper(Path(name) / "zk") as address:
        directory = Path(name)
        bench = Bench(directory, address, build_load(directory), seconds=options.seconds)
        servers = [Kctl(directory / "kctl"), ApacheKafka(directory / "apache", address)]
        try:
            for server in servers:
                server.start()
            for measure in measures:
                for _ in range(options.rounds):
                    for server in servers:
                        for what, figure in measure(bench, server).items():
                            row = found.setdefault(what, {})
                            row.setdefault(server.title, []).append(figure)
        finally:
            for server in servers:
                server.stop()
    for what, row in found.items():
        ours, theirs = (statistics.median(row[server.title]) for server in servers)
        ratio = ours / theirs if what.endswith("1/s") else theirs / ours
        line = f"{what:45} kctl {ours:10.2f}  Apache Kafka {theirs:10.2f}  {ratio:.2f}"
        print(line)  # noqa: T201


if __name__ == "__main__":
    main()
