"""error_codes: the error codes in a response, NONE included, as Apache Kafka's metrics count them.

Kafka counts one code for each partition, topic, group or resource that a response reports on, and
in addition the code of the response as a whole where most of its kind have one. What it leaves out
is in the tables below; a code of a whole response other than NONE is always counted here.

Kafka 2.7: org.apache.kafka.common.requests.AbstractResponse.errorCounts of each response.
"""

from typing import Final

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
from kctl.protocol.schema import Message, Struct

# Elements of a response that are searched for error codes.
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
    """Return the error codes of a response and of its first ERRORS_SEARCHED_MAX elements; 0: NONE.

    A response without elements may have none."""
    found: list[int] = []
    left = ERRORS_SEARCHED_MAX
    pending: list[Struct] = [response]
    while pending and left > 0:
        element = pending.pop()
        left -= 1
        cls = type(element)
        code_name, arrays = _plans.get(cls) or _plan(cls)
        if code_name:
            code = int(getattr(element, code_name))
            if code or cls not in _ELEMENTS_ALONE:
                found.append(code)
        for name in arrays:
            nested = getattr(element, name)
            if nested:
                pending.extend(nested[:left])
    return found


_plans: dict[type[Struct], tuple[str, tuple[str, ...]]] = {}


def _plan(cls: type[Struct]) -> tuple[str, tuple[str, ...]]:
    """Return the field of a class with its error code, or "", and its arrays of structs that have
    codes themselves, or elements with codes."""
    plan = _plans.get(cls)
    if plan is None:
        code = next((it.name for it in cls.fields if it.name.endswith("error_code")), "")
        structs = [
            it.name
            for it in cls.fields
            if it.kind == "array"
            and isinstance(it.element, type)
            and not issubclass(it.element, _LEFT_OUT)
            and any(_plan(it.element))
        ]
        plan = _plans[cls] = (code, tuple(structs))
    return plan
