"""FetchSessionHandler: the asking side of incremental fetch sessions (KIP-227). Pure.

The first request names every partition; while the leader keeps the session, later ones name only
what changed: new partitions, other offsets, partitions to forget. Any error of the session, or a
lost answer, begins again with a full request.

Invariant: `_sent` is what the leader's session holds, if there is one.

Kafka 2.7: org.apache.kafka.clients.FetchSessionHandler.
"""

from collections.abc import Iterable, Mapping

from kctl.model import TopicPartition
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)

INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0
_EPOCH_MAX = 2**31 - 1


class FetchSessionHandler:
    """One session with one leader."""

    def __init__(self) -> None:
        self.session_id = INVALID_SESSION_ID
        self._epoch = INITIAL_EPOCH
        self._sent: dict[TopicPartition, FetchPartition] = {}

    def fill(self, request: FetchRequest, wanted: Mapping[TopicPartition, FetchPartition]) -> None:
        """Have `request` ask for the `wanted` partitions."""
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
        topics: dict[str, FetchTopic] = {}
        for tp, partition in named.items():
            topic = topics.get(tp.topic)
            if topic is None:
                topic = topics[tp.topic] = FetchTopic(topic=tp.topic)
            topic.partitions.append(partition)
        request.topics = list(topics.values())
        self._sent = dict(wanted)

    def on_response(self, response: FetchResponse) -> bool:
        """Whether the answer is good; if not, the next request begins a new session."""
        if response.error_code != ErrorCode.NONE:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.session_id = INVALID_SESSION_ID
            self._epoch = INITIAL_EPOCH
            return False
        self.session_id = response.session_id
        if response.session_id == INVALID_SESSION_ID:
            self._epoch = INITIAL_EPOCH
        else:
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1
        return True

    def on_error(self) -> None:
        """No answer came: what the leader knows of us is not known."""
        self._epoch = INITIAL_EPOCH


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return topics
