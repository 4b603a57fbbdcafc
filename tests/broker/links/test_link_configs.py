"""Which configs make a topic a link, how they may change, and what a link follows."""

import pytest

from kctl.broker.links.takeover import EPOCH_MAX, EPOCH_STEP, epoch_after
from kctl.broker.links.topic_settings import followed_settings
from kctl.configs.link_configs import (
    LinkState,
    OnLoss,
    check_link,
    check_link_change,
    format_resumes,
    link_of,
    without_resume,
)
from kctl.errors import KctlError, UsageError

LINK = {"mirror.source": "east", "mirror.source.cluster": "c"}
FAILOVER = {**LINK, "mirror.state": "failover"}


def test_a_topic_with_a_source_is_a_link():
    assert link_of({"retention.ms": "1"}) is None
    assert link_of(LINK) == ("east", "c", LinkState.FOLLOWING, {})
    assert link_of(FAILOVER).state is LinkState.FAILOVER
    # Whatever a tool has written: it is not writable by mistake.
    assert link_of({"mirror.source": "east", "mirror.state": "?"}).state is LinkState.FOLLOWING


@pytest.mark.parametrize(
    "overrides",
    [
        {"mirror.source": "east"},
        {"mirror.state": "failover"},
        {**LINK, "mirror.source": "../secret"},
        {**LINK, "mirror.state": "done"},
        {**LINK, "mirror.resume": "0"},
        {**LINK, "mirror.resume": "0:skip"},
        {**LINK, "mirror.resume": "-1:restart"},
    ],
)
def test_incomplete_links_are_refused(overrides):
    with pytest.raises(UsageError):
        check_link(overrides)


@pytest.mark.parametrize(
    ("before", "after"), [({}, LINK), (LINK, LINK), (LINK, FAILOVER), (FAILOVER, {})]
)
def test_a_link_can_begin_fail_over_and_end(before, after):
    check_link(after)
    check_link_change(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [(LINK, {}), (FAILOVER, LINK), (LINK, {**LINK, "mirror.source": "west"})],
)
def test_a_link_changes_in_no_other_way(before, after):
    with pytest.raises(UsageError):
        check_link_change(before, after)


def test_a_failover_begins_an_epoch_far_above_those_of_the_source():
    assert epoch_after(0) == EPOCH_STEP
    assert epoch_after(EPOCH_STEP) == 2 * EPOCH_STEP
    with pytest.raises(KctlError):
        epoch_after(EPOCH_MAX)


def test_a_link_follows_the_settings_that_concern_its_data():
    own = {**LINK, "min.insync.replicas": "2", "retention.ms": "5"}
    source = {"min.insync.replicas": "1", "segment.bytes": "999", "remote.storage.enable": "true"}
    assert followed_settings(own, source) == {
        **LINK, "min.insync.replicas": "2", "segment.bytes": "999",
    }  # fmt: skip


def test_decisions_on_partitions_go_one_by_one_as_they_are_carried_out():
    resumes = {10: OnLoss.STOP, 2: OnLoss.RESTART}
    text = format_resumes(resumes)
    assert text == "2:restart,10:stop"
    marked = {**LINK, "mirror.resume": text}
    check_link(marked)
    assert link_of(marked).resumes == resumes
    assert without_resume(marked, 2) == {**LINK, "mirror.resume": "10:stop"}
    assert without_resume(without_resume(marked, 2), 10) == LINK
    assert without_resume(LINK, 3) == LINK
    # Whatever a tool has written, nothing is removed by mistake.
    assert link_of({**LINK, "mirror.resume": "restart"}).resumes == {}
