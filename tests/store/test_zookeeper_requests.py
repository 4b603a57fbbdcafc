"""Requests to kazoo: sent in order, and never more than IN_FLIGHT_MAX at a time."""

import pytest

pytest.importorskip("kazoo")

from kctl.store.errors import ConnectionLossError
from kctl.store.zookeeper_requests import IN_FLIGHT_MAX, ZooKeeperRequests
from tests.support.virtual_runtime import virtual_runtime

CALLERS = 5


class Kazoo:
    """The handler and the client: keeps what it is asked until it answers."""

    def __init__(self):
        self.gate = self
        self.asked = []
        self._link = None

    def note_turn(self):
        pass

    def link_next(self, link):
        self._link = link

    def ask(self, name):
        if name.startswith("bad"):
            raise ValueError(name)
        self.asked.append((name, self._link))

    def answer(self, times=1):
        name, link = self.asked.pop(0)
        for _ in range(times):
            link(f"answer to {name}")


class World:
    def __init__(self):
        self.scheduler = virtual_runtime().scheduler
        self.kazoo = Kazoo()
        self.requests = ZooKeeperRequests(self.scheduler, self.kazoo)
        self.answers = []
        self.unsent = []

    def send(self, name):
        self.requests.send(
            lambda: self.kazoo.ask(name),
            self.answers.append,
            lambda error: self.unsent.append((name, type(error))),
        )

    def answer(self, times=1):
        self.kazoo.answer(times)
        self.scheduler.settle()

    @property
    def asked(self):
        return [name for name, _ in self.kazoo.asked]


def test_a_request_waits_until_kazoo_has_answered_another():
    world = World()
    names = [f"get {number}" for number in range(2 * IN_FLIGHT_MAX)]
    for name in names:
        world.send(name)
    assert world.asked == names[:IN_FLIGHT_MAX]
    world.answer()
    assert world.answers == ["answer to get 0"]
    assert world.asked == names[1 : IN_FLIGHT_MAX + 1]


def test_an_error_that_kazoo_sets_twice_makes_room_for_one():
    world = World()
    for number in range(2 * IN_FLIGHT_MAX):
        world.send(str(number))
    world.answer(times=2)
    assert len(world.asked) == IN_FLIGHT_MAX


def test_what_waits_when_the_connection_is_lost_is_not_sent():
    world = World()
    for number in range(IN_FLIGHT_MAX + 2):
        world.send(str(number))
    world.requests.drop(ConnectionLossError())
    last = [str(IN_FLIGHT_MAX), str(IN_FLIGHT_MAX + 1)]
    assert world.unsent == [(name, ConnectionLossError) for name in last]
    world.answer()
    assert len(world.asked) == IN_FLIGHT_MAX - 1


def test_a_path_that_kazoo_refuses_takes_no_room():
    world = World()
    for number in range(IN_FLIGHT_MAX):
        world.send(f"bad {number}")
    world.send("good")
    assert len(world.unsent) == IN_FLIGHT_MAX
    assert world.asked == ["good"]
