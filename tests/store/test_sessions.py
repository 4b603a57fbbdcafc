"""SessionTracker: sessions expire when they are not heard of, earliest first."""

from kctl.store.sessions import SessionTracker


def test_session_expires_at_its_deadline_and_once():
    tracker = SessionTracker()
    tracker.track(1, timeout_ms=100, now_ms=1000)
    assert tracker.next_deadline_ms() == 1100
    assert tracker.expire(1099) == []
    assert tracker.expire(1100) == [1]
    assert tracker.expire(9999) == []
    assert tracker.next_deadline_ms() is None


def test_session_that_is_heard_of_lives_on():
    tracker = SessionTracker()
    tracker.track(1, timeout_ms=100, now_ms=1000)
    assert tracker.touch(1, now_ms=1050)
    assert tracker.expire(1149) == []
    assert tracker.expire(1150) == [1]
    assert not tracker.touch(1, now_ms=1151)


def test_sessions_expire_in_the_order_of_their_deadlines():
    tracker = SessionTracker()
    for session_id, timeout_ms in ((1, 300), (2, 100), (3, 200), (4, 900)):
        tracker.track(session_id, timeout_ms, now_ms=0)
    assert tracker.expire(500) == [2, 3, 1]
    assert tracker.next_deadline_ms() == 900


def test_forgotten_session_never_expires():
    tracker = SessionTracker()
    tracker.track(1, timeout_ms=100, now_ms=0)
    tracker.forget(1)
    tracker.forget(1)
    assert tracker.expire(1000) == []


def test_sessions_beyond_the_number_asked_for_are_still_due_and_can_be_touched():
    tracker = SessionTracker()
    for session_id in (1, 2, 3, 4):
        tracker.track(session_id, timeout_ms=100, now_ms=session_id)
    assert tracker.expire(500, 2) == [1, 2]
    assert tracker.next_deadline_ms() == 103
    assert tracker.touch(4, now_ms=500)
    assert tracker.expire(500, 2) == [3]
