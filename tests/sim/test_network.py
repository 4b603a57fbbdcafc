"""The simulated network loses bytes only as TCP does: all after the first that are lost."""

from kctl.simulation.network import SimListener, SimNetwork, Weather
from kctl.simulation.runtime import SimEntropy
from kctl.simulation.scheduler import NodeScheduler, SimScheduler


class Peer:
    """Collects what arrives."""

    def __init__(self):
        self.received = b""
        self.is_lost = False
        self._buffer = bytearray(100)

    def get_buffer(self):
        return memoryview(self._buffer)

    def buffer_updated(self, count):
        self.received += self._buffer[:count]

    def connection_lost(self, error):
        self.is_lost = True


def connected(network, world):
    """Return a transport, its receiver, and the receiver at the other end."""
    server, client = (
        NodeScheduler(world, name, SimEntropy(1, "test")) for name in ("server", "client")
    )
    here, there = Peer(), Peer()
    network.listen(SimListener("server", 9092, server, lambda transport: there))
    future = network.connect(client, "client", ("server", 9092), lambda transport: here, 1_000)
    world.run_until(lambda: future.done, 2_000)
    return future.result(), here, there


def test_nothing_that_is_sent_after_a_reset_arrives():
    world = SimScheduler()
    network = SimNetwork(SimEntropy(1, "test"), Weather(split_chance=0))
    transport, here, there = connected(network, world)
    transport.send([b"first "])
    network.weather = Weather(reset_chance=1000)
    transport.send([b"second "])
    network.weather = Weather(split_chance=0)
    transport.send([b"third "])
    world.run_until(lambda: here.is_lost and there.is_lost, 2_000)
    assert there.received in (b"", b"first ")
    assert here.is_lost
    assert there.is_lost
