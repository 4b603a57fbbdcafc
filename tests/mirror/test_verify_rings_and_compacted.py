"""`kctl mirror verify` of rings and meshes, whose records carry where they were copied from, and of
compacted topics, by command."""

import json

import pytest

from kctl.mirror.record_changes import PATH_HEADER
from tests.mirror import test_commands
from tests.mirror.test_record_changes import mirror

pytestmark = pytest.mark.slow

kctl = test_commands.kctl
TIME = 1_700_000_000_000


@pytest.fixture
def verify(kctl, clusters):
    """Compare a topic; return the exit status and the document of partition 0."""

    def run(topic, *words, back=False):
        ends = [clusters.source.bootstrap_servers, clusters.target.bootstrap_servers]
        source, target = reversed(ends) if back else ends
        status, out, err = kctl(
            "mirror", "verify", "--source", source, "--target", target, "--topics", topic,
            "-o", "json", "-j", "1", *words,
        )  # fmt: skip
        assert not err, err
        return status, json.loads(out)[0]

    return run


def differences(document):
    return [
        (it["difference"], it["source_offset"], it["target_offset"])
        for it in document["differences"]
    ]


@pytest.mark.parametrize("kind", ["--ring", "--mesh"])
def test_both_ways_are_compared_by_what_each_mirror_copies(kctl, clusters, verify, kind):
    topic = "both" + kind
    ends = clusters.source, clusters.target
    for number, broker in enumerate(ends):
        broker.create_topic(topic)
        for at in range(5):
            broker.produce(topic, f"{number}-{at}", partition=0, headers=(("h", b"1"),))
    for _ in range(2):
        for source, target in (ends, ends[::-1]):
            assert mirror(kctl, source, target, topic, kind)[0] == 0
            source.produce(topic, "later", partition=0)
    for source, target in (ends, ends[::-1]):
        assert mirror(kctl, source, target, topic, kind)[0] == 0
    names = [f"from-{broker.port}-{kind[2:]}" for broker in ends]

    for name, back in zip(names, (False, True), strict=True):
        for words in (("--name", name), (kind,)):
            status, found = verify(topic, *words, back=back)
            assert (status, found["equal"], found["result"]) == (0, 7, "equal")

    # A record that claims to have been copied, and one that was copied and is gone.
    path = dict(clusters.target.records(topic)[-1].headers)[PATH_HEADER]
    clusters.target.produce(topic, "forged", partition=0, headers=((PATH_HEADER, path),))
    status, found = verify(topic, kind)
    assert (status, found["extra"], found["equal"]) == (1, 1, 7)
    clusters.source.produce(topic, "not copied", partition=0)
    status, found = verify(topic, kind)
    assert (status, found["equal"], found["changed"] + found["missing"]) == (1, 7, 1)


def test_what_precedes_the_first_record_that_a_mirror_of_a_ring_copies_is_no_gap(
    kctl, clusters, verify
):
    ends = clusters.source, clusters.target
    clusters.source.create_topic("one-way")
    clusters.produce("one-way", [b"1", b"2", b"3"])
    assert mirror(kctl, *ends, "one-way", "--ring")[0] == 0
    for value in (b"4", b"5"):
        clusters.target.produce("one-way", value, partition=0)
    assert mirror(kctl, *ends[::-1], "one-way", "--ring")[0] == 0

    name = f"from-{clusters.target.port}-ring"
    status, found = verify("one-way", "--name", name, back=True)
    assert (status, found["equal"], found["result"]) == (0, 2, "equal")


def write(broker, topic, items):
    for at, (key, value) in enumerate(items):
        broker.produce(topic, value, key=key, partition=0, timestamp=TIME + at)


def test_compacted_topics_are_equal_by_their_last_values(clusters, verify):
    for broker in (clusters.source, clusters.target):
        broker.create_topic("settings", configs={"cleanup.policy": "compact"})
    log = [("a", b"1"), ("b", b"1"), ("a", b"2"), ("c", b"1"), ("b", None)]
    write(clusters.source, "settings", log)
    # The target was compacted, and its tombstones were removed.
    for at in (2, 3):
        key, value = log[at]
        clusters.target.produce("settings", value, key=key, partition=0, timestamp=TIME + at)

    status, found = verify("settings")
    assert (status, found["equal"], found["compared"]) == (0, 2, "last values")
    assert found["result"] == "equal; last values of keys"
    status, found = verify("settings", "--compare", "records")
    assert (status, found["missing"]) == (1, 3)

    clusters.target.produce("settings", b"2", key="b", partition=0, timestamp=TIME)
    clusters.source.produce("settings", b"1", key="d", partition=0, timestamp=TIME)
    status, found = verify("settings")
    assert status == 1
    assert differences(found) == [("changed", 4, 2), ("missing", 5, None)]


def test_a_mirror_that_is_behind_is_judged_by_what_it_has_copied(kctl, clusters, verify):
    clusters.source.create_topic("behind", configs={"cleanup.policy": "compact"})
    write(clusters.source, "behind", [("a", b"1"), ("b", b"1")])
    ends = (
        "--source", clusters.source.bootstrap_servers,
        "--target", clusters.target.bootstrap_servers,
    )  # fmt: skip
    run = ("mirror", "run", *ends, "--topics", "behind", "--name", "behind", "--once")
    assert kctl(*run)[0] == 0
    write(clusters.source, "behind", [("a", b"2")])

    status, found = verify("behind", "--name", "behind")
    assert (status, found["equal"], found["pending_keys"]) == (0, 1, 1)
    # Without the map it is missing.
    assert verify("behind")[0] == 1
    assert kctl(*run)[0] == 0
    status, found = verify("behind", "--name", "behind")
    assert (status, found["equal"], found["pending_keys"]) == (0, 2, 0)


def test_a_compacted_topic_of_a_ring_is_not_compared(clusters, verify):
    for broker in (clusters.source, clusters.target):
        broker.create_topic("ring-compacted", configs={"cleanup.policy": "compact"})
    status, found = verify("ring-compacted", "--ring")
    assert status == 1
    assert "has its own last values on each side" in found["result"]
