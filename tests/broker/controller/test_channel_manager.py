"""One ordered queue of requests per broker."""

from kctl.broker.controller.channel_manager import ControllerChannelManager
from kctl.broker.controller.request_batch import BrokerRequest
from kctl.errors import UnreachableError
from kctl.model import BrokerInfo
from kctl.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
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


def manager(cluster, deliver=None):
    link, answers = ManualLink(cluster.runtime), []
    channels = ControllerChannelManager(
        cluster.runtime, OWN, deliver, lambda broker: link, answers.append
    )
    channels.add_broker(BrokerInfo(OWN, ()))
    channels.add_broker(BrokerInfo(OTHER, ()))
    return channels, link, answers


def request(broker_id, number):
    return BrokerRequest(broker_id, UpdateMetadataRequest(controller_epoch=number))


def numbers(answers):
    return [(answer.broker_id, answer.request.controller_epoch) for answer in answers]


def pause(cluster, delay_ms):
    future = cluster.runtime.scheduler.future()
    cluster.runtime.scheduler.call_later(delay_ms, future.set_result, None)
    cluster.run(future)


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
    link.sent[0][1].set_error(UnreachableError("refused"))
    pause(cluster, 150)
    assert [number for number, _ in link.sent] == [1, 1]
    assert cluster.trace.warnings == []


def test_a_broker_that_stays_away_is_reported_once(cluster):
    channels, link, _answers = manager(cluster)
    channels.send(request(OTHER, 1))
    for _ in range(PATIENCE_MS // 500 + 3):
        link.sent[-1][1].set_error(UnreachableError("refused"))
        pause(cluster, 500)

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
