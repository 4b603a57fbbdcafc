"""in_slices: handles a request with many elements in parts, with turns for others between them.

Handlers process a request in one go, some with 20 microseconds per element; with 30,000 topics all
other clients would wait for 0.6 seconds. Requests whose response has an element for each of theirs
are therefore passed to the handler as several requests, each of at most SLICE_WEIGHT, and the
responses are joined. The next slice is handled after the response to the previous one; slices of
Produce, which may wait for other brokers, follow each other at once.

Weight of an element: 1 (10 where files are created), its nested elements 1 each, records 1 per
RECORDS_BYTES_PER_WEIGHT. An element with many nested ones is split, and its parts are joined in the
response.

Visible differences: an element named twice in one request is detected only if both are in the same
slice. (Kafka rejects both in CreateTopics; here the later one already exists.) Requests with acks=0
are not split, as there is no response to join.

Kafka 2.7 uses threads for this: num.io.threads of kafka.server.KafkaRequestHandlerPool.
"""

from collections.abc import Callable, Iterator
from copy import copy
from typing import Any

from kctl.broker.request import Request
from kctl.errors import CorruptDataError
from kctl.lazy_dataclass import dataclass
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.schema import Message
from kctl.runtime.scheduler import Scheduler

# About 5 ms of work.
SLICE_WEIGHT = 250
RECORDS_BYTES_PER_WEIGHT = 16_384

OnRequest = Callable[[Request], object]


@dataclass(frozen=True, slots=True)
class Cut:
    """Where an API's request can be split: its array and the nested array, in request and
    response."""

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
    ApiKey.LEAVE_GROUP: Cut("members", None, "members", None),
    ApiKey.CREATE_TOPICS: Cut("topics", None, "topics", None, element_weight=10),
    ApiKey.DELETE_TOPICS: Cut("topic_names", None, "responses", None),
    ApiKey.DELETE_RECORDS: Cut("topics", "partitions", "topics", "partitions"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Cut("topics", "partitions", "topics", "partitions"),
    ApiKey.DESCRIBE_CONFIGS: Cut("resources", None, "results", None),
    ApiKey.ALTER_CONFIGS: Cut("resources", None, "responses", None),
    ApiKey.CREATE_PARTITIONS: Cut("topics", None, "results", None, element_weight=10),
    ApiKey.DELETE_GROUPS: Cut("groups_names", None, "results", None),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Cut("resources", None, "responses", None),
    # Each slice is one append; a client repeats the partitions that have an error.
    ApiKey.TXN_OFFSET_COMMIT: Cut("topics", "partitions", "topics", "partitions"),
    ApiKey.OFFSET_DELETE: Cut("topics", "partitions", "topics", "partitions"),
    ApiKey.CREATE_ACLS: Cut("creations", None, "results", None),
    ApiKey.DELETE_ACLS: Cut("filters", None, "filter_results", None),
}


# Structs of a response that are encoded in one turn; larger responses take several turns.
RESPONSE_WEIGHT_MAX = 1_000
# The arrays of responses that can be large: one, the one in its elements, and so on.
_RESPONSE_ARRAYS: dict[ApiKey, tuple[str, ...]] = {
    ApiKey.METADATA: ("topics", "partitions"),
    ApiKey.FETCH: ("responses", "partition_responses"),
    ApiKey.LEADER_AND_ISR: ("partition_errors",),
    ApiKey.STOP_REPLICA: ("partition_errors",),
    ApiKey.JOIN_GROUP: ("members",),
    ApiKey.LIST_GROUPS: ("groups",),
    ApiKey.DESCRIBE_GROUPS: ("groups", "members"),
    ApiKey.OFFSET_FETCH: ("topics", "partitions"),
    ApiKey.ADD_PARTITIONS_TO_TXN: ("results", "results"),
    ApiKey.WRITE_TXN_MARKERS: ("markers", "topics", "partitions"),
    ApiKey.DESCRIBE_ACLS: ("resources", "acls"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ("results", "partitions"),
    ApiKey.DESCRIBE_LOG_DIRS: ("results", "topics", "partitions"),
    ApiKey.ELECT_LEADERS: ("replica_election_results", "partition_result"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ("responses", "partitions"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ("topics", "partitions"),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ("entries", "values"),
    ApiKey.ALTER_CLIENT_QUOTAS: ("entries", "entity"),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ("results",),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ("results",),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: ("tokens", "renewers"),
    ApiKey.ALTER_ISR: ("topics", "partitions"),
    ApiKey.UPDATE_FEATURES: ("results",),
    **{
        api_key: tuple(name for name in (cut.answers, cut.nested_answers) if name is not None)
        for api_key, cut in _CUTS.items()
        if api_key not in (ApiKey.METADATA, ApiKey.PRODUCE)
    },
    ApiKey.DESCRIBE_CONFIGS: ("results", "configs"),
    # The configs of a new topic; all ACLs that one filter deleted.
    ApiKey.CREATE_TOPICS: ("topics", "configs"),
    ApiKey.DELETE_ACLS: ("filter_results", "matching_acls"),
}


def is_heavy_response(api_key: ApiKey, response: Message) -> bool:
    """Return whether a response should be encoded in several turns."""
    arrays = _RESPONSE_ARRAYS.get(api_key)
    return arrays is not None and _structs(response, arrays, 0) > RESPONSE_WEIGHT_MAX


def _structs(struct: Any, arrays: tuple[str, ...], depth: int) -> int:
    """Return the number of structs in the array `arrays[depth]` of `struct`."""
    elements = getattr(struct, arrays[depth]) or ()
    count = len(elements)
    if depth + 1 < len(arrays):
        for element in elements:
            if count > RESPONSE_WEIGHT_MAX:
                break
            count += _structs(element, arrays, depth + 1)
    return count


def in_slices(request: Request, on_request: OnRequest, scheduler: Scheduler) -> None:
    """Have `on_request` handle `request`, in slices if it is large and can be split."""
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
    left = SLICE_WEIGHT
    for element in elements:
        left -= _weight(element, cut)
        if left < 0:
            return True
    return False


def _weight(element: Any, cut: Cut) -> int:
    if cut.nested is None:
        return cut.element_weight
    return 1 + sum(map(_nested_weight, getattr(element, cut.nested)))


def _nested_weight(nested: Any) -> int:
    records = getattr(nested, "records", None)
    return 1 if records is None else 1 + len(records) // RECORDS_BYTES_PER_WEIGHT


def slices(elements: list[Any], cut: Cut) -> Iterator[list[Any]]:
    """Yield `elements` in lists of about SLICE_WEIGHT; an element may be split between two
    lists."""
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
    """One request that is handled in slices."""

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
        """Pass on the first slice."""
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
            lambda answer: self._answered(number, answer), self._close, whole=whole,
            failed=self._failed,
        )  # fmt: skip
        try:
            self._on_request(slice_)
        except CorruptDataError:
            # The client's request is invalid; the handler is not at fault.
            self._close()
            raise
        except Exception as error:  # noqa: BLE001 - a failed request must not stop the broker
            self._failed(slice_, error)
            return
        if not self._cut.is_answered_in_order:
            self._deal_next()

    def _answered(self, number: int, answer: Message | None) -> None:
        self._answers[number] = answer
        if self._cut.is_answered_in_order:
            self._deal_next()
        else:
            self._finish()

    def _deal_next(self) -> None:
        # By a timer, because the loop serves its descriptors before those.
        self._scheduler.call_later(0, self._deal)

    def _failed(self, _slice: Request, error: Exception) -> None:
        self._is_closed = True
        self._request.fail(error)

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
    """Add the results in `other` to `whole`."""
    if getattr(other, "error_code", 0):
        whole.error_code = other.error_code
    answers, more = getattr(whole, cut.answers), getattr(other, cut.answers)
    if cut.nested_answers is not None and answers and more and answers[-1].name == more[0].name:
        getattr(answers[-1], cut.nested_answers).extend(getattr(more[0], cut.nested_answers))
        more = more[1:]
    answers.extend(more)
