"""error_codes: the error codes in a response, NONE included, as Apache Kafka's metrics count them.

Kafka counts one code for each partition, topic, group or resource that a response reports on, and
in addition the code of the response as a whole where most of its kind have one. What it leaves out
is in the tables below; a code of a whole response other than NONE is always counted here.

Kafka 2.7: org.apache.kafka.common.requests.AbstractResponse.errorCounts of each response.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import attrgetter
from typing import Any, Final

from kctl.protocol.messages.delete_acls import DeleteAclsMatchingAcl
from kctl.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsResponse,
)
from kctl.protocol.messages.elect_leaders import ElectLeadersResponse
from kctl.protocol.messages.fetch import FetchResponse
from kctl.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from kctl.protocol.messages.leave_group import LeaveGroupResponse
from kctl.protocol.messages.metadata import MetadataResponsePartition
from kctl.protocol.messages.offset_fetch import OffsetFetchResponsePartition
from kctl.protocol.messages.stop_replica import StopReplicaResponse
from kctl.protocol.messages.update_features import UpdateFeaturesResponse
from kctl.protocol.schema import Field, Message, Struct

# Elements of one kind of a response that are searched for error codes.
ERRORS_SEARCHED_MAX: Final = 1_000
# Elements whose codes are not counted: the topic, the filter or the response has one for them.
_LEFT_OUT: Final[tuple[type[Struct], ...]] = (
    DeleteAclsMatchingAcl, MetadataResponsePartition, OffsetFetchResponsePartition,
)  # fmt: skip
# Responses without an error of their own that count the codes of their elements alone.
_ELEMENTS_ALONE: Final[frozenset[type[Struct]]] = frozenset((
    DescribeUserScramCredentialsResponse, ElectLeadersResponse, FetchResponse,
    LeaderAndIsrResponse, LeaveGroupResponse, StopReplicaResponse, UpdateFeaturesResponse,
))  # fmt: skip

Getter = Callable[[Any], list[Any]]
Finder = Callable[[Any], list[int]]
_finders: dict[type[Struct], list[Finder]] = {}

# What a SuccessCounter returns if a response has to be searched.
SEARCH: Final = -1
SuccessCounter = Callable[[Any], int]


def error_codes(response: Message) -> list[int]:
    """Return the error codes of a response, and of at most ERRORS_SEARCHED_MAX of its elements of
    each kind that has codes; 0: NONE. A response without elements may have none."""
    cls = type(response)
    finders = _finders.get(cls)
    if finders is None:
        finders = _finders[cls] = [_finder(arrays, code, cls) for arrays, code in _codes(cls)]
    return [code for find in finders for code in find(response)]


def success_counter(cls: type[Message]) -> SuccessCounter:
    """Return a function that takes a response of a class and returns how many error codes it has,
    if all of them are NONE; SEARCH if one is not, or if there are more than are searched.

    It is compiled from loops over the arrays of the class: a quarter of the time of `error_codes`.
    """
    lines = ["def count(response):", " total = 0"]
    for arrays, code in _codes(cls):
        indent, struct = " ", "response"
        for number, field in enumerate(arrays):
            or_none = " or ()" if field.nullable is not None else ""
            lines.append(f"{indent}elements_{number} = {struct}.{field.name}{or_none}")
            struct = f"element_{number}"
            if field is arrays[-1]:
                lines.append(f"{indent}total += len(elements_{number})")
            lines.append(f"{indent}for {struct} in elements_{number}:")
            indent += " "
        lines.append(f"{indent}if {struct}.{code}: return {SEARCH}")
        if not arrays and cls not in _ELEMENTS_ALONE:
            lines.append(" total += 1")
    lines.append(f" return total if total <= {ERRORS_SEARCHED_MAX} else {SEARCH}")
    namespace: dict[str, Any] = {}
    exec("\n".join(lines), namespace)
    count: SuccessCounter = namespace["count"]
    return count


def _finder(arrays: Sequence[Field], code: str, cls: type[Struct]) -> Finder:
    get_code: Callable[[Any], int] = attrgetter(code)
    getters = [_elements(field) for field in arrays]

    def find_own(response: Message) -> list[int]:
        return [get_code(response)]

    def find_own_errors(response: Message) -> list[int]:
        code = get_code(response)
        return [code] if code else []

    def find_in_elements(response: Message) -> list[int]:
        elements: Iterable[Any] = getters[0](response)[:ERRORS_SEARCHED_MAX]
        for get in getters[1:]:
            elements = islice(chain.from_iterable(map(get, elements)), ERRORS_SEARCHED_MAX)
        return list(map(get_code, elements))

    if getters:
        return find_in_elements
    return find_own_errors if cls in _ELEMENTS_ALONE else find_own


def _codes(cls: type[Struct]) -> Iterator[tuple[list[Field], str]]:
    """Yield the arrays that lead from a struct to elements with codes, each in an element of the
    one before, and the name of the code."""
    own = next((it.name for it in cls.fields if it.name.endswith("error_code")), None)
    if own is not None:
        yield [], own
    for field in cls.fields:
        element = field.element
        if field.kind != "array" or not isinstance(element, type):
            continue
        if not issubclass(element, _LEFT_OUT):
            for arrays, code in _codes(element):
                yield [field, *arrays], code


def _elements(field: Field) -> Getter:
    get: Callable[[Any], Any] = attrgetter(field.name)
    return get if field.nullable is None else lambda struct: get(struct) or []
