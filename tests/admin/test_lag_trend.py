"""The trend of a lag: the rules of kctl.admin.lag_trend, one row for each."""

import pytest

from kctl.admin.lag_trend import SAMPLES_MAX, LagSample, LagWindow, Trend, judge, worst

SECOND = 1000


def window(*pairs, every_ms=10 * SECOND):
    """Samples of (committed offset, end offset), one every `every_ms`."""
    return [LagSample(i * every_ms, committed, end) for i, (committed, end) in enumerate(pairs)]


@pytest.mark.parametrize(
    ("samples", "now_ms", "has_members", "trend"),
    [
        # Nothing committed; nothing to compare with.
        ([], 0, True, Trend.UNKNOWN),
        (window((5, 9)), 0, True, Trend.UNKNOWN),
        # Everything is read, now or at one time in the window.
        (window((9, 9)), 0, True, Trend.STEADY),
        (window((9, 9), (9, 50), (9, 99)), 20_000, True, Trend.STEADY),
        # Nothing is committed in the window.
        (window((5, 9), (5, 9), (5, 9)), 20_000, True, Trend.UNKNOWN),
        (window((5, 9), (5, 9), (5, 9), (5, 9)), 30_000, True, Trend.STOPPED),
        (window((5, 9)), 0, False, Trend.STOPPED),
        # Commits, and then none for longer than they took.
        (window((1, 9), (2, 9), (2, 9), (2, 9), (2, 9)), 40_000, True, Trend.STOPPED),
        (window((1, 9), (2, 9), (3, 9), (4, 9), (4, 9)), 40_000, True, Trend.CATCHING_UP),
        # One commit has no other to be compared with.
        (window((1, 99), (50, 99)), 10_000, True, Trend.UNKNOWN),
        # The lag at commits: 10, 20, 30; 10, 10, 30; 30, 20, 10; 30, 40, 30.
        (window((0, 5), (5, 15), (6, 26), (7, 37)), 30_000, True, Trend.FALLING_BEHIND),
        (window((0, 5), (5, 15), (6, 16), (7, 37)), 30_000, True, Trend.FALLING_BEHIND),
        (window((0, 5), (5, 35), (6, 26), (7, 17)), 30_000, True, Trend.CATCHING_UP),
        (window((0, 5), (5, 35), (6, 46), (7, 37)), 30_000, True, Trend.STEADY),
        # Between two commits the lag always grows.
        (window((0, 99), (5, 100), (5, 105), (10, 105)), 30_000, True, Trend.STEADY),
        # 2 % of the lag is no change of it.
        (window((0, 9), (1, 101), (2, 101), (3, 101)), 30_000, True, Trend.STEADY),
    ],
)
def test_the_first_rule_that_applies_decides(samples, now_ms, has_members, trend):
    assert judge(samples, now_ms, has_members=has_members) is trend


def test_a_reset_to_an_earlier_offset_begins_a_new_window():
    lags = LagWindow()
    for sample in window((5, 15), (6, 26), (7, 37)):
        lags.add(sample)
    assert lags.trend(30_000, has_members=True) is Trend.FALLING_BEHIND
    lags.add(LagSample(40_000, 0, 37))

    assert lags.trend(40_000, has_members=True) is Trend.UNKNOWN


def test_a_window_forgets_its_oldest_samples():
    lags = LagWindow()
    lags.add(LagSample(0, 0, 0))
    for i in range(SAMPLES_MAX):
        lags.add(LagSample(1 + i, i, 2 * i + 1))

    assert lags.trend(SAMPLES_MAX, has_members=True) is Trend.FALLING_BEHIND


def test_the_worst_trend_of_partitions_is_that_of_the_group():
    assert worst([Trend.STEADY, Trend.STOPPED, Trend.FALLING_BEHIND]) is Trend.STOPPED
    assert worst([Trend.STEADY, Trend.UNKNOWN]) is Trend.UNKNOWN
    assert worst([]) is Trend.UNKNOWN
