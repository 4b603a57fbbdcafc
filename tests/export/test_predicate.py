"""SQL conditions: the offsets that a condition selects hold every row that satisfies it, as another
reader of SQL judges them."""

import sqlite3
from random import Random  # noqa: TID251 - seeded

import pytest

from kctl.export.spark.predicate import parse_predicate
from kctl.model import TopicPartition

PARTITIONS = [
    TopicPartition(topic, number) for topic in ("orders", "payments") for number in (0, 1)
]
# topic, partition, offset, timestamp in milliseconds, value
ROWS = [
    (it.topic, it.partition, offset, 1000 + (offset * 7) % 40, str(offset % 3))
    for it in PARTITIONS
    for offset in range(20)
]
SEED, CONDITIONS = 5, 500


def microseconds(text):
    return int(text.strip()) * 1000 if text.strip().isdigit() else None


def region_of(text, partition=PARTITIONS[1]):
    return parse_predicate(text, microseconds).root.region(partition)


def random_comparison(rng):
    number = rng.randrange(-2, 22)
    op = rng.choice(["=", "==", "<", "<=", ">", ">=", "<>", "!="])
    negation = rng.choice(["", "NOT "])
    return rng.choice([
        f"offset {op} {number}", f"{number} {op} `offset`", f"partition {op} {rng.randrange(3)}",
        f"Timestamp {op} {1000 + number}", f"{1000 + number} {op} timestamp",
        f"topic {negation}in ('orders', 'x')", f"topic {rng.choice(['=', '!='])} 'payments'",
        f"offset {negation}BETWEEN {number} and {number + 5}",
        f"offset {negation}in ({number}, 3, 4)", f"value {op} '1'", f"offset + 1 {op} {number}",
        f"offset {op} {number} + 2", f"offset % 2 = {number % 2}", "value like '1%'",
        f"timestamp {negation}between 1003 and {1005 + number}", f"({number} < offset)",
        "value = 'x and offset > 3'", "offset is not null", f"value in ('1', '{number}')",
    ])  # fmt: skip


def random_condition(rng, depth):
    if depth == 0 or rng.random() < 0.25:
        return random_comparison(rng)
    left, right = random_condition(rng, depth - 1), random_condition(rng, depth - 1)
    return rng.choice([
        f"{left} and {right}", f"{left} OR {right}", f"({left}) and not ({right})",
        f"not ({left} or {right})", f"(({left})) AND {right}", f"not {left} and {right}",
    ])  # fmt: skip


def test_no_row_that_satisfies_a_condition_is_left_out():
    rng = Random(SEED)
    tables = sqlite3.connect(":memory:")
    tables.execute("create table log (topic, partition, `offset`, timestamp, value)")
    tables.executemany("insert into log values (?, ?, ?, ?, ?)", ROWS)
    selective = exact = 0
    for _ in range(CONDITIONS):
        condition = random_condition(rng, 3)
        found = tables.execute(f"select * from log where {condition}").fetchall()
        predicate = parse_predicate(condition, microseconds)
        regions = {it: predicate.root.region(it) for it in PARTITIONS}
        for topic, partition, offset, time_ms, _value in found:
            region = regions[topic, partition]
            assert region.low <= offset, condition
            assert region.high is None or offset < region.high, condition
            assert region.time_ms is None or time_ms >= region.time_ms, condition
            assert region.time_end_ms is None or time_ms < region.time_end_ms, condition
        for partition, region in regions.items():
            selected = {it[2] for it in ROWS if it[:2] == partition and _is_in(region, it[2])}
            satisfying = {it[2] for it in found if it[:2] == partition}
            exact += region.is_exact and bool(selected)
            assert not region.is_exact or selected == satisfying, condition
        selective += any(it.low or it.high is not None or it.time_ms for it in regions.values())
    assert selective > CONDITIONS // 3
    assert exact > CONDITIONS // 10


def _is_in(region, offset):
    return region.low <= offset and (region.high is None or offset < region.high)


@pytest.mark.parametrize(
    ("condition", "low", "high", "time_ms"),
    [
        ("partition = 1 and offset > 1000 and timestamp >= 5000", 1001, None, 5000),
        ("offset >= 10 and offset < 20", 10, 20, None),
        ("offset between 5 and 7 or offset = 9", 5, 10, None),
        ("not (offset < 5 or offset >= 8)", 5, 8, None),
        ("offset in (7, 3) and value is not null", 3, 8, None),
        ("partition <=> 1 and 4 <= OFFSET", 4, None, None),
        ("timestamp between 7 and 9", 0, None, 7),
        ("timestamp < 9", 0, None, None),
        ("offset > 3 or value = 'x'", 0, None, None),
        ("case when offset > 3 and partition = 1 then true else false end", 0, None, None),
        ("offset > 3 -- and so on", 0, None, None),
        ("offset > 3 and value = 'it''s'", 0, None, None),
        ("offset > 3L and offset > 2.5 and offset > '4'", 0, None, None),
        ("offset > 3 is true", 0, None, None),
        ("offset > (3", 0, None, None),
        ("a.offset > 3 and 3 < a.offset", 0, None, None),
        ("timestamp > (select max(t) from times)", 0, None, None),
        ("", 0, None, None),
    ],
)
def test_what_a_condition_selects(condition, low, high, time_ms):
    region = region_of(condition)
    assert (region.low, region.high, region.time_ms) == (low, high, time_ms)


@pytest.mark.parametrize(
    ("condition", "time_end_ms"),
    [
        ("timestamp < 9", 9),
        ("timestamp <= 9 and timestamp < 20", 10),
        ("timestamp between 7 and 9", 10),
        ("not timestamp >= 9", 9),
        ("timestamp = 9", 10),
        ("timestamp < 9 or timestamp < 20", 20),
        ("timestamp < 9 or offset < 20", None),
        ("timestamp < 9 or partition = 0", 9),
        ("timestamp > 9", None),
        ("timestamp != 9", None),
    ],
)
def test_upper_bounds_of_times(condition, time_end_ms):
    assert region_of(condition).time_end_ms == time_end_ms


def test_a_bound_between_two_milliseconds():
    """As `timestamp < timestamp_micros(1500)` has it."""
    ends = {
        op: parse_predicate(f"timestamp {op} x", lambda _text: 1500).root.region(PARTITIONS[1])
        for op in ("<", "<=")
    }
    assert (ends["<"].time_end_ms, ends["<="].time_end_ms) == (2, 2)


@pytest.mark.parametrize(
    "condition", ["partition = 0", "topic = 'payments'", "offset < 0", "offset > 5 and offset < 3",
                  "partition in (0, 7) and true", "not topic in ('orders')",
                  "timestamp > 9 and timestamp < 5"],
)  # fmt: skip
def test_partitions_without_a_row(condition):
    assert region_of(condition).is_empty


def test_unused_parts_are_named():
    predicate = parse_predicate("value like 'a%' and (offset > 3 or key = 'k')", microseconds)
    assert predicate.unused == ["value like 'a%'", "key = 'k'"]


def test_a_deep_condition_selects_everything():
    assert not region_of("(" * 500 + "offset > 3" + ")" * 500).low
