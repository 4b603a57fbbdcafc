"""kctl mirror translate and status, against brokers with what a mirror keeps."""

import json

import pytest

from kctl.cli.app import run as kctl
from kctl.mirror.formats import MappedRun, MirrorPosition
from kctl.mirror.offset_map import OffsetMap
from kctl.mirror.translation import Translator
from kctl.model import TopicPartition
from tests.mirror.mirrored_pair import NAME, ORDERS, mirrored_pair, with_admin
from tests.mirror.proof_support import records_of


@pytest.mark.parametrize("seed", range(10))
def test_a_thousand_offsets_are_translated_exactly(seed, rng_of):
    """A source with gaps, a target with gaps of its own: compare with every record's place."""
    rng = rng_of(seed)
    places, runs = {}, []
    source, target = 0, rng.randrange(50)
    while source < 1_000:
        count = rng.choice((1, 2, 7, 40))
        runs.append(MappedRun(ORDERS, "orders", source, target, count))
        places |= {source + n: target + n for n in range(count)}
        source += count + rng.choice((0, 1, 9))
        target += count + rng.choice((0, 1, 2))
    translator = Translator(
        {ORDERS: OffsetMap(runs)}, {ORDERS: MirrorPosition(source + 3, None, ORDERS)}
    )
    copied = sorted(places)
    for offset in range(source + 4):
        following = [at for at in copied if at >= offset]
        expected = places[following[0]] if following else places[copied[-1]] + 1
        assert translator.to_target(ORDERS, offset).to_offset == expected
    for at, there in places.items():
        assert translator.to_source(ORDERS, there).to_offset == at
    end = places[copied[-1]] + 1
    assert translator.to_source(ORDERS, end).to_offset == source + 3
    assert translator.to_target(ORDERS, source + 4).to_offset is None
    assert translator.to_source(ORDERS, end + 1).to_offset is None


def test_where_a_mirror_begins_is_known_before_its_first_record():
    """A group that has read a partition to its end, of which nothing was copied since."""
    begin = MappedRun(ORDERS, "copy", 20, 0, 0)
    position = {ORDERS: MirrorPosition(20, None, ORDERS)}
    translator = Translator({ORDERS: OffsetMap([begin])}, position)
    found = translator.at_beginning(ORDERS, 20)
    assert (found.to_partition, found.to_offset) == (TopicPartition("copy", 0), 0)
    assert [translator.at_beginning(ORDERS, it) for it in (19, 21)] == [None, None]
    # Others may have written to the target: only the caller knows whether that matters.
    assert translator.to_target(ORDERS, 20).to_offset is None
    first = MappedRun(ORDERS, "copy", 30, 7, 5)
    position = {ORDERS: MirrorPosition(35, None, ORDERS)}
    translator = Translator({ORDERS: OffsetMap([begin, first])}, position)
    assert [translator.to_target(ORDERS, it).to_offset for it in (20, 29, 31)] == [7, 7, 8]
    # What precedes the mirror's beginning is at the target under no known offset.
    assert translator.to_target(ORDERS, 19).reason == "the map begins at offset 30"


@pytest.fixture
def rng_of():
    from random import Random  # noqa: TID251 - seeded

    return Random


@pytest.fixture(scope="module")
def pair():
    """Records 0 to 49 and 60 to 89 of 100 were copied."""
    with mirrored_pair(records_of(100), [(0, 0, 50), (60, 50, 30)], 90) as (source, target):
        with_admin(source, lambda admin: admin.offsets.commit("billing", {ORDERS: 55}))
        with_admin(source, lambda admin: admin.offsets.commit("fast", {ORDERS: 95}))
        with_admin(target, lambda admin: admin.offsets.commit("billing", {ORDERS: 80}))
        yield source.bootstrap_servers, target.bootstrap_servers


@pytest.fixture
def mirror(pair, capfdbinary):
    def run(command, *words, source=True):
        ends = ["--source", pair[0]] if source else []
        ends += ["--target", pair[1], "--name", NAME, "-o", "json"]
        status = kctl(["mirror", command, *words, *ends])
        captured = capfdbinary.readouterr()
        return status, json.loads(captured.out or b"[]"), captured.err.decode()

    return run


def test_the_offsets_of_a_group_are_translated(mirror):
    status, found, _ = mirror("translate", "billing")
    assert status == 0
    assert [(it["offset"], it["to_offset"], it["result"]) for it in found] == [(55, 50, "exact")]


def test_an_offset_that_is_not_copied_yet_is_not_guessed(mirror):
    status, found, _ = mirror("translate", "fast")
    assert status == 1
    assert [(it["to_offset"], it["result"]) for it in found] == [
        (None, "the mirror has copied up to offset 90")
    ]


def test_offsets_are_translated_in_both_directions_without_the_source(mirror):
    status, found, _ = mirror(
        "translate", "--offset", "orders:0:10", "--offset", "orders:0:61", source=False
    )
    assert (status, [it["to_offset"] for it in found]) == (0, [10, 51])
    status, found, _ = mirror("translate", "--to-source", "--offset", "orders:0:51", source=False)
    assert (status, [it["to_offset"] for it in found]) == (0, [61])
    status, found, _ = mirror("translate", "--to-source", "billing", source=False)
    assert (status, [it["to_offset"] for it in found]) == (0, [90])
    status, found, _ = mirror("translate", "--offset", "orders:7:0", source=False)
    assert (status, found[0]["result"]) == (1, "the mirror has copied nothing of it")


def test_what_translate_does_not_take(mirror):
    assert mirror("translate")[0] == 2
    assert mirror("translate", "billing", "--offset", "orders:0:1")[0] == 2
    assert mirror("translate", "--offset", "orders:1")[0] == 2
    assert mirror("translate", "unknown")[0] == 1


def test_the_lag_is_shown_in_records_bytes_and_time(mirror):
    status, found, _ = mirror("status")
    assert status == 0
    (row,) = found
    assert (row["position"], row["end"], row["lag_records"]) == (90, 100, 10)
    assert row["state"] == "behind"
    assert row["lag_bytes"] > 0
    # The oldest record that is not copied is years old.
    assert row["lag_ms"] > 365 * 24 * 3600 * 1000


def test_the_lag_is_watched_until_the_mirror_has_caught_up(clusters, capfdbinary):
    clusters.source.create_topic("watched")
    clusters.produce("watched", [b"1", b"2"])
    assert not clusters.mirror("watched", name="seen").has_failed
    ends = ["--source", clusters.source.bootstrap_servers]
    ends += ["--target", clusters.target.bootstrap_servers, "--name", "seen"]
    status = kctl(["mirror", "watch", *ends, "--until-caught-up", "-o", "ndjson"])
    (row,) = map(json.loads, capfdbinary.readouterr().out.splitlines())
    assert status == 0
    assert (row["topic"], row["lag_records"], row["state"]) == ("watched", 0, "caught up")
    assert kctl(["mirror", "watch", *ends, "-o", "json"]) == 2
    assert kctl(["mirror", "watch", *ends, "--every", "0s"]) == 2
    assert kctl(["mirror", "watch", *ends, "--name", "unseen"]) == 1


def test_partitions_of_which_nothing_was_copied_stand_at_the_start_of_the_source(
    clusters, capfdbinary
):
    clusters.source.create_topic("grown")
    clusters.produce("grown", [b"1", b"2"])
    assert not clusters.mirror("grown", name="grows").has_failed

    async def change(source, _target):
        await source.topics.add_partitions({"grown": 3})

    clusters.do(change)
    for value in (b"3", b"4", b"5"):
        clusters.source.produce("grown", value, partition=1)
    clusters.do(lambda source, _: source.offsets.delete_records({TopicPartition("grown", 1): 1}))
    ends = ["--source", clusters.source.bootstrap_servers]
    ends += ["--target", clusters.target.bootstrap_servers, "--name", "grows"]
    assert kctl(["mirror", "status", *ends, "-o", "json"]) == 0
    found = json.loads(capfdbinary.readouterr().out)
    assert [
        (it["partition"], it["position"], it["end"], it["lag_records"], it["state"]) for it in found
    ] == [(0, 2, 2, 0, "caught up"), (1, 1, 3, 2, "behind"), (2, 0, 0, 0, "caught up")]


def status_of(clusters, capfdbinary, name, *, source=None):
    """Return the exit status, (topic, partition, target, lag, state) of each row, and stderr."""
    ends = ["--source", source or clusters.source.bootstrap_servers]
    ends += ["--target", clusters.target.bootstrap_servers, "--name", name, "-o", "json"]
    status = kctl(["mirror", "status", *ends])
    captured = capfdbinary.readouterr()
    rows = [
        (it["topic"], it["partition"], it["target"], it["lag_records"], it["state"])
        for it in json.loads(captured.out or b"[]")
    ]
    return status, rows, captured.err.decode()


def test_topics_of_which_nothing_was_copied_are_listed(clusters, capfdbinary):
    clusters.source.create_topic("kept-first")
    clusters.source.create_topic("kept-empty", partitions=2)
    clusters.produce("kept-first", [b"1"])
    rename = {"name": "kept", "rename": "copy.{topic}"}
    assert not clusters.mirror("kept-*", **rename).has_failed
    expected = [
        ("kept-empty", 0, "copy.kept-empty", 0, "caught up"),
        ("kept-empty", 1, "copy.kept-empty", 0, "caught up"),
        ("kept-first", 0, "copy.kept-first", 0, "caught up"),
    ]
    assert status_of(clusters, capfdbinary, "kept") == (0, expected, "")

    # A topic that was created while no mirror runs; another one that is not selected.
    for topic in ("kept-later", "unkept"):
        clusters.source.create_topic(topic)
        clusters.produce(topic, [b"1", b"2"])
    later = ("kept-later", 0, "copy.kept-later", 2, "behind")
    assert status_of(clusters, capfdbinary, "kept") == (0, [*expected, later], "")

    assert not clusters.mirror("kept-*", **rename).has_failed
    later = ("kept-later", 0, "copy.kept-later", 0, "caught up")
    assert status_of(clusters, capfdbinary, "kept") == (0, [*expected, later], "")
    # A name selects other topics now.
    assert not clusters.mirror("kept-first", **rename).has_failed
    status, rows, _ = status_of(clusters, capfdbinary, "kept")
    # Those that it has begun stay.
    topics = ["kept-empty", "kept-empty", "kept-first", "kept-later"]
    assert (status, [row[0] for row in rows]) == (0, topics)


def test_a_mirror_without_any_position_has_a_status(clusters, capfdbinary):
    clusters.source.create_topic("hollow")
    assert not clusters.mirror("hollow", name="hollow").has_failed
    rows = [("hollow", 0, "hollow", 0, "caught up")]
    assert status_of(clusters, capfdbinary, "hollow") == (0, rows, "")


def test_it_is_said_if_the_target_does_not_know_which_topics_are_selected(
    mirror, clusters, capfdbinary
):
    # This mirror is older, or its choice has expired.
    status, rows, err = mirror("status")
    assert (status, len(rows)) == (0, 1)
    assert f"warning: the target does not know which topics mirror {NAME} selects" in err

    # Its patterns are longer than what a target keeps.
    clusters.source.create_topic("wordy")
    clusters.produce("wordy", [b"1"])
    said = []
    report = clusters.mirror("wordy", *("x" * 200 for _ in range(25)), name="wordy", said=said)
    assert not report.has_failed
    assert [line for line in said if "too long to be kept" in line] == said != []
    status, rows, err = status_of(clusters, capfdbinary, "wordy")
    assert (status, rows) == (0, [("wordy", 0, "wordy", 0, "caught up")])
    assert "does not know which topics mirror wordy selects" in err


def test_the_status_at_another_cluster_is_refused(clusters, pair, capfdbinary):
    clusters.source.create_topic("orders")
    clusters.produce("orders", [b"1"])
    assert not clusters.mirror("orders", name="asked").has_failed
    status, rows, err = status_of(clusters, capfdbinary, "asked", source=pair[0])
    assert (status, rows) == (2, [])
    assert "Mirror asked copies cluster" in err
    ends = ["--source", pair[0], "--target", clusters.target.bootstrap_servers, "--name", "asked"]
    for command in ("translate", "switch"):
        assert kctl(["mirror", command, "billing", *ends]) == 2
        assert "Mirror asked copies cluster" in capfdbinary.readouterr().err.decode()
