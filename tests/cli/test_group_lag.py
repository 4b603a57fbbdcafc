"""kctl group lag."""

import pytest

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


def test_lags_are_drawn_as_bars(on, group, monkeypatch):
    drawn = on("group", "lag", group, "--plot").lines[-1]
    monkeypatch.setenv("NO_COLOR", "1")
    ascii_only = on("group", "lag", group, "--by-partition", "--plot").lines[-1]

    assert drawn.startswith(group)
    assert drawn.endswith("3 records, 2h00m")
    assert "█" in drawn
    assert "###" in ascii_only
    assert ascii_only.isascii()


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
