"""FetchSessionHandler: the fetcher's side of incremental fetch sessions (KIP-227). Pure.

The first request names every partition. While the leader keeps the session, later requests name
only changes: new partitions, other offsets, partitions to forget. After an error of the session or
a lost response, the next request is a full one.

Invariant: `_sent` is the content of the leader's session, if it has one.

Kafka 2.7: org.apache.kafka.clients.FetchSessionHandler.
"""

from collections.abc import Iterable, Mapping

from kctl.broker.fetch_session import EPOCH_MAX, INITIAL_EPOCH, INVALID_SESSION_ID
from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)


class FetchSessionHandler:
    """One session with one leader."""

    def __init__(self) -> None:
        self.session_id = INVALID_SESSION_ID
        self._epoch = INITIAL_EPOCH
        self._sent: dict[TopicPartition, FetchPartition] = {}

    def fill(self, request: FetchRequest, wanted: Mapping[TopicPartition, FetchPartition]) -> None:
        """Set the partitions of `request` so that it fetches the `wanted` ones."""
        request.session_id, request.session_epoch = self.session_id, self._epoch
        if self._epoch == INITIAL_EPOCH:
            named = wanted
        else:
            named = {tp: p for tp, p in wanted.items() if self._sent.get(tp) != p}
            forgotten = [tp for tp in self._sent if tp not in wanted]
            request.forgotten_topics_data = [
                ForgottenTopic(topic=topic, partitions=numbers)
                for topic, numbers in _by_topic(forgotten).items()
            ]
        # Only adjacent partitions share an entry: the leader fills its response in request order.
        topics: list[FetchTopic] = []
        for tp, partition in named.items():
            if not topics or topics[-1].topic != tp.topic:
                topics.append(FetchTopic(topic=tp.topic))
            topics[-1].partitions.append(partition)
        request.topics = topics
        self._sent = dict(wanted)

    def on_response(self, response: FetchResponse) -> bool:
        """Return whether the response is valid; if not, the next request begins a new session."""
        if response.error_code != ErrorCode.NONE:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.session_id = INVALID_SESSION_ID
            self._epoch = INITIAL_EPOCH
            return False
        self.session_id = response.session_id
        if response.session_id == INVALID_SESSION_ID:
            self._epoch = INITIAL_EPOCH
        else:
            self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1
        return True

    def on_error(self) -> None:
        """Begin a new session, because the state of the leader's session is unknown without a
        response."""
        self._epoch = INITIAL_EPOCH


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return topics
