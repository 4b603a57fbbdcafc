"""Filters, masks and functions on the way, and rings of mirrors in which each record stays one."""

import pytest

from kctl.errors import CorruptDataError, UsageError
from kctl.mirror.map_topic import read_map
from kctl.mirror.raw_batches import BUILT_BYTES_MAX, copy_batches
from kctl.mirror.record_changes import PATH_HEADER, Provenance, changed_range, path_of
from kctl.mirror.record_expressions import masking, parse_expression, parse_field
from kctl.model import TopicPartition
from kctl.records.builder import RecordBatchBuilder
from kctl.records.record import Record
from kctl.testing.kafka_broker import KafkaBroker
from tests.mirror.test_commands import kctl  # noqa: F401

RECORD = Record(7, 1000, b"k", b'{"country":"NO","n":3,"items":[{"id":"x"}]}', (("h", b"1"),))


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ('value.country == "NO"', True),
        ("value.n >= 3 and not value.n > 3", True),
        ('value.n == "3" or key != "k"', False),
        ('(value.items[0].id matches "^x$" or false_is_no_field.x == 1)', None),
        ('value.items[0].id matches "^x$"', True),
        ("value.missing == null and timestamp < 2000", True),
        ('headers.h == "1" and value contains "country"', True),
        ("headers.other", False),
        ("value.n < null", False),
        ("__import__('os')", None),
        ("value.n ==", None),
        ("(value.n == 3", None),
        ("value.n == 3 value", None),
        ('value matches "("', None),
        ("(" * 60, None),
        ("", None),
    ],
)
def test_an_expression_holds_or_is_refused(text, holds):
    if holds is None:
        with pytest.raises(UsageError):
            parse_expression(text)
    else:
        assert parse_expression(text)(RECORD) is holds


def test_a_mask_hides_a_field_and_stops_where_it_cannot():
    mask = masking(parse_field("value.items[0].id"))

    assert mask(RECORD).value == b'{"country":"NO","n":3,"items":[{"id":"***"}]}'
    assert mask(RECORD._replace(value=b'{ "a": 1 }')).value == b'{ "a": 1 }'
    assert masking(parse_field("headers.h"))(RECORD).headers == ()
    with pytest.raises(CorruptDataError):
        mask(RECORD._replace(value=b"card 1234"))


def test_a_batch_whose_records_grow_is_split_where_its_topic_takes_no_larger_ones():
    builder = RecordBatchBuilder()
    for number in range(10):
        builder.append(timestamp=number, key=None, value=b"v" * 100)
    found = copy_batches(builder.build(), 0, lambda _: False)

    [grown] = changed_range(found, Provenance("a", "b")).copies
    parts = changed_range(found, Provenance("a", "b"), grows=False).copies

    assert grown.size > found.size >= max(copy.size for copy in parts)
    assert [piece for copy in parts for piece in copy.pieces] == [(0, 8), (8, 2)]


def test_a_batch_whose_records_grow_stays_below_what_a_topic_takes():
    builder = RecordBatchBuilder()
    for _ in range(3):
        builder.append(timestamp=0, key=None, value=b"v" * 5)
    found = copy_batches(builder.build(), 0, lambda _: False)

    copies = changed_range(found, lambda it: it._replace(value=b"v" * 400_000)).copies

    assert [copy.pieces for copy in copies] == [[(0, 2)], [(2, 1)]]
    assert all(copy.size <= BUILT_BYTES_MAX for copy in copies)


def test_a_record_is_not_sent_where_it_has_been():
    once = Provenance("a", "b")(RECORD)

    assert path_of(once) == ["a"]
    assert Provenance("b", "a")(once) is None
    assert path_of(Provenance("b", "c")(once)) == ["a", "b"]
    assert Provenance("b", "c", only_from_origin=True)(once) is None


def mirror(kctl, source, target, topic, *more):  # noqa: F811
    return kctl(
        "mirror", "run", "--source", source.bootstrap_servers, "--target",
        target.bootstrap_servers, "--topics", topic, "--once", "--name",
        f"from-{source.port}-{more[0][2:]}", *more,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["--ring", "--mesh"])
def test_three_clusters_hold_each_record_once(kctl, clusters, kind):  # noqa: F811
    topic = "round" + kind
    with KafkaBroker() as third:
        brokers = [clusters.source, clusters.target, third]
        for number, broker in enumerate(brokers):
            broker.create_topic(topic)
            broker.produce(topic, f"{number}", partition=0)
        ways = [(0, 1), (1, 2), (2, 0)]
        if kind == "--mesh":
            ways += [(1, 0), (2, 1), (0, 2)]
        for _ in range(2 if kind == "--ring" else 1):
            for start, end in ways:
                status, _, err = mirror(kctl, brokers[start], brokers[end], topic, kind)
                assert status == 0, err

        for broker in brokers:
            assert sorted(it.value for it in broker.records(topic)) == [b"0", b"1", b"2"]
        headers = [dict(it.headers).get(PATH_HEADER) for it in third.records(topic)]
        assert sum(it is None for it in headers) == 1


def test_what_is_left_is_mapped_exactly_and_not_verified(kctl, clusters):  # noqa: F811
    topic = "filtered"
    clusters.source.create_topic(topic)
    clusters.produce(
        topic, [b'{"c":"%s","card":%d}' % (c, n) for n, c in enumerate([b"NO", b"SE"] * 3)]
    )
    words = ("--filter", 'value.c == "NO"', "--mask", "value.card")

    assert mirror(kctl, clusters.source, clusters.target, topic, *words)[0] == 0
    clusters.produce(topic, [b'{"c":"SE"}', b'{"c":"NO"}'])
    assert mirror(kctl, clusters.source, clusters.target, topic, *words)[0] == 0

    copied = clusters.target.records(topic)
    assert [it.value for it in copied] == [b'{"c":"NO","card":"***"}'] * 3 + [b'{"c":"NO"}']
    name = f"from-{clusters.source.port}-filter"
    found = clusters.do(lambda _, b: read_map(b.router, name))[TopicPartition(topic, 0)]
    kept = [0, 2, 4, 7]
    for offset in range(8):
        expected = next(n for n, at in enumerate(kept) if at >= offset)
        assert found.to_target(offset) == copied[expected].offset
    status, out, _ = kctl(
        "mirror", "verify", "--source", clusters.source.bootstrap_servers, "--target",
        clusters.target.bootstrap_servers, "--topics", topic, "--name", name, "-o", "json",
    )  # fmt: skip
    assert status == 1
    assert "cannot be compared" in out


def fail(record):
    raise ValueError(record.offset)


def test_a_function_that_fails_stops_the_partition(kctl, clusters):  # noqa: F811
    clusters.source.create_topic("broken")
    clusters.produce("broken", [b"1"])

    status, _, err = mirror(
        kctl, clusters.source, clusters.target, "broken", "--transform", f"{__name__}:fail"
    )

    assert status == 1
    assert "ValueError(0)" in err
    assert not clusters.target.records("broken")
