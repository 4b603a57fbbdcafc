"""FetchSessionHandler: the fetcher's side of incremental fetch sessions (KIP-227). Pure.

The first request names every partition. While the leader keeps the session, later requests name
only changes: new partitions, other offsets, partitions to forget. After an error of the session or
a lost response, the next request is a full one.

Invariant: `_sent` is the content of the leader's session, if it has one.

Kafka 2.7: org.apache.kafka.clients.FetchSessionHandler.
"""

from collections.abc import Container
from typing import Final

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
from kctl.work import Work

# Of a request, in one turn of the loop: one or two milliseconds.
PARTITIONS_PER_TURN: Final = 500
# Errors of the session alone: the next request, a full one, may be sent at once.
SESSION_ERRORS: Final = frozenset(
    {ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH}
)


class FetchSessionHandler:
    """One session with one leader."""

    def __init__(self) -> None:
        self.session_id = INVALID_SESSION_ID
        self._epoch = INITIAL_EPOCH
        self._sent: dict[TopicPartition, FetchPartition] = {}

    def fill(
        self, request: FetchRequest, wanted: dict[TopicPartition, FetchPartition]
    ) -> Work[None]:
        """Set the partitions of `request` so that it fetches the `wanted` ones, some in each turn;
        `wanted` is kept."""
        request.session_id, request.session_epoch = self.session_id, self._epoch
        is_full = self._epoch == INITIAL_EPOCH
        # Only adjacent partitions share an entry: the leader fills its response in request order.
        topics: list[FetchTopic] = []
        for number, (tp, partition) in enumerate(wanted.items(), 1):
            if number % PARTITIONS_PER_TURN == 0:
                yield
            if is_full or self._sent.get(tp) != partition:
                if not topics or topics[-1].topic != tp.topic:
                    topics.append(FetchTopic(topic=tp.topic))
                topics[-1].partitions.append(partition)
        request.topics = topics
        if not is_full:
            request.forgotten_topics_data = yield from self._forgotten(wanted)
        self._sent = wanted

    def _forgotten(self, wanted: Container[TopicPartition]) -> Work[list[ForgottenTopic]]:
        topics: dict[str, list[int]] = {}
        for number, tp in enumerate(self._sent, 1):
            if number % PARTITIONS_PER_TURN == 0:
                yield
            if tp not in wanted:
                topics.setdefault(tp.topic, []).append(tp.partition)
        return [ForgottenTopic(topic=topic, partitions=found) for topic, found in topics.items()]

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
