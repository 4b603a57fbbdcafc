"""`kctl serve --kafka-0.7` with options and directories that cannot be."""

import pytest


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "Where does the broker register?"),
        (["--no-zookeeper", "--zookeeper-port", "1"], "Give one of --zookeeper"),
        (["--no-zookeeper", "--brokers", "3"], "--brokers cannot be combined with --kafka-0.7"),
        (["--no-zookeeper", "-c", "num.io.threads=3"], "Kafka 0.7 has no setting num.io.threads"),
        (["--no-zookeeper", "-c", "log.flush.interval=0"], "log.flush.interval=0: it is 1 to"),
        (["--no-zookeeper", "--listener", "9092"], "Not a listener: 9092"),
        (["--no-zookeeper", "--config", "missing"], "Cannot read missing"),
    ],
)
def test_wrong_options_are_refused_with_a_reason(kctl, tmp_path, arguments, line):
    done = kctl("serve", "--kafka-0.7", "--data-dir", tmp_path / "data", *arguments)
    assert done.status == 2
    assert line in done.err
    assert not (tmp_path / "data").exists()


def test_a_directory_of_a_later_kafka_is_refused_and_unchanged(kctl, tmp_path):
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=0\n")
    done = kctl("serve", "--kafka-0.7", "--data-dir", tmp_path, "--no-zookeeper")
    assert done.status == 2
    assert "is a log directory of Kafka 0.8 or later" in done.err


def test_a_file_is_no_directory(kctl, tmp_path):
    (tmp_path / "data").write_text("")
    done = kctl("serve", "--kafka-0.7", "--data-dir", tmp_path / "data", "--no-zookeeper")
    assert done.status == 2
    assert "cannot be a log directory" in done.err
