"""C7: filters of topics select what they select in Java, or are refused."""

import pytest

from kctl.errors import UsageError
from kctl.store.consumer_znodes import Pattern, Subscription
from kctl.store.topic_filter import (
    Blacklist,
    Whitelist,
    prepared,
    registered_filter,
    translated,
)
from tests.store.filter_cases import TOPICS, golden

PAIRS = golden()
# How many of them are in the supported subset.
SUPPORTED_MIN = 170


def test_filters_select_what_java_selects_or_are_refused():
    supported, different = 0, []
    for answer, text in PAIRS:
        try:
            topic_filter = Whitelist(text)
        except UsageError:
            continue
        found = "".join("01"[topic_filter.allows(it)] for it in TOPICS)
        supported += 1
        if found != answer:
            different.append((text, found, answer))
    assert different == []
    assert supported >= SUPPORTED_MIN


@pytest.mark.parametrize(
    ("regex", "why"),
    [
        (r"(a)\1", r"'\\1' is not supported"),
        ("a*+", "possessive"),
        ("[a&&b]", "classes inside classes"),
        ("(?i)a", "groups that begin with"),
        (r"\p{L}", "Alnum"),
        ("(a", "not closed"),
        ("a)", "closes no group"),
        ("*a", "repeats nothing"),
        ("[b-a]", "backwards"),
        ("a{2000}", "more than 1000 times"),
        ("a\\", "at the end"),
    ],
)
def test_what_is_not_supported_is_refused_with_the_reason(regex, why):
    with pytest.raises(UsageError, match=why):
        Whitelist(regex)


def test_a_filter_that_is_too_long_is_refused():
    with pytest.raises(UsageError, match="10000 characters"):
        translated("a" * 10_001)


def test_a_black_list_reads_the_others_and_neither_reads_internal_topics():
    assert [it for it in ("a", "b", "__consumer_offsets") if Blacklist("a").allows(it)] == ["b"]
    assert not Whitelist(".*").allows("__consumer_offsets")
    assert Whitelist(".*").allows("__consumer_offsets", exclude_internal_topics=False)


def test_quotes_and_blanks_of_a_property_file_do_not_count():
    assert prepared(' "a.*, b" ') == "a.*|b"
    assert Whitelist("'a,b'") == Whitelist("a|b")
    assert Whitelist("a") != Blacklist("a")


def test_a_registration_has_the_filter_that_its_group_goes_by():
    registered = Subscription({"ord.*": 2}, Pattern.BLACK_LIST, 5, "ord.*, pay.*")
    assert registered_filter(registered) == Blacklist("ord.*|pay.*")
    assert registered_filter(Subscription({"a": 1}, Pattern.WHITE_LIST)) == Whitelist("a")
