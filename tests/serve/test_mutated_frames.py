"""Mutated frames over real sockets: the broker serves on, and logs no error of its own.

KCTL_SOCKET_FRAMES says how many frames are sent (100,000: about half a minute).
"""

import os
import random  # noqa: TID251 - only ever seeded
import select
import socket
import struct

import pytest

from kctl.protocol.api_keys import ApiKey
from kctl.protocol.connection import ClientConnection
from tests.protocol.instances import Instances
from tests.protocol.mutations import mutate
from tests.serve import bad_frames
from tests.support.kctl_process import KctlBroker
from tests.support.pinger import Pinger

FRAMES = int(os.environ.get("KCTL_SOCKET_FRAMES", "20000"))
# How long what is neither answered nor refused is waited for: a join may wait for others.
PATIENCE_S = 0.05
# Connections tried at a time.
PEERS = 32
TIMEOUT_S = 120
# Requests that create as many partitions as they ask for, which takes longer than the test.
LEFT_OUT = {ApiKey.CREATE_PARTITIONS}
BODY = {"num_partitions": 1, "replication_factor": 1}


def small_numbers(field):
    """Topics as small as they get; the rest as drawn."""
    return BODY.get(field.name)


def seeds():
    made = []
    for api in ApiKey:
        if api in LEFT_OUT:
            continue
        for version in range(api.max_version + 1):
            message = Instances(version, rules=small_numbers).message(api.request_class, version)
            _, parts = ClientConnection("mutant").send_request(message, version)
            made.append(b"".join(parts)[4:])
    return made


def send_all(address, frames):
    """Send each frame over a connection of its own; how many were answered, closed, waiting."""
    host, _, port = address.rpartition(":")
    peers = []
    for data in frames:
        peer = socket.create_connection((host, int(port)), TIMEOUT_S)
        peer.sendall(struct.pack(">i", len(data)) + data)
        peers.append(peer)
    answered = closed = 0
    waiting = set(peers)
    while waiting:
        ready = select.select(waiting, [], [], PATIENCE_S)[0]
        if not ready:
            break
        for peer in ready:
            waiting.discard(peer)
            try:
                is_answered = bool(peer.recv(4))
            except ConnectionError:
                is_answered = False
            answered += is_answered
            closed += not is_answered
    for peer in peers:
        peer.close()
    return answered, closed, len(waiting)


@pytest.mark.slow
def test_mutated_frames_harm_no_other_client(tmp_path):
    rng = random.Random(2_7)
    frames = seeds()
    totals = [0, 0, 0]
    with KctlBroker(tmp_path) as broker:
        with Pinger(broker.address) as pinger:
            for _ in range(0, FRAMES, PEERS):
                batch = [mutate(rng.choice(frames), rng) for _ in range(PEERS)]
                for place, count in enumerate(send_all(broker.address, batch)):
                    totals[place] += count
            # Raises if the broker no longer answers.
            pinger.worst_ms()
        fine = next(it for it in bad_frames.FRAMES if it.name == "half-close behind a request")
        # Not of all its topics alike: requests of a controller were among those above.
        assert bad_frames.visible(broker.address, fine).startswith("answered 0")
    errors = broker.errors
    assert "Unexpected error" not in errors, errors[errors.index("Unexpected error") :][:3000]
    answered, closed, waiting = totals
    assert answered > FRAMES // 10
    assert closed > FRAMES // 10
    assert waiting < FRAMES // 10
