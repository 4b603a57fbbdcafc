"""`kctl serve` reports what keeps it from starting in one clear line, with the right exit status;
other problems are logged, and the broker starts."""

import fcntl
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kctl.cli import app
from tests.support.kctl_process import KctlBroker, serve_to_end
from tests.support.steady_producer import read_all
from tests.support.waiting import wait_for

CLUSTER_ID = "Q_r5DLx4Q6S6rdMT32SJpA"
USED, MISUSED = 1, 2
PATIENCE_S = 120
NOT_ROOT = os.geteuid() != 0


def message_of(done, status):
    """Return the one line with the reason; only log warnings and a hint may stand beside it."""
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    rest = [line for line in lines if not line.startswith(("error: ", "hint: ", "["))]
    assert rest == []
    (line,) = [line for line in lines if line.startswith("error: ")]
    return line.removeprefix("error: ")


@pytest.fixture(scope="module")
def used(tmp_path_factory):
    """Return a data directory that a broker has used before."""
    directory = tmp_path_factory.mktemp("used")
    with KctlBroker(directory, "--seed-topic", "kept:1") as broker:
        producer = Producer({"bootstrap.servers": broker.address})
        producer.produce("kept", b"precious")
        assert producer.flush(PATIENCE_S) == 0
        assert broker.stop() == 0
    return directory / "data"


@pytest.fixture
def data(used, tmp_path):
    """Return a copy of that directory."""
    return Path(shutil.copytree(used, tmp_path / "data"))


def kept(data, *arguments):
    """What a broker on `data` serves, and what it said."""
    with KctlBroker(data.parent, *arguments) as broker:
        found = read_all(broker.address, "kept", 1)
        assert broker.stop() == 0
        return list(found.values()), broker.errors


def test_a_port_in_use(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        done = serve_to_end("-D", tmp_path, "--port", port)
    assert message_of(done, USED) == f"cannot listen on 127.0.0.1:{port}: Address already in use"
    # Nothing is left behind that keeps the next one from starting.
    with KctlBroker(tmp_path):
        pass


def test_an_address_that_is_not_this_machine(tmp_path):
    done = serve_to_end("-D", tmp_path, "--listener", "PLAINTEXT://192.0.2.1:0")
    assert "cannot listen on 192.0.2.1:0" in message_of(done, USED)
    done = serve_to_end("-D", tmp_path, "--listener", "PLAINTEXT://nowhere.invalid:0")
    assert "cannot listen on nowhere.invalid:0" in message_of(done, USED)


def test_a_data_directory_that_another_kctl_uses(tmp_path):
    with KctlBroker(tmp_path) as broker:
        done = serve_to_end("-D", tmp_path / "data", "--port", 0)
        assert "locked by another process" in message_of(done, USED)
        # The same logs under another store.
        done = serve_to_end("-D", tmp_path / "b", "--port", 0, "-c", f"log.dirs={broker.log_dir}")
        assert message_of(done, USED) == f"{broker.log_dir}/.lock is locked by another process"
        assert broker.stop() == 0


def test_a_log_directory_that_a_java_process_uses(data):
    """Java's FileLock, and so Apache Kafka, locks by fcntl."""
    with (data / "logs" / ".lock").open("r+") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        done = serve_to_end("-D", data, "--port", 0)
    assert message_of(done, USED) == f"{data}/logs/.lock is locked by another process"
    assert (data / "logs" / ".kafka_cleanshutdown").exists()


def test_a_lock_keeps_a_new_store_from_adopting(data):
    """Or it would know the cluster, and adopt nothing once the lock is gone."""
    subprocess.run(["rm", "-r", str(data / "metadata")], check=True)
    with (data / "logs" / ".lock").open("r+") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        message_of(serve_to_end("-D", data, "--port", 0), USED)
    assert kept(data)[0] == [b"precious"]


def test_a_directory_of_another_cluster(data):
    properties = data / "logs" / "meta.properties"
    properties.write_text(f"broker.id=0\nversion=0\ncluster.id={CLUSTER_ID}\n")
    done = serve_to_end("-D", data, "--port", 0)
    assert message_of(done, MISUSED).startswith(
        f"{data}/logs belongs to cluster {CLUSTER_ID}, but this"
    )


def test_a_directory_of_another_broker(data):
    done = serve_to_end("-D", data, "--port", 0, "-c", "broker.id=7")
    assert message_of(done, MISUSED) == f"{data}/logs belongs to broker 0, but this is broker 7"
    assert "hint: set broker.id=0" in done.stderr
    assert kept(data)[0] == [b"precious"]


def test_another_broker_id_makes_a_new_store_adopt_nothing(data):
    subprocess.run(["rm", "-r", str(data / "metadata")], check=True)
    message_of(serve_to_end("-D", data, "--port", 0, "-c", "broker.id=7"), MISUSED)
    assert kept(data)[0] == [b"precious"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("rubbish", "not a properties file"),
        ("", "unrecognized version '' of meta.properties"),
        ("broker.id=0\nversion=1\n", "unrecognized version '1' of meta.properties"),
        ("broker.id=x\nversion=0\n", "broker.id is 'x', not a number"),
    ],
)
def test_a_damaged_meta_properties(data, content, why):
    properties = data / "logs" / "meta.properties"
    properties.write_text(content)
    done = serve_to_end("-D", data, "--port", 0)
    line = message_of(done, USED)
    assert line.startswith(f"none of the log directories can be used: {properties}: {why}")
    assert properties.read_text() == content


def test_damaged_checkpoints_cost_time_not_records(data):
    names = ("recovery-point-offset", "log-start-offset", "replication-offset")
    for name in names:
        (data / "logs" / f"{name}-checkpoint").write_text("0\nrubbish\n")
    (data / "logs" / "kept-0" / "leader-epoch-checkpoint").write_text("\x00" * 20)
    found, said = kept(data)
    assert found == [b"precious"]
    warnings = [line for line in said.splitlines() if " WARN " in line]
    assert len(warnings) == len(names) + 1
    for name in (*names, "leader-epoch"):
        assert any(f"{name}-checkpoint" in line for line in warnings)


def test_a_torn_end_of_the_metadata_is_cut(data):
    (journal,) = (data / "metadata").glob("journal-*")
    with journal.open("ab") as file:
        file.write(b"\x00\x01\x02")
    found, said = kept(data)
    assert found == [b"precious"]
    assert "cut off 3 bytes of an unfinished write" in said


def test_rot_in_the_metadata_is_refused(data):
    (journal,) = (data / "metadata").glob("journal-*")
    content = bytearray(journal.read_bytes())
    content[200] ^= 0xFF
    journal.write_bytes(content)
    done = serve_to_end("-D", data, "--port", 0)
    assert message_of(done, USED).startswith(f"{journal}: the journal is damaged at byte ")
    assert journal.read_bytes() == content


def test_a_path_that_is_no_directory(tmp_path):
    (tmp_path / "file").touch()
    done = serve_to_end("-D", tmp_path / "file", "--port", 0)
    assert "Not a directory" in message_of(done, USED)
    done = serve_to_end("-D", tmp_path, "--port", 0, "-c", f"log.dirs={tmp_path}/file")
    assert message_of(done, USED).startswith("none of the log directories can be used: ")


@pytest.mark.skipif(NOT_ROOT, reason="mounting needs root; root can write anywhere else")
def test_a_directory_that_cannot_be_written_to(data):
    subprocess.run(["mount", "--bind", data, data], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", data], check=True)
        done = serve_to_end("-D", data, "--port", 0)
    finally:
        subprocess.run(["umount", data], check=True)
    assert "Read-only file system" in message_of(done, USED)
    assert kept(data)[0] == [b"precious"]


def test_one_of_two_log_directories_that_cannot_be_used_is_offline(tmp_path):
    """As Apache Kafka: what is in the other one is served."""
    (tmp_path / "file").touch()
    (tmp_path / "data").mkdir()
    dirs = f"log.dirs={tmp_path}/data/logs,{tmp_path}/file"
    with KctlBroker(tmp_path, "-c", dirs, "--seed-topic", "kept:1") as broker:
        assert read_all(broker.address, "kept", 1) == {}
        assert broker.stop() == 0
    offline = f"WARN log directory {tmp_path}/file is offline"
    assert len([line for line in broker.errors.splitlines() if offline in line]) == 1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["-c", "no.such.setting=1"], "Unknown broker setting no.such.setting"),
        (["-c", "num.partitions=many"], "Invalid value many for configuration num.partitions: "),
        (["-c", "log.dirs="], "At least one log directory must be defined via log.dirs"),
        (["-c", "num.partitions"], "--set takes key=value, not 'num.partitions'"),
        (["--listener", "nonsense"], "Unable to parse nonsense to a broker endpoint"),
        (["--listener", "PLAINTEXT://127.0.0.1:99999"], "Unable to parse"),
        (["--listener", "SSL://127.0.0.1:0"], "Listener SSL: no key and certificate"),
        (["--port", "99999"], "--port must be at most 65535"),
        (["--config", "/no/such/file"], "Cannot read /no/such/file"),
        (["--zookeeper", ":"], "no ZooKeeper connect string"),
    ],
)
def test_nonsense_is_misuse(tmp_path, capfd, arguments, line):
    """In this process: whatever is not refused would end it, as the port is in use."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        ports = ["--port", str(holder.getsockname()[1])]
        if {"--listener", "--port"} & set(arguments):
            ports = []
        status = app.run(["serve", "-D", str(tmp_path), *ports, *arguments])
    done = subprocess.CompletedProcess(arguments, status, *capfd.readouterr())
    assert line in message_of(done, MISUSED)


def test_a_seed_topic_that_cannot_be(tmp_path):
    done = serve_to_end("-D", tmp_path, "--port", 0, "--seed-topic", "a b:1")
    assert "seed topic a b: " in message_of(done, MISUSED)


def test_a_zookeeper_that_does_not_answer(tmp_path):
    done = serve_to_end(
        "-D", tmp_path, "--port", 0,
        "--zookeeper", "127.0.0.1:1", "-c", "zookeeper.connection.timeout.ms=300",
    )  # fmt: skip
    assert message_of(done, 3) == "no answer from ZooKeeper at 127.0.0.1:1"


def test_a_seed_topic_that_is_there_stays_as_it_is(data):
    records, errors = kept(data, "--seed-topic", "kept:3")
    assert records == [b"precious"]
    assert "seed topic kept already exists with 1 partition" in errors


def test_a_ready_file_that_cannot_be_written(tmp_path):
    ready = tmp_path / "missing" / "ready"
    done = serve_to_end("-D", tmp_path / "data", "--port", 0, "--ready-file", ready)
    assert message_of(done, 1) == f"Cannot write --ready-file {ready}: No such file or directory"


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_codecs_are_loaded_before_a_client_uses_them(tmp_path):
    with KctlBroker(tmp_path) as broker:
        maps = Path(f"/proc/{broker.process.pid}/maps")
        wait_for(
            lambda: all(name in maps.read_text() for name in ("cramjam", "lz4")), maps.read_text
        )
