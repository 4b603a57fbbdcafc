"""One ordered queue of requests per broker."""

import dataclasses

from kctl.broker.controller.channel_manager import ControllerChannelManager
from kctl.broker.controller.request_batch import BrokerRequest
from kctl.errors import UnreachableError
from kctl.model import BrokerInfo
from kctl.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from kctl.runtime.future import sleep
from kctl.runtime.recurring_warnings import PATIENCE_MS

OWN, OTHER = 1, 2


class ManualLink:
    """A link whose responses the test provides."""

    def __init__(self, runtime):
        self.runtime = runtime
        self.sent = []
        self.is_closed = False

    def send(self, request):
        future = self.runtime.scheduler.future()
        self.sent.append((request.controller_epoch, future))
        return future

    def close(self):
        self.is_closed = True


class ManualClock:
    """Its time passes when the test sets it."""

    now_ms = 0

    def monotonic_ms(self):
        return self.now_ms


def manager(cluster, deliver=None, clock=None):
    link, answers = ManualLink(cluster.runtime), []
    runtime = dataclasses.replace(cluster.runtime, clock=clock or cluster.runtime.clock)
    channels = ControllerChannelManager(runtime, OWN, deliver, lambda broker: link, answers.append)
    channels.add_broker(BrokerInfo(OWN, ()))
    channels.add_broker(BrokerInfo(OTHER, ()))
    return channels, link, answers


def request(broker_id, number):
    return BrokerRequest(broker_id, UpdateMetadataRequest(controller_epoch=number))


def numbers(answers):
    return [(answer.broker_id, answer.request.controller_epoch) for answer in answers]


def fail(cluster, link):
    """Fail the request that was sent last, and wait for its retry."""
    count = len(link.sent)
    link.sent[-1][1].set_error(UnreachableError("refused"))
    while len(link.sent) == count:
        cluster.run(sleep(cluster.runtime.scheduler, 1))


def test_a_broker_gets_the_next_request_after_its_response_to_the_last(cluster):
    channels, link, answers = manager(cluster)
    for number in (1, 2):
        channels.send(request(OTHER, number))
    assert [number for number, _ in link.sent] == [1]
    link.sent[0][1].set_result(UpdateMetadataResponse())
    cluster.settle()
    assert [number for number, _ in link.sent] == [1, 2]
    assert numbers(answers) == [(OTHER, 1)]


def test_a_failed_request_is_retried_before_the_next(cluster):
    channels, link, _answers = manager(cluster)
    for number in (1, 2):
        channels.send(request(OTHER, number))
    fail(cluster, link)
    assert [number for number, _ in link.sent] == [1, 1]
    assert cluster.trace.warnings == []


def test_a_broker_that_stays_away_is_reported_once(cluster):
    clock = ManualClock()
    channels, link, _answers = manager(cluster, clock=clock)
    channels.send(request(OTHER, 1))
    counts = []
    for _ in range(5):
        clock.now_ms += PATIENCE_MS // 2
        fail(cluster, link)
        counts.append(len(cluster.trace.warnings))
    assert counts == [0, 0, 1, 1, 1]

    (line,) = cluster.trace.warnings
    assert "will retry: refused" in line


def test_a_removed_broker_gets_no_requests_and_its_response_is_ignored(cluster):
    channels, link, answers = manager(cluster)
    for number in (1, 2):
        channels.send(request(OTHER, number))
    channels.remove_broker(OTHER)
    assert link.is_closed
    link.sent[0][1].set_result(UpdateMetadataResponse())
    channels.send(request(OTHER, 3))
    cluster.settle()
    assert answers == []
    assert len(link.sent) == 1


def test_the_own_broker_is_called_in_process_and_in_order(cluster):
    delivered = []

    def deliver(message):
        delivered.append(message.controller_epoch)
        return UpdateMetadataResponse()

    channels, _, answers = manager(cluster, deliver)
    for number in (1, 2, 3):
        channels.send(request(OWN, number))
    # Never within the controller's own turn.
    assert delivered == []
    cluster.settle()
    assert delivered == [1, 2, 3]
    assert numbers(answers) == [(OWN, 1), (OWN, 2), (OWN, 3)]


def test_the_own_broker_may_respond_later(cluster):
    later = cluster.runtime.scheduler.future()
    channels, _, answers = manager(cluster, lambda message: later)
    channels.send(request(OWN, 1))
    cluster.settle()
    assert answers == []
    later.set_result(UpdateMetadataResponse())
    cluster.settle()
    assert numbers(answers) == [(OWN, 1)]
