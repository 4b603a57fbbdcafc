"""Complaints: one line per peer and second."""

import pytest

from kctl.runtime.complaints import NAMES_MAX, Complaints


def test_the_first_line_about_a_peer_is_logged():
    assert Complaints().line("a", lambda: "bad", 0) == "bad"


def test_more_lines_within_a_second_are_counted_instead():
    complaints = Complaints()
    complaints.line("a", lambda: "bad", 5_000)
    assert complaints.line("a", lambda: "bad", 5_500) is None
    assert complaints.line("a", lambda: "bad", 5_999) is None
    assert complaints.line("a", lambda: "worse", 6_000) == "worse (2 more like this)"
    assert complaints.line("a", lambda: "again", 8_000) == "again"


def test_peers_are_limited_independently():
    complaints = Complaints()
    complaints.line("a", lambda: "bad", 0)
    assert complaints.line("b", lambda: "bad", 0) == "bad"


def test_the_number_of_peers_is_limited():
    complaints = Complaints()
    for number in range(3 * NAMES_MAX):
        complaints.line(str(number), lambda: "bad", 0)
    assert len(complaints._last_lines) <= NAMES_MAX


def test_suppressed_messages_are_not_built():
    complaints = Complaints()
    complaints.line("a", lambda: "bad", 0)
    assert complaints.line("a", lambda: pytest.fail("made"), 1) is None
