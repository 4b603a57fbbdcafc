"""kctl group lag."""

import json
import re
import signal

import pytest

from kctl.cli.table_text import text_width
from tests.support.waiting import wait_for

T0_MS = 1_600_000_000_000


@pytest.fixture
def group(on, topic, name):
    """A group without members that has read the first of four records, an hour apart."""
    for hour in range(4):
        on("produce", topic, f"value {hour}", "-p", 0, "--timestamp", T0_MS + hour * 3_600_000)
    ran = on("consume", topic, "-g", f"{name}-group", "--from-beginning", "-m", 1)
    assert ran.lines == ["value 0"], ran.err
    return f"{name}-group"


def test_the_lag_in_records_bytes_and_time(on, group):
    [document] = on("group", "lag", group, "-o", "json").documents

    assert (document["records"], document["time_ms"]) == (3, 2 * 3_600_000)
    [partition] = [it for it in document["partitions"] if it["partition"] == 0]
    assert (partition["committed_offset"], partition["end_offset"]) == (1, 4)
    assert partition["unread_since"] == "2020-09-13T13:26:40.000Z"
    # Three of four batches that are alike.
    assert document["estimated_bytes"] == partition["estimated_bytes"]
    assert 3 * 70 <= document["estimated_bytes"] <= 3 * 90
    # It has no members.
    assert document["trend"] == "stopped"


def test_a_group_that_has_read_everything_is_0_behind_and_steady(on, group, topic):
    on("consume", topic, "-g", group, "--exit")
    [document] = on("group", "lag", group, "-o", "json").documents

    assert [document[key] for key in ("records", "estimated_bytes", "time_ms")] == [0, 0, 0]
    assert document["trend"] == "steady"


def test_the_status_is_1_above_a_limit(on, group):
    assert on("group", "lag", group, "--fail-above", "3").status == 0
    assert on("group", "lag", group, "--fail-above", "2h").status == 0
    ran = on("group", "lag", group, "--fail-above", "2", "--fail-above", "90m")

    assert ran.status == 1
    assert f"{group} is 3 records behind, more than 2" in ran.err
    assert f"{group} is 2h00m behind, more than 1h30m" in ran.err
    assert on("group", "lag", f"{group}-x").status == 1


@pytest.mark.parametrize("words", [(), ("--watch", "-o", "ndjson")], ids=["once", "watched"])
def test_a_limit_for_groups_that_do_not_exist_is_an_error(on, group, words):
    ran = on("group", "lag", f"{group}-not*", "--fail-above", "2h", *words)
    assert ran.status == 1
    assert f"error: No group matches {group}-not*" in ran.err
    assert on("group", "lag", f"{group}-not*").status == 0


def test_lags_are_drawn_as_bars(on, topic, group, monkeypatch):
    drawn = on("group", "lag", group, "--plot").lines[-1]
    monkeypatch.setenv("NO_COLOR", "1")
    ascii_only = on("group", "lag", group, "--by-partition", "--plot").lines[-1]

    assert drawn.startswith(group)
    assert drawn.endswith("3 records, 2h00m")
    assert "█" in drawn
    assert "###" in ascii_only
    assert ascii_only.isascii()
    on("consume", topic, "-g", group, "-m", 2)
    assert on("group", "lag", group, "--plot").lines[-1].endswith(" 1 record, 0ms")


def test_no_bars_take_no_line(on, group):
    ran = on("group", "lag", f"{group}-not*", "--plot")
    assert len(ran.lines) == 1


def test_what_a_lag_leaves_out_is_noted(on, topic, name):
    on("produce", topic, "-p", 0, "a", "b")
    on("consume", topic, "-g", f"{name}-part", "--from-beginning", "-m", 2)
    on("produce", topic, "-p", 2, "c")
    ran = on("group", "lag", f"{name}-part", "-o", "json")
    [found] = ran.documents
    left_out = [it for it in found["partitions"] if it["committed_offset"] is None]
    assert found["uncommitted_partitions"] == len(left_out) == 2
    assert ran.err == (
        f"note: {name}-part: 1 record in 2 partitions without a committed offset not counted\n"
    )


def test_records_larger_than_a_part_of_a_response_have_times(on, topic, name, tmp_path):
    value = tmp_path / "value"
    value.write_text("x" * 300_000)
    on("produce", topic, "-p", 1, "-f", value, "--timestamp", T0_MS)
    on("produce", topic, "-p", 1, "-f", value, "--timestamp", T0_MS + 500)
    on("group", "reset-offsets", f"{name}-large", "-t", topic, "--to-earliest", "-y")
    [document] = on("group", "lag", f"{name}-large", "-o", "json").documents

    assert (document["records"], document["time_ms"]) == (2, 500)


def test_a_window_of_samples_is_taken_first(on, group):
    ran = on("group", "lag", group, "--window", "30ms", "--every", "10ms", "-o", "json")

    assert ran.documents[0]["records"] == 3


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_watched_lag_follows_the_group_on_a_real_terminal(
    kctl_broker, kctl, name, width, open_terminal
):
    address = ("-b", kctl_broker)
    kctl("topic", "create", name, "-p", 1, "-r", 1, *address)
    kctl("produce", name, "a", "b", "c", *address)
    kctl("group", "reset-offsets", f"{name}-group", "-t", name, "--to-earliest", "-y", *address)
    terminal = open_terminal(
        "group", "lag", f"{name}-group", "--watch", "--plot", "--every", "50ms", *address,
        width=width,
    )  # fmt: skip

    def is_shown(records):
        # The last screen that is whole.
        screens = terminal.read().split("\x1b[2J")[1:-1]
        return bool(screens) and re.search(rf"Empty +{records} ", screens[-1])

    wait_for(lambda: is_shown(3), lambda: terminal.text[-2000:])
    kctl("produce", name, "d", *address)
    wait_for(lambda: is_shown(4), lambda: terminal.text[-2000:])
    terminal.process.send_signal(signal.SIGINT)
    status, text, after = terminal.end()

    assert status == 128 + signal.SIGINT
    assert after == terminal.before
    for line in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text).splitlines():
        assert text_width(line) <= width
        assert line.isprintable()
    assert "stopped" in text
    assert "█" in text


def test_a_watch_ends_with_status_1_when_a_group_is_further_behind(
    kctl_broker, kctl, name, open_terminal
):
    address = ("-b", kctl_broker)
    kctl("topic", "create", name, "-p", 1, "-r", 1, *address)
    kctl("produce", name, "a", "b", "c", *address)
    kctl("group", "reset-offsets", f"{name}-group", "-t", name, "--to-earliest", "-y", *address)
    terminal = open_terminal(
        "group", "lag", f"{name}-group", "--watch", "--every", "20ms", "--fail-above", "3", *address
    )

    # The second screen: the watch goes on at the limit.
    wait_for(
        lambda: terminal.read().count("\x1b[2J") > 1, lambda: f"no screen: {terminal.text[-2000:]}"
    )
    kctl("produce", name, "d", *address)
    wait_for(lambda: terminal.process.poll() is not None, lambda: terminal.read()[-2000:])
    status, text, after = terminal.end()

    assert status == 1
    assert after == terminal.before
    last = text.split("\x1b[2J")[-1]
    assert re.search(r"Empty +4 ", last)
    assert f"error: {name}-group is 4 records behind, more than 3" in last


def test_a_watch_of_lines_ends_above_a_limit_as_well(on, group):
    ran = on("group", "lag", group, "--watch", "--fail-above", "90m", "-o", "ndjson")

    assert ran.status == 1
    assert [json.loads(line)["records"] for line in ran.lines] == [3]
    assert f"{group} is 2h00m behind, more than 1h30m" in ran.err
