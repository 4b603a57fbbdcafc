"""Mutated frames of all 54 APIs decode, or raise the error for corrupt frames, and nothing else.

KCTL_MUTATED_FRAMES sets how many frames the slow test mutates (a million: one minute).
"""

import os
import random  # noqa: TID251 - only ever seeded

import pytest

from kctl.errors import CorruptDataError
from kctl.protocol.codec import decode, encode
from kctl.protocol.connection import ClientConnection, read_request
from tests.protocol.instances import Instances, all_messages
from tests.protocol.mutations import mutate

MESSAGES = list(all_messages())
FEW = 5_000
MANY = int(os.environ.get("KCTL_MUTATED_FRAMES", "100000"))
# Rounds after which new frames are built: building one takes longer than decoding it.
ROUNDS_PER_SEED = 20


def frame(api, cls, version, seed):
    """A request with its header, or the body of a response."""
    message = Instances(seed).message(cls, version)
    if cls is api.request_class:
        _, parts = ClientConnection(f"client-{seed}").send_request(message, version)
        return b"".join(parts)[4:]
    return b"".join(encode(message, version))


def read_broken(count, seed):
    """Break `count` frames, each message and version in turn; how many were refused."""
    rng = random.Random(seed)
    refused = 0
    frames = []
    for number in range(count):
        turn, place = divmod(number, len(MESSAGES))
        if place == 0 and turn % ROUNDS_PER_SEED == 0:
            frames = [frame(*each, seed + turn) for each in MESSAGES]
        api, cls, version = MESSAGES[place]
        broken = mutate(frames[place], rng)
        try:
            if cls is api.request_class:
                read_request(broken)
            else:
                decode(cls, version, broken)
        except CorruptDataError:
            refused += 1
    return refused


def test_all_apis_are_broken():
    assert len({api for api, _, _ in MESSAGES}) == 54
    assert len(MESSAGES) < FEW


def test_broken_frames_are_read_or_corrupt_and_nothing_else():
    assert 0 < read_broken(FEW, seed=27) < FEW


@pytest.mark.slow
def test_many_broken_frames_are_read_or_corrupt_and_nothing_else():
    assert 0 < read_broken(MANY, seed=2_7_2) < MANY
