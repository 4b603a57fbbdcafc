"""kctl top: its screens as recorded, its keys, and a real terminal.

`python -m tests.cli.top_snapshots` records the screens again after a change that is meant.
"""

import re
import signal

import pytest

from kctl.admin.cluster_activity import Look, topic_rows
from kctl.cli.table_text import text_width
from kctl.cli.top.screen import FILTER_MAX, HISTORY_MAX, Mode, Screen, View
from kctl.model import TopicPartition
from kctl.runtime.real.terminal_screen import KeyReader, split_keys
from tests.cli import top_snapshots


@pytest.mark.parametrize(
    ("name", "screen"), [*top_snapshots.screens()], ids=lambda it: str(it)[:20]
)
def test_screens_are_as_recorded(name, screen):
    if not name.endswith("partitions"):
        screen.mode = Mode.LIST
    else:
        screen.mode = Mode.DETAIL
    recorded = (top_snapshots.RECORDED / f"top-{name}.txt").read_text()

    assert top_snapshots.text_of(screen) == recorded
    for text in recorded.splitlines():
        if text.startswith("=== "):
            width = int(text.split()[1])
        assert text_width(text) <= width
        assert text.isprintable()


@pytest.mark.parametrize("width", [1, 10, 30, 79, 500])
@pytest.mark.parametrize("height", [1, 4, 50])
def test_a_screen_of_any_size_is_filled_and_never_overfilled(width, height):
    for _, screen in top_snapshots.screens():
        lines = screen.lines(width, height, "", color=False)
        assert len(lines) <= height
        assert all(text_width(line) <= max(width, 8) for line in lines)


@pytest.fixture
def screen():
    screen = Screen()
    screen.update([{"topic": name, "records_s": rate} for name, rate in
                   (("a", 5.0), ("b", None), ("cc", 9.0))])  # fmt: skip
    return screen


def names(screen):
    return [row["topic"] for row in screen.shown()]


def test_rows_are_sorted_and_unknown_values_are_last(screen):
    assert names(screen) == ["cc", "a", "b"]
    screen.press("r")
    assert names(screen) == ["a", "cc", "b"]
    screen.sorted_by, screen.is_reversed = "topic", False
    assert names(screen) == ["a", "b", "cc"]


def test_characters_go_to_the_filter_until_enter(screen):
    for key in ["/", "C", "q", "backspace", "enter"]:
        screen.press(key)
    assert (names(screen), screen.is_over) == (["cc"], False)
    screen.press("escape")
    assert len(names(screen)) == 3
    screen.press("/")
    for _ in range(FILTER_MAX + 5):
        screen.press("x")
    assert len(screen.filter) == FILTER_MAX


def test_enter_opens_the_chosen_row_and_escape_closes_it(screen):
    for key in ["down", "enter"]:
        screen.press(key)
    assert (screen.mode, screen.detail) == (Mode.DETAIL, "a")
    screen.press("escape")
    assert screen.mode is Mode.LIST
    screen.press("p")
    assert screen.is_paused
    screen.press("tab")
    assert screen.view is View.GROUPS
    screen.press("enter")
    assert screen.mode is Mode.LIST, "there is no row to open"


def test_parts_that_do_not_fit_are_scrolled_and_steps_begin_at_what_is_visible(screen):
    screen.press("enter")
    screen.details = [{"partition": number} for number in range(30)]

    def first_and_last():
        lines = [line.split() for line in screen.lines(80, 14, "", color=False)[2:12]]
        return int(lines[0][0]), int(lines[-1][0])

    assert first_and_last() == (0, 9)
    screen.press("page-down")
    assert first_and_last() == (10, 19)
    for _ in range(9):
        screen.press("page-down")
    assert first_and_last() == (20, 29)
    screen.press("up")
    assert first_and_last() == (19, 28)
    parts, screen.details = screen.details, []
    screen.lines(80, 14, "")
    screen.press("page-down")
    screen.details = parts
    assert first_and_last() == (19, 28), "a look without parts keeps the place"
    screen.press("escape")
    screen.press("enter")
    assert screen.detail_first == 0


def test_a_page_is_what_fits(screen):
    screen.update([{"topic": f"t{number:03}"} for number in range(100)])
    for height, selected in ((24, 20), (34, 50), (9, 55)):
        screen.lines(80, height, "")
        screen.press("page-down")
        assert screen.selected == selected
    screen.press("page-up")
    assert screen.selected == 50


def test_history_is_bounded_and_forgets_rows_that_are_gone(screen):
    for _ in range(HISTORY_MAX + 5):
        screen.update([{"topic": "a", "records_s": 1.0}])

    assert [len(it) for it in screen.history.values()] == [HISTORY_MAX]


def test_keys_are_split_from_what_a_terminal_sends():
    assert split_keys("q\x1b[A\x1b[1;5C\x1b[Bé\x01\t\r\x7f\x1b") == [
        "q", "up", "down", "é", "tab", "enter", "backspace", "escape",
    ]  # fmt: skip


def test_keys_that_arrive_in_pieces_are_whole():
    sent = "é\x1b[6~\x1bOB\x1b[1;5Cq".encode()
    for at in range(1, len(sent)):
        reader = KeyReader()
        found = reader.keys(sent[:at]) + reader.keys(sent[at:])
        assert found == ["é", "page-down", "down", "q"], at
    reader = KeyReader()
    assert [reader.keys(sent[at : at + 1]) for at in range(len(sent))][-1] == ["q"]


def test_the_escape_key_is_one_when_nothing_follows_it():
    reader = KeyReader()
    assert reader.keys(b"a\x1b") == ["a"]
    assert reader.keys(b"") == ["escape"]
    assert reader.keys(b"") == []
    assert reader.keys(b"\x1b") == []
    assert reader.keys(b"q") == ["escape", "q"]
    assert reader.keys(b"\x1b[" + b"1" * 40) == [], "no sequence is as long"
    assert reader.keys(b"q") == ["q"]


def test_rates_are_differences_and_a_shrunk_log_has_none():
    tp, other = TopicPartition("t", 0), TopicPartition("t", 1)
    before = Look(1000, [], {tp: 1, other: 1}, {tp: 10, other: 5}, {(tp, 1): 500, (other, 1): 900})
    now = Look(3000, [], {tp: 1, other: 1}, {tp: 30, other: 5}, {(tp, 1): 700, (other, 1): 100})

    assert topic_rows(before, now) == [
        {"topic": "t", "partitions": 2, "records_s": 10.0, "bytes_s": 100.0, "size": 800}
    ]
    assert topic_rows(None, now)[0]["records_s"] is None


@pytest.mark.parametrize("view", ["topics", "groups", "brokers", "clients", "quotas", "mirrors"])
def test_once_prints_the_rows_of_a_cluster(on, topic, name, view):
    on("produce", topic, "a", "b")
    on("consume", topic, "-g", f"{name}-g", "--from-beginning", "-m", 1)
    ran = on("top", view, "--once", "--every", "10ms", "-o", "json")

    assert ran.status == 0, ran.err
    if view == "topics":
        [row] = [it for it in ran.documents if it["topic"] == topic]
        assert (row["partitions"], row["records_s"]) == (3, 0)
    if view == "quotas":
        assert "add --metrics" in ran.err
    if view == "mirrors":
        assert ran.documents == []
    if view == "groups":
        [row] = [it for it in ran.documents if it["group"] == f"{name}-g"]
        assert row["lag"] == 1


def test_the_table_of_one_look_has_the_units_of_the_screen(on, topic):
    on("produce", topic, "x" * 2_000)
    ran = on("top", "--once", "--every", "10ms")

    heading, *rows = ran.lines
    assert heading.split() == ["TOPIC", "RECORDS/S", "BYTES/S", "SIZE", "PARTITIONS"]
    [row] = [it for it in rows if it.startswith(f"{topic} ")]
    assert re.fullmatch(rf"{topic} +0\.0 +0 B/s +2(\.\d+)? KiB +3", row)


def test_without_a_terminal_it_needs_once(on):
    assert on("top").status == 2
    assert on("top", "-o", "json").status == 2
    assert on("top", "--every", "0").status == 2


TOP = ("top", "--every", "50ms", "-b")


def check_restored(terminal, text, after):
    assert after == terminal.before
    assert text.count("\x1b[?1049h") == text.count("\x1b[?1049l") == 1
    assert text.index("\x1b[?25h") > text.index("\x1b[?25l")


def test_keys_on_a_real_terminal(kctl_broker, kctl, name, open_terminal):
    kctl("topic", "create", name, "-p", 40, "-r", 1, "-b", kctl_broker)
    terminal = open_terminal(*TOP, kctl_broker, width=120, NO_COLOR="1")
    # There may be more topics than lines. The topic is opened once the first look has found it.
    terminal.wait_for("kctl top topics")
    terminal.press(f"/{name}\r")
    terminal.wait_for(f"kctl top topics  1  by records/s descending  filter {name}")
    # A page follows at once, and is that of the partitions.
    terminal.press("\r\x1b[6~")
    terminal.wait_for("END-OFFSET")
    terminal.wait_for(f"{39:>9}  ")
    terminal.press("\x1b")
    terminal.press("\t")
    terminal.wait_for("kctl top groups")
    terminal.press("q")
    status, text, after = terminal.end()

    assert status == 0
    check_restored(terminal, text, after)
    assert "\x1b[1m" not in text


def test_brokers_that_do_not_answer_are_noted_in_the_title(screen):
    screen.waits_s = 7
    assert "NO ANSWER FOR 7s" in screen.lines(80, 24, "", color=False)[0]
    screen.waits_s = 0
    assert "NO ANSWER" not in screen.lines(80, 24, "", color=False)[0]


def test_a_paused_screen_looks_once_at_a_new_view(kctl_broker, kctl, name, open_terminal):
    kctl("topic", "create", name, "-p", 1, "-r", 1, "-b", kctl_broker)
    terminal = open_terminal(*TOP, kctl_broker, width=120, NO_COLOR="1")
    terminal.wait_for("kctl top topics")
    terminal.press("p\t\t")
    terminal.wait_for("kctl top brokers  1  by bytes/s descending  PAUSED")
    terminal.press("q")
    assert terminal.end()[0] == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_restores_the_terminal(kctl_broker, number, open_terminal):
    terminal = open_terminal(*TOP, kctl_broker)
    terminal.wait_for("kctl top topics")
    terminal.process.send_signal(number)
    status, text, after = terminal.end()

    assert status == 128 + number
    check_restored(terminal, text, after)


def test_an_unreachable_cluster_restores_the_terminal(open_terminal):
    terminal = open_terminal(*TOP, "127.0.0.1:1", "--timeout", "500ms")
    status, text, after = terminal.end()

    assert status == 3
    check_restored(terminal, text, after)
