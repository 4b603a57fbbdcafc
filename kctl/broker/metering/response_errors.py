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


def error_codes(response: Message) -> list[int]:
    """Return the error codes of a response, and of at most ERRORS_SEARCHED_MAX of its elements of
    each kind that has codes; 0: NONE. A response without elements may have none."""
    return finder(type(response))(response)


Finder = Callable[[Any], list[int]]
_finders: dict[type[Struct], Finder] = {}


def finder(cls: type[Message]) -> Finder:
    """Return a function that does the same for responses of one class."""
    find = _finders.get(cls)
    if find is None:
        of_each = [_finder(arrays, code, cls) for arrays, code in _codes(cls)]
        find = _finders[cls] = of_each[0] if len(of_each) == 1 else _joined(of_each)
    return find


def _joined(of_each: Sequence[Finder]) -> Finder:
    def find(response: Message) -> list[int]:
        return [code for each in of_each for code in each(response)]

    return find


def _finder(arrays: Sequence[Getter], get_code: Callable[[Any], int], cls: type[Struct]) -> Finder:
    def find_own(response: Message) -> list[int]:
        return [get_code(response)]

    def find_own_errors(response: Message) -> list[int]:
        code = get_code(response)
        return [code] if code else []

    def find_in_elements(response: Message) -> list[int]:
        elements = arrays[0](response)
        if len(elements) == 1:
            return [get_code(elements[0])]
        return list(map(get_code, elements[:ERRORS_SEARCHED_MAX]))

    def find_deeper(response: Message) -> list[int]:
        elements: Iterable[Any] = arrays[0](response)[:ERRORS_SEARCHED_MAX]
        for get in arrays[1:]:
            elements = islice(chain.from_iterable(map(get, elements)), ERRORS_SEARCHED_MAX)
        return list(map(get_code, elements))

    if not arrays:
        return find_own_errors if cls in _ELEMENTS_ALONE else find_own
    return find_in_elements if len(arrays) == 1 else find_deeper


def _codes(cls: type[Struct]) -> Iterator[tuple[list[Getter], Callable[[Any], int]]]:
    """Yield how to get from a struct to elements with codes, array by array, and to the code."""
    code = next((it.name for it in cls.fields if it.name.endswith("error_code")), None)
    if code is not None:
        yield [], attrgetter(code)
    for field in cls.fields:
        element = field.element
        if field.kind != "array" or not isinstance(element, type):
            continue
        if not issubclass(element, _LEFT_OUT):
            for arrays, get_code in _codes(element):
                yield [_elements(field), *arrays], get_code


def _elements(field: Field) -> Getter:
    get: Callable[[Any], Any] = attrgetter(field.name)
    return get if field.nullable is None else lambda struct: get(struct) or []
