"""kctl serve: its settings, and the process as a whole."""

import shutil
import signal
import socket
import subprocess
import sys

import pytest

from kctl.cli.serve.commands import check_store_listener, make_config
from kctl.errors import UsageError
from kctl.model import Endpoint
from tests.support.kctl_process import KctlBroker


def test_without_options_it_keeps_everything_in_the_data_directory(tmp_path):
    config, store = make_config({}, None, str(tmp_path))

    assert config.log_dir_list == [str(tmp_path / "logs")]
    assert store == str(tmp_path / "metadata")
    assert [(it.host, it.port) for it in config.listener_list] == [("127.0.0.1", 9092)]
    assert config.broker_id == 0
    assert config.offsets_topic_replication_factor == 1


def test_a_server_properties_file_is_obeyed_and_flags_win(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=7\nlisteners=PLAINTEXT://:1234\nbroker.id=5\nlog.dirs=/x,/y\n")

    config, _ = make_config({"num.partitions": "9"}, str(path), str(tmp_path))

    assert config.num_partitions == 9
    assert config.broker_id == 5
    assert config.listener_list[0].port == 1234
    assert config.log_dir_list == ["/x", "/y"]


def test_with_zookeeper_nothing_is_embedded_and_kafkas_defaults_hold(tmp_path):
    config, store = make_config({"zookeeper.connect": "z:2181/k"}, None, str(tmp_path))

    assert store is None
    assert config.zookeeper_connect == "z:2181/k"
    assert config.offsets_topic_replication_factor == 3
    assert config.broker_id == -1


def test_logs_of_another_broker_keep_their_broker_id(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "meta.properties").write_text("broker.id=7\n")

    config, _ = make_config({}, None, str(tmp_path))

    assert config.broker_id == -1  # whatever meta.properties says


@pytest.mark.parametrize(
    ("listener", "advertised"),
    [
        ("PLAINTEXT://0.0.0.0:9092", [("", 9092)]),
        ("PLAINTEXT://[::]:9092", [("", 9092)]),
        ("PLAINTEXT://:9092", [("", 9092)]),
        ("PLAINTEXT://broker-1:9092", [("broker-1", 9092)]),
        ("A://0.0.0.0:1,B://127.0.0.1:2", [("", 1), ("127.0.0.1", 2)]),
    ],
)
def test_a_listener_at_all_addresses_is_advertised_with_the_name_of_the_machine(
    listener, advertised, tmp_path
):
    flags = {
        "listeners": listener,
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "inter.broker.listener.name": listener.partition(":")[0],
    }

    config, _ = make_config(flags, None, str(tmp_path), [listener])

    # The broker puts the machine's name in the place of an empty host.
    assert [(it.host, it.port) for it in config.advertised_listener_list] == advertised


def test_what_is_advertised_for_a_listener_at_all_addresses_may_be_set(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text("advertised.listeners=PLAINTEXT://broker-1:9092\n")
    listeners = ["PLAINTEXT://0.0.0.0:9092"]

    config, _ = make_config({"listeners": listeners[0]}, str(path), str(tmp_path), listeners)

    assert [it.host for it in config.advertised_listener_list] == ["broker-1"]


def test_a_file_whose_listeners_are_at_all_addresses_must_set_what_is_advertised(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text("listeners=PLAINTEXT://0.0.0.0:9092\n")

    with pytest.raises(UsageError, match=r"nonroutable meta-address 0\.0\.0\.0"):
        make_config({}, str(path), str(tmp_path))


def serve(*words, timeout_s=120):
    """Run a `kctl serve` that is expected to exit without a signal."""
    return subprocess.run(
        [sys.executable, "-m", "kctl", "serve", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def errors(ran):
    """Return the lines of stderr that are not the broker's log."""
    return [line for line in ran.stderr.splitlines() if not line.startswith("[")]


def test_it_says_where_it_is_and_stops_cleanly(tmp_path):
    ready = tmp_path / "ready"
    words = ["--data-dir", tmp_path / "data", "--port", "0", "--ready-file", ready]
    with subprocess.Popen(
        [sys.executable, "-m", "kctl", "serve", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        line = process.stdout.readline()
        address = ready.read_text().strip()
        process.send_signal(signal.SIGTERM)
        rest, errors = process.communicate(timeout=120)

    assert line.startswith(f"kctl ready on {address} ")
    assert rest == ""
    assert process.returncode == 0, errors
    assert not ready.exists()
    assert "Traceback" not in errors


def test_a_broker_at_all_addresses_reports_what_it_advertises(tmp_path):
    words = ["--data-dir", tmp_path / "data", "--listener", "PLAINTEXT://0.0.0.0:0"]
    with subprocess.Popen(
        [sys.executable, "-m", "kctl", "serve", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        line = process.stdout.readline()
        host, _, port = line.split()[3].rpartition(":")
        socket.create_connection(("127.0.0.1", int(port))).close()
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=120)

    assert host == socket.getfqdn()
    assert "advertising this machine's name to clients" in said
    assert process.returncode == 0, said


def test_seed_topics_are_there_when_it_is_ready_and_made_once(kctl, tmp_path):
    broker = KctlBroker(tmp_path, "--seed-topic", "orders:3", "--seed-topic", "plain")
    for _ in range(2):
        with broker:
            ran = kctl("topic", "list", "-b", broker.address, "-o", "json")
            found = [(it["name"], it["partitions"]) for it in ran.documents]
            assert found == [("orders", 3), ("plain", 1)]


def test_records_survive_a_restart(kctl, tmp_path):
    broker = KctlBroker(tmp_path, "--seed-topic", "t")
    with broker:
        assert kctl("produce", "t", "kept", "-b", broker.address).status == 0
    with broker:
        assert kctl("consume", "t", "-e", "-b", broker.address).lines == ["kept"]


def test_a_port_in_use_is_one_clear_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = serve("--data-dir", tmp_path, "--port", port)

    assert ran.returncode == 1
    assert errors(ran)[0].startswith("error: ")
    assert f"127.0.0.1:{port}" in errors(ran)[0]
    assert errors(ran)[1].startswith("hint: ")
    assert ran.stdout == ""


@pytest.mark.parametrize("words", [(), ("--brokers", 3), ("--kafka-0.7",)])
def test_a_data_directory_with_a_comma_is_refused_before_anything_is_written(tmp_path, words):
    ran = serve("--data-dir", tmp_path / "a,b", "--port", 0, *words)
    assert ran.returncode == 2
    assert "a comma divides the directories of log.dirs" in errors(ran)[0]
    assert list(tmp_path.iterdir()) == []


def test_a_data_directory_in_use_is_one_clear_line(tmp_path):
    with KctlBroker(tmp_path):
        ran = serve("--data-dir", tmp_path / "data", "--port", 0)

    assert ran.returncode == 1
    assert errors(ran)[0].startswith("error: ")
    assert str(tmp_path / "data") in errors(ran)[0]
    assert "Traceback" not in ran.stderr


def test_a_data_directory_of_another_cluster_is_one_clear_line(tmp_path):
    for name in ("one", "two"):
        with KctlBroker(tmp_path / name):
            pass
    data = tmp_path / "two" / "data"
    shutil.rmtree(data / "logs")
    (tmp_path / "one" / "data" / "logs").rename(data / "logs")

    ran = serve("--data-dir", data, "--port", 0)

    assert ran.returncode == 2
    assert errors(ran)[0].startswith("error: ")
    assert "cluster" in errors(ran)[0].lower()
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-c", "num.partitons=3"], "did you mean num.partitions?"),
        (["-c", "num.partitions=many"], "num.partitions"),
        (["-c", "nonsense"], "key=value"),
        (["--port", "70000"], "70000"),
        (["--port", "1", "--listener", "PLAINTEXT://:2"], "--listener"),
        (["--listener", "nonsense"], "nonsense"),
        (["--seed-topic", "t:0"], "t:0"),
        (["--config", "/no/such/file"], "/no/such/file"),
    ],
)
def test_nonsense_is_misuse(kctl, tmp_path, words, message):
    ran = kctl("serve", "--data-dir", tmp_path, *words)

    assert ran.status == 2
    assert message in ran.err
    assert ran.out == ""


def test_unknown_settings_of_a_file_are_only_warned_of(kctl, tmp_path):
    path = tmp_path / "server.properties"
    path.write_text("confluent.nonsense=1\nlisteners=nonsense\n")

    ran = kctl("serve", "--config", path, "--data-dir", tmp_path)

    assert ran.status == 2  # for the listeners
    path.write_text("confluent.nonsense=1\nlisteners=PLAINTEXT://127.0.0.1:1\n")
    ran = kctl("serve", "--config", path, "--data-dir", "/dev/null/x")
    assert ran.status == 1
    assert "unknown setting confluent.nonsense" in ran.err


@pytest.mark.parametrize("address", ["0.0.0.0:2181", "broker-1:2181", "10.0.0.1:2181"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["--user", "alice:secret"],
        ["--acl", "alice: Read topic:*"],
        ["-c", "authorizer.class.name=kafka.security.authorizer.AclAuthorizer"],
        ["--brokers", "2", "-c", "listener.security.protocol.map=X:SASL_SSL"],
    ],
)
def test_metadata_with_users_and_acls_is_not_served_to_other_machines(
    kctl, tmp_path, arguments, address
):
    """T36."""
    ran = kctl("serve", "--data-dir", tmp_path, "--zookeeper-port", address, *arguments)
    assert ran.status == 2
    assert "would let every machine change users and ACLs" in ran.err
    assert "--zookeeper-port 2181" in ran.err


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.8.8.8", "::1"])
def test_metadata_with_acls_is_served_to_this_machine(host):
    check_store_listener(Endpoint(host, 2181), {"authorizer.class.name": "x"})
    check_store_listener(Endpoint("0.0.0.0", 2181), {})
    check_store_listener(None, {"authorizer.class.name": "x"})
