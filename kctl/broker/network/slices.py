"""in_slices: a request with many elements is handled in parts, with turns for others between them.

Handlers work through a request in one go, some for 20 microseconds an element; with 30,000 topics
everybody else would wait for 0.6 seconds. Requests whose answer has an element for each of theirs
are therefore dealt to the handler as several, each of at most SLICE_WEIGHT, and the answers are
put together again. The next slice is handled when the one before is answered; those of Produce,
which may wait for other brokers, follow each other at once.

What an element weighs: 1 (10 where files are made), its nested elements 1 each, records 1 for
RECORDS_BYTES_PER_WEIGHT. An element with many nested ones is cut, and its parts are joined in the
answer.

Differences that can be seen: an element named twice in one request is found only if both are in
the same slice. (Kafka refuses both to CreateTopics; here the later one exists already.) Acks=0 is
not cut, as there is no answer to put together.

Kafka 2.7 has threads for this: num.io.threads of kafka.server.KafkaRequestHandlerPool.
"""

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any

from kctl.broker.request import Request
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message
from kctl.runtime.scheduler import Scheduler

# About 5 ms of work.
SLICE_WEIGHT = 250
RECORDS_BYTES_PER_WEIGHT = 16_384

OnRequest = Callable[[Request], object]


@dataclass(frozen=True, slots=True)
class Cut:
    """Where an API's request may be cut: its array, the array nested there, both in the answer."""

    elements: str
    nested: str | None
    answers: str
    nested_answers: str | None
    is_answered_in_order: bool = True
    element_weight: int = 1


_CUTS: dict[ApiKey, Cut] = {
    ApiKey.PRODUCE: Cut(
        "topics", "partitions", "responses", "partitions", is_answered_in_order=False
    ),
    ApiKey.LIST_OFFSETS: Cut("topics", "partitions", "topics", "partitions"),
    ApiKey.METADATA: Cut("topics", None, "topics", None),
    ApiKey.OFFSET_COMMIT: Cut("topics", "partitions", "topics", "partitions"),
    ApiKey.OFFSET_FETCH: Cut("topics", "partition_indexes", "topics", "partitions"),
    ApiKey.DESCRIBE_GROUPS: Cut("groups", None, "groups", None),
    ApiKey.CREATE_TOPICS: Cut("topics", None, "topics", None, element_weight=10),
    ApiKey.DELETE_TOPICS: Cut("topic_names", None, "responses", None),
    ApiKey.DELETE_RECORDS: Cut("topics", "partitions", "topics", "partitions"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Cut("topics", "partitions", "topics", "partitions"),
    ApiKey.DESCRIBE_CONFIGS: Cut("resources", None, "results", None),
    ApiKey.ALTER_CONFIGS: Cut("resources", None, "responses", None),
    ApiKey.CREATE_PARTITIONS: Cut("topics", None, "results", None, element_weight=10),
    ApiKey.DELETE_GROUPS: Cut("groups_names", None, "results", None),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Cut("resources", None, "responses", None),
    ApiKey.OFFSET_DELETE: Cut("topics", "partitions", "topics", "partitions"),
}


def in_slices(request: Request, on_request: OnRequest, scheduler: Scheduler) -> None:
    """Have `on_request` handle `request`, in slices if it is worth it and can be."""
    cut = _CUTS.get(request.api_key)
    if cut is not None and _is_heavy(request, cut):
        _Sliced(request, cut, on_request, scheduler).start()
    else:
        on_request(request)


def _is_heavy(request: Request, cut: Cut) -> bool:
    elements = getattr(request.body, cut.elements)
    if not elements or getattr(request.body, "acks", 1) == 0:
        return False
    if len(elements) * cut.element_weight > SLICE_WEIGHT:
        return True
    return sum(_weight(element, cut) for element in elements) > SLICE_WEIGHT


def _weight(element: Any, cut: Cut) -> int:
    if cut.nested is None:
        return cut.element_weight
    return 1 + sum(map(_nested_weight, getattr(element, cut.nested)))


def _nested_weight(nested: Any) -> int:
    records = getattr(nested, "records", None)
    return 1 if records is None else 1 + len(records) // RECORDS_BYTES_PER_WEIGHT


def slices(elements: list[Any], cut: Cut) -> Iterator[list[Any]]:
    """`elements` in lists of about SLICE_WEIGHT; one may be cut between two of them."""
    part: list[Any] = []
    left = SLICE_WEIGHT
    for element in elements:
        if left <= 0:
            yield part
            part, left = [], SLICE_WEIGHT
        left -= cut.element_weight
        if cut.nested is None:
            part.append(element)
            continue
        nested: list[Any] = []
        for each in getattr(element, cut.nested):
            if left <= 0:
                part.append(_with(element, cut.nested, nested))
                yield part
                part, nested, left = [], [], SLICE_WEIGHT
            nested.append(each)
            left -= _nested_weight(each)
        part.append(_with(element, cut.nested, nested))
    if part:
        yield part


def _with(message: Any, name: str, value: list[Any]) -> Any:
    changed = copy(message)
    setattr(changed, name, value)
    return changed


class _Sliced:
    """One request on its way in slices."""

    def __init__(
        self, request: Request, cut: Cut, on_request: OnRequest, scheduler: Scheduler
    ) -> None:
        self._request = request
        self._cut = cut
        self._on_request = on_request
        self._scheduler = scheduler
        self._parts = slices(getattr(request.body, cut.elements), cut)
        self._answers: list[Message | None] = []
        self._is_dealt = False
        self._is_closed = False

    def start(self) -> None:
        """Deal the first slice."""
        self._deal()

    def _deal(self) -> None:
        if self._is_closed:
            return
        part = next(self._parts, None)
        if part is None:
            self._is_dealt = True
            self._finish()
            return
        number = len(self._answers)
        self._answers.append(None)
        whole = self._request
        slice_ = Request(
            whole.api_key, whole.api_version, whole.correlation_id, whole.client_id,
            _with(whole.body, self._cut.elements, part), whole.context, whole.received_ms,
            lambda answer: self._answered(number, answer), self._close,
        )  # fmt: skip
        try:
            self._on_request(slice_)
        except Exception:
            self._close()
            raise
        if not self._cut.is_answered_in_order:
            self._deal_next()

    def _answered(self, number: int, answer: Message | None) -> None:
        self._answers[number] = answer
        if self._cut.is_answered_in_order:
            self._deal_next()
        else:
            self._finish()

    def _deal_next(self) -> None:
        # By a timer, for the loop serves its descriptors before those.
        self._scheduler.call_later(0, self._deal)

    def _close(self) -> None:
        self._is_closed = True
        self._request.close()

    def _finish(self) -> None:
        if not self._is_dealt or None in self._answers or self._request.answered:
            return
        whole, *others = self._answers
        for other in others:
            join_answers(whole, other, self._cut)
        self._request.reply(whole)


def join_answers(whole: Any, other: Any, cut: Cut) -> None:
    """Add what `other` answers to `whole`."""
    if getattr(other, "error_code", 0):
        whole.error_code = other.error_code
    answers, more = getattr(whole, cut.answers), getattr(other, cut.answers)
    if cut.nested_answers is not None and answers and more and answers[-1].name == more[0].name:
        getattr(answers[-1], cut.nested_answers).extend(getattr(more[0], cut.nested_answers))
        more = more[1:]
    answers.extend(more)
