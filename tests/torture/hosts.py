"""Where the brokers of a cell run: each has an address, a cable and disks of its own.

With root, every host is a network namespace on a bridge, and a cut is a pair of routes that drop
packets silently, as a dead switch does. Without root, all hosts share 127.0.0.1.
"""

import os
import shutil
import subprocess
from functools import cache

CLIENTS = 254
STORE = 253


@cache
def why_no_network():
    """Why hosts cannot be cut from each other here; None if they can."""
    if os.geteuid() != 0:
        return "needs root: hosts are network namespaces"
    for tool in ("ip", "nsenter"):
        if shutil.which(tool) is None:
            return f"needs the command {tool}"
    try:
        Network(()).close()
    except subprocess.CalledProcessError as error:
        return f"no network namespaces here: {error.stderr.decode().strip()}"
    return None


class OneAddress:
    """All on 127.0.0.1, which cannot be cut."""

    def address(self, number):
        return "127.0.0.1"

    def command(self, number):
        return ()

    def join(self):
        """Nothing was cut."""

    def close(self):
        """Nothing was made."""


class Network:
    """Hosts by number: those of brokers, STORE and CLIENTS, which is where this process runs."""

    def __init__(self, numbers):
        mark = os.getpid()
        self._bridge = f"kt{mark}"
        self._subnet = f"10.{128 + (mark >> 8) % 100}.{mark % 256}"
        self._hosts = (*numbers, STORE)
        # Pairs of (where, to whom) that are swallowed.
        self._cuts = set()
        _run("ip", "link", "add", self._bridge, "type", "bridge")
        _run("ip", "address", "add", f"{self.address(CLIENTS)}/24", "dev", self._bridge)
        _run("ip", "link", "set", self._bridge, "up")
        for number in self._hosts:
            self._add(number)

    def _add(self, number):
        space, cable = self._space(number), f"{self._bridge}-{number}"
        _run("ip", "netns", "add", space)
        _run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
        _run("ip", "link", "set", cable, "master", self._bridge, "up")
        self._run_on(number, "ip", "link", "set", "lo", "up")
        self._run_on(number, "ip", "address", "add", f"{self.address(number)}/24", "dev", "eth0")
        self._run_on(number, "ip", "link", "set", "eth0", "up")

    def address(self, number):
        return f"{self._subnet}.{number}"

    def command(self, number):
        """What a command line begins with that runs there."""
        return ("nsenter", f"--net=/run/netns/{self._space(number)}")

    def cut(self, number, others):
        """Whatever is sent between the two is swallowed, until `join`."""
        for other in others:
            for here, there in ((number, other), (other, number)):
                if (here, there) not in self._cuts:
                    self._cuts.add((here, there))
                    self._run_on(here, *_swallow("add", self.address(there)))

    def join(self):
        for here, there in sorted(self._cuts):
            self._run_on(here, *_swallow("del", self.address(there)))
        self._cuts.clear()

    def close(self):
        self.join()
        for number in self._hosts:
            _run("ip", "netns", "del", self._space(number))
        _run("ip", "link", "del", self._bridge)

    def _space(self, number):
        return f"{self._bridge}-{number}"

    def _run_on(self, number, *command):
        _run(*(self.command(number) if number != CLIENTS else ()), *command)


def _swallow(verb, address):
    return ("ip", "route", verb, "blackhole", f"{address}/32")


def _run(*command):
    subprocess.run(command, check=True, capture_output=True)
