"""Complaints: one line per peer and second."""

from kctl.broker.network.complaints import PEERS_MAX, Complaints


def test_the_first_line_about_a_peer_is_logged():
    assert Complaints().line("a", "bad", 0) == "bad"


def test_more_lines_within_a_second_are_counted_instead():
    complaints = Complaints()
    complaints.line("a", "bad", 5_000)
    assert complaints.line("a", "bad", 5_500) is None
    assert complaints.line("a", "bad", 5_999) is None
    assert complaints.line("a", "worse", 6_000) == "worse (2 more like this)"
    assert complaints.line("a", "again", 8_000) == "again"


def test_peers_do_not_share_a_second():
    complaints = Complaints()
    complaints.line("a", "bad", 0)
    assert complaints.line("b", "bad", 0) == "bad"


def test_what_is_remembered_is_bounded():
    complaints = Complaints()
    for number in range(3 * PEERS_MAX):
        complaints.line(str(number), "bad", 0)
    assert len(complaints._peers) <= PEERS_MAX
