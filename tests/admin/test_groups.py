"""GroupAdmin with several brokers of old and new versions."""

import pytest

from kctl.client.assignment import encode_assignment
from kctl.errors import UnreachableError, UsageError
from kctl.model import TopicPartition
from kctl.protocol.api_keys import ApiKey
from kctl.protocol.error_codes import ErrorCode
from kctl.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from kctl.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from tests.support.offset_answers import committed, partition_log


def listed(*names, state=""):
    groups = [ListedGroup(group_id=n, protocol_type="consumer", group_state=state) for n in names]
    return ListGroupsResponse(groups=groups)


def describing(**states):
    """Answer DescribeGroups; a group that is not in `states` is Dead."""

    def answer(request):
        return DescribeGroupsResponse(
            groups=[
                DescribedGroup(group_id=name, group_state=states.get(name, "Dead"))
                for name in request.body.groups
            ]
        )

    return answer


def test_groups_are_gathered_from_all_brokers(make_broker, admin_of, run):
    zero, one = make_broker(), make_broker(broker_id=1)
    zero.others[1] = one.address
    zero.answer(ApiKey.LIST_GROUPS, listed("b", state="Stable"))
    one.answer(ApiKey.LIST_GROUPS, listed("a", state="Empty"))

    found = run(admin_of(zero).groups.list_groups())

    assert [(it.group_id, it.state, it.coordinator) for it in found.groups] == [
        ("a", "Empty", 1),
        ("b", "Stable", 0),
    ]
    assert found.errors == {}


def test_a_broker_that_does_not_answer_is_reported_and_the_others_are_listed(
    make_broker, admin_of, run
):
    zero, one = make_broker(), make_broker(broker_id=1)
    zero.others[1] = one.address
    zero.answer(ApiKey.LIST_GROUPS, listed("a"))
    one.stop()

    found = run(admin_of(zero, timeout_ms=1_000).groups.list_groups())

    assert [it.group_id for it in found.groups] == ["a"]
    assert isinstance(found.errors[1], UnreachableError)


def test_states_are_filtered_by_the_broker_in_its_own_spelling(make_broker, admin_of, run):
    broker = make_broker()
    broker.answer(ApiKey.LIST_GROUPS, listed("a", state="Empty"))

    run(admin_of(broker).groups.list_groups(["empty", "PREPARINGREBALANCE"]))

    [request] = broker.requests(ApiKey.LIST_GROUPS)
    assert request.body.states_filter == ["Empty", "PreparingRebalance"]


def test_an_unknown_state_is_a_usage_error(make_broker, admin_of, run):
    with pytest.raises(UsageError, match="No group state Stabel") as refused:
        run(admin_of(make_broker()).groups.list_groups(["Stabel"]))
    assert "Stable" in refused.value.hint


def test_states_that_old_brokers_do_not_list_are_described(make_broker, admin_of, run):
    broker = make_broker(versions={ApiKey.LIST_GROUPS: (0, 2)})
    broker.answer(ApiKey.LIST_GROUPS, listed("a", "b"))
    broker.answer(ApiKey.DESCRIBE_GROUPS, describing(a="Empty", b="Stable"))

    found = run(admin_of(broker).groups.list_groups(["stable"]))

    assert [(it.group_id, it.state) for it in found.groups] == [("b", "Stable")]


def test_a_dead_group_does_not_exist(make_broker, admin_of, run):
    broker = make_broker()
    broker.answer(ApiKey.DESCRIBE_GROUPS, describing(a="Empty"))

    here, gone = run(admin_of(broker).groups.describe(["a", "gone"]))

    assert (here.state, here.error) == ("Empty", None)
    assert gone.error.code == ErrorCode.GROUP_ID_NOT_FOUND


def test_assignments_are_decoded_and_invalid_ones_ignored(make_broker, admin_of, run):
    members = [
        DescribedGroupMember(
            member_id="m1",
            client_host="/10.0.0.1",
            member_assignment=encode_assignment([TopicPartition("t", 1)]),
        ),
        DescribedGroupMember(member_id="m2", member_assignment=b"\xff\xff\xff"),
    ]
    group = DescribedGroup(
        group_id="g", group_state="Stable", protocol_type="consumer", members=members
    )
    broker = make_broker()
    broker.answer(ApiKey.DESCRIBE_GROUPS, DescribeGroupsResponse(groups=[group]))

    [found] = run(admin_of(broker).groups.describe(["g"]))

    assert [(it.host, it.partitions) for it in found.members] == [
        ("10.0.0.1", [TopicPartition("t", 1)]),
        ("", []),
    ]


def test_lag_covers_all_partitions_of_the_topics_of_a_group(make_broker, admin_of, run):
    """A group that has read only some partitions has the records of the others before it."""
    broker = make_broker({"t": 3, "other": 1})
    broker.answer(
        ApiKey.DESCRIBE_GROUPS,
        DescribeGroupsResponse(groups=[DescribedGroup(group_id="g", group_state="Empty")]),
    )
    broker.answer(ApiKey.OFFSET_FETCH, committed(t0=5))
    broker.answer(ApiKey.LIST_OFFSETS, partition_log(3, 9))
    groups = admin_of(broker).groups

    async def work():
        [found] = await groups.describe(["g"])
        return await groups.lag(found)

    lags = run(work())
    assert [it.partition for it in lags] == [TopicPartition("t", number) for number in range(3)]
    assert [it.lag for it in lags] == [4, None, None]
    assert [it.log_end_offset for it in lags] == [9, 9, 9]


def test_lag_covers_what_is_committed_and_what_is_assigned(make_broker, admin_of, run):
    member = DescribedGroupMember(
        member_id="m", member_assignment=encode_assignment([TopicPartition("t", 1)])
    )
    group = DescribedGroup(
        group_id="g", group_state="Stable", protocol_type="consumer", members=[member]
    )
    broker = make_broker({"t": 2})
    broker.answer(ApiKey.DESCRIBE_GROUPS, DescribeGroupsResponse(groups=[group]))
    broker.answer(ApiKey.OFFSET_FETCH, committed(t0=5))
    broker.answer(ApiKey.LIST_OFFSETS, partition_log(3, 9))
    groups = admin_of(broker).groups

    async def work():
        [found] = await groups.describe(["g"])
        return await groups.lag(found)

    first, second = run(work())

    assert (first.committed_offset, first.lag, first.member) == (5, 4, None)
    assert (second.committed_offset, second.lag, second.member.member_id) == (None, None, "m")
