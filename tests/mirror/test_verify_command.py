"""kctl mirror verify: what it prints, and its exit status."""

import json

import pytest

from kctl.cli.app import run as kctl
from kctl.mirror.formats import group_of, map_topic_of
from kctl.model import TopicPartition
from kctl.runtime.real.disk import RealDisk
from tests.export.log_files import batch_of, write_segment
from tests.mirror.mirrored_pair import mirrored_pair
from tests.mirror.proof_support import records_of

TIME = "2020-09-13T12:26:40"


@pytest.fixture
def directories(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    batches = [batch_of(offset) for offset in range(0, 100, 10)]
    for partition in (0, 1):
        write_segment(RealDisk(), source / f"orders-{partition}", 0, batches)
        write_segment(RealDisk(), target / f"orders-{partition}", 0, batches)
    return source, target


@pytest.fixture
def verify(capfdbinary):
    def run(source, target, *words):
        arguments = ["mirror", "verify", "--source", source, "--target", target, *words]
        status = kctl([str(each) for each in arguments])
        captured = capfdbinary.readouterr()
        return status, captured.out.decode(), captured.err.decode()

    return run


def test_equal_directories(verify, directories):
    status, out, _ = verify(*directories, "-o", "json", "-j", "2")
    assert status == 0
    found = json.loads(out)
    assert [(it["partition"], it["equal"], it["result"]) for it in found] == [
        (0, 100, "equal"),
        (1, 100, "equal"),
    ]


def test_differences_are_listed_and_the_status_is_1(verify, directories):
    source, target = directories
    write_segment(
        RealDisk(), target / "orders-1", 0, [batch_of(at) for at in range(0, 100, 10) if at != 40]
    )
    status, out, _ = verify(source, target)
    assert status == 1
    assert ["orders", "1", "missing", "40", "50", "10", "-"] in [
        line.split() for line in out.splitlines()
    ]
    status, out, _ = verify(source, target, "-o", "json")
    assert status == 1
    assert json.loads(out)[1]["differences"] == [
        {
            "difference": "missing", "source_offset": 40, "target_offset": 50, "records": 10,
            "fields": [], "reason": None,
        }
    ]  # fmt: skip


def test_a_topic_that_the_target_lacks(verify, directories):
    source, target = directories
    (target / "orders-0").rename(target / "west.orders-0")
    status, out, _ = verify(source, target, "--rename", "prefix", "--source-alias", "west")
    assert status == 1
    assert "not compared: the target has no partition west.orders-1" in " ".join(out.split())


def test_offsets_and_other_topics_are_refused(verify, directories):
    status, _, err = verify(*directories, "--offset", "5")
    assert status == 2
    assert "an offset is not the same place on both sides" in err
    status, _, err = verify(*directories, "-t", "payments")
    assert status == 1
    assert "No topic payments" in err
    status, _, err = verify(*directories, "--name", "west")
    assert status == 2


def test_a_time_limits_the_comparison(verify, directories):
    status, out, _ = verify(
        *directories, "--offset", f"@{TIME}..@2020-09-13T12:27:00Z", "-o", "json"
    )
    assert status == 0
    assert json.loads(out)[0]["equal"] == 20


@pytest.fixture
def mirrored():
    """Records 0 to 49 and 60 to 89 of 100 were copied; 50 to 59 were left out."""
    with mirrored_pair(records_of(100), [(0, 0, 50), (60, 50, 30)], 90) as (source, target):
        yield source.bootstrap_servers, target.bootstrap_servers


def test_the_map_of_a_mirror_says_where_each_record_is(verify, mirrored):
    status, out, err = verify(*mirrored, "--name", "west", "-o", "json")
    assert not err
    found = json.loads(out)[0]
    assert status == 1
    assert found["source_offsets"] == [0, 90]
    assert found["target_offsets"] == [0, 80]
    assert found["equal"] == 80
    assert [
        (it["difference"], it["source_offset"], it["records"]) for it in found["differences"]
    ] == [("missing", 50, 10)]
    status, _, err = verify(*mirrored, "--name", "east")
    assert status == 1
    assert "The target has no mirror east" in err


def test_the_name_of_a_mirror_says_which_topics_it_copies_and_what_they_are_called(
    verify, clusters
):
    for topic in ("seen-1", "seen-2", "unseen"):
        clusters.source.create_topic(topic)
        clusters.produce(topic, [b"1", b"2"])
    assert not clusters.mirror("seen-*", name="seen", rename="copy.{topic}").has_failed
    ends = (clusters.source.bootstrap_servers, clusters.target.bootstrap_servers)

    def found(*words):
        status, out, err = verify(*ends, "--name", "seen", "-o", "json", *words)
        assert not err
        return status, [(it["topic"], it["target"], it["equal"]) for it in json.loads(out)]

    both = [("seen-1", "copy.seen-1", 2), ("seen-2", "copy.seen-2", 2)]
    assert found() == (0, both)
    assert found("--topics", "seen-2") == (0, both[1:])
    # What its positions say if it does not keep which topics it selects.
    group = group_of("seen")
    kept = TopicPartition(map_topic_of("seen"), 0)
    clusters.do(lambda _, target: target.offsets.delete_committed(group, [kept]))
    assert found() == (0, both)
    assert found("--topics", "unseen")[0] == 1
    assert found("--rename", "other.{topic}")[0] == 1
