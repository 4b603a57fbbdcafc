"""MirrorMaker 1's files and options: what they mean, and what has no effect in kctl."""

import pytest

from kctl.cli import app
from kctl.cli.mirror.ends import EndOptions
from kctl.cli.mirror.mm1_options import Mm1Options
from kctl.cli.mirror.mm2_options import Mm2Options
from kctl.cli.mirror.topic_options import TopicOptions
from kctl.errors import UsageError
from kctl.mirror.mm1_config import parse_files

CONSUMER = {"bootstrap.servers": "a:9092", "group.id": "mm", "auto.offset.reset": "earliest"}
PRODUCER = {"bootstrap.servers": "b:9092", "acks": "all", "linger.ms": "5"}


def test_clusters_and_topics_are_taken_and_the_rest_is_named():
    found = parse_files(CONSUMER | {"security.protocol": "SSL"}, PRODUCER, "orders.*, pay")

    assert found.source == {"bootstrap.servers": "a:9092", "security.protocol": "SSL"}
    assert found.target == {"bootstrap.servers": "b:9092"}
    assert found.without_effect == (["group.id"], ["linger.ms"])
    names = ("orders-1", "pay", "payments", "__consumer_offsets")
    assert [found.topics(it) for it in names] == [True, True, False, False]


def test_what_a_mirror_always_does_is_not_named_and_its_opposite_is():
    consumer = CONSUMER | {"auto.offset.reset": "latest", "enable.auto.commit": "false"}
    producer = PRODUCER | {"acks": "1", "max.in.flight.requests.per.connection": "1"}

    found = parse_files(consumer, producer, ".*")

    assert found.without_effect == (["group.id", "auto.offset.reset"], ["acks", "linger.ms"])


def test_the_producers_before_0_8_2_named_brokers_otherwise():
    found = parse_files(CONSUMER, {"metadata.broker.list": "c:9092"}, ".*")

    assert found.target == {"bootstrap.servers": "c:9092"}


@pytest.mark.parametrize(
    ("consumer", "producer", "whitelist"),
    [
        ({"zookeeper.connect": "z:2181"}, PRODUCER, ".*"),
        ({"group.id": "mm"}, PRODUCER, ".*"),
        (CONSUMER, {"bootstrap.servers": " "}, ".*"),
        (CONSUMER, PRODUCER, "(?<=x)y"),
    ],
)
def test_files_without_brokers_are_refused(consumer, producer, whitelist):
    with pytest.raises(UsageError):
        parse_files(consumer, producer, whitelist)


def test_the_command_takes_mirrormakers_options(clusters, capfdbinary, tmp_path):
    clusters.source.create_topic("mm1-orders")
    clusters.produce("mm1-orders", [b"1", b"2"])
    consumer, producer = tmp_path / "consumer.properties", tmp_path / "producer.properties"
    consumer.write_text(f"bootstrap.servers={clusters.source.bootstrap_servers}\ngroup.id=mm\n")
    producer.write_text(f"bootstrap.servers={clusters.target.bootstrap_servers}\nacks=all\n")
    files = ["--consumer.config", str(consumer), "--producer.config", str(producer)]
    words = ["mirror", "run", *files, "--whitelist", "mm1-.*", "--num.streams", "4"]

    assert app.run([*words, "--abort.on.send.failure", "true", "--once", "--name", "mm1"]) == 0

    assert [it.value for it in clusters.target.records("mm1-orders")] == [b"1", b"2"]
    assert capfdbinary.readouterr().err.decode() == (
        f"warning: --num.streams has no effect\nwarning: {consumer}: group.id has no effect\n"
    )
    assert app.run([*words, "--topics", "x"]) == 2
    assert b"cannot be combined" in capfdbinary.readouterr().err
    assert app.run(["mirror", "run", *files]) == 2
    assert b"all three are needed" in capfdbinary.readouterr().err


def test_settings_are_left_out_beside_the_files(tmp_path):
    paths = []
    for name in ("consumer", "producer"):
        path = tmp_path / f"{name}.properties"
        path.write_text("bootstrap.servers=a:9092\n")
        paths.append(str(path))

    flow = Mm1Options(*paths, ".*").flow_of(
        EndOptions(), TopicOptions(exclude_config=["remote.*"]), None, Mm2Options()
    )

    assert flow.choice.exclude_configs == ("remote.*",)
