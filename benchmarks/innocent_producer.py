"""An innocent producer: a process that produces single records while a broker is busy with other
things, and knows how long each of them took."""

import multiprocessing
import socket
import struct
import time
from collections.abc import Sequence
from ctypes import c_int
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized

from tests.serve import bad_frames
from tests.support.heavy_requests import produced

# The topic, which has to exist.
TOPIC = bad_frames.TOPIC
PAUSE_S = 0.001
TIMEOUT_S = 120
# Reported by a producer that cannot go on: nothing is gained by waiting for more samples.
ENOUGH = 1 << 30
# Forked: its modules are loaded, so its start does not disturb the measurement.
FORK = multiprocessing.get_context("fork")


class InnocentProducer:
    """Produces to a PLAINTEXT port from the moment it is created until `stop`."""

    def __init__(self, port: int) -> None:
        self._samples: Synchronized[int] = FORK.Value(c_int, 0)
        self._control, theirs = FORK.Pipe()
        self._process = FORK.Process(
            target=_produce, args=(port, theirs, self._samples), daemon=True
        )
        self._process.start()
        # Without it, the end of the process is seen as the end of the pipe.
        theirs.close()
        self._control.recv()

    @property
    def samples(self) -> int:
        """How many records were acknowledged."""
        return self._samples.value

    def stop(self) -> tuple[list[float], str]:
        """The milliseconds that each record took, in ascending order, and why it ended earlier, if
        it did."""
        self._control.send(None)
        waits, failure = self._control.recv()
        self._process.join()
        return sorted(waits), failure


def percentile(sorted_values: Sequence[float], percent: int) -> float:
    """The value that `percent` of 100 are not above."""
    return sorted_values[len(sorted_values) * percent // 100]


def _produce(port: int, control: Connection, samples: "Synchronized[int]") -> None:
    frame = produced(bytes(bad_frames.batch()))
    waits: list[float] = []
    failure = ""
    try:
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while not control.poll():
                begin = time.perf_counter()
                peer.sendall(frame)
                bad_frames.receive(peer, struct.unpack(">i", bad_frames.receive(peer, 4))[0])
                waits.append(1000 * (time.perf_counter() - begin))
                samples.value = len(waits)
                if len(waits) == 1:
                    control.send(None)
                time.sleep(PAUSE_S)
    except OSError as error:
        failure = f"the producer lost its connection: {error}"
        samples.value = ENOUGH
        if not waits:
            control.send(None)
    control.recv()
    control.send((waits, failure))
