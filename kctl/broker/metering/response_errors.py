"""error_codes: the error codes in a response, NONE included, as Apache Kafka's metrics count them.

Kafka counts one code for each partition, topic, group or resource that a response reports on, and
in addition the code of the response as a whole where most of its kind have one. What it leaves out
is in the tables below; a code of a whole response other than NONE is always counted here.

Kafka 2.7: org.apache.kafka.common.requests.AbstractResponse.errorCounts of each response.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import attrgetter
from typing import Any, Final, NamedTuple

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


def error_codes(response: Message) -> list[int]:
    """Return the error codes of a response, and of at most ERRORS_SEARCHED_MAX of its elements of
    each kind that has codes; 0: NONE. A response without elements may have none."""
    cls = type(response)
    found: list[int] = []
    for is_own, first, deeper, get_code in _plans.get(cls) or _plan(cls):
        if is_own:
            code = get_code(response)
            if code or cls not in _ELEMENTS_ALONE:
                found.append(code)
            continue
        elements: Iterable[Any] = first(response)[:ERRORS_SEARCHED_MAX]
        for get in deeper:
            elements = islice(chain.from_iterable(map(get, elements)), ERRORS_SEARCHED_MAX)
        found.extend(map(get_code, elements))
    return found


class _Codes(NamedTuple):
    """Where codes are: in the response itself, or in the elements of an array, or of arrays in
    these."""

    is_own: bool
    first: Callable[[Any], list[Any]]
    deeper: Sequence[Callable[[Any], list[Any]]]
    get_code: Callable[[Any], int]


_plans: dict[type[Struct], tuple[_Codes, ...]] = {}


def _plan(cls: type[Struct]) -> tuple[_Codes, ...]:
    plan = _plans[cls] = tuple(
        _Codes(not arrays, arrays[0] if arrays else _no_elements, arrays[1:], get_code)
        for arrays, get_code in _codes(cls)
    )
    return plan


def _codes(cls: type[Struct]) -> Iterator[tuple[list[Callable[[Any], list[Any]]], Any]]:
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


def _elements(field: Field) -> Callable[[Any], list[Any]]:
    get: Callable[[Any], Any] = attrgetter(field.name)
    return get if field.nullable is None else lambda struct: get(struct) or []


def _no_elements(_: Struct) -> list[Any]:
    return []
