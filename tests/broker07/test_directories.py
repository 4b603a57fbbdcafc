"""Directories of Apache Kafka 0.7: opened, recovered, written on, and opened again."""

import pytest

from kctl.errors import LockedError, UsageError
from kctl.protocol.kafka07 import LATEST_TIME, Kafka07Error
from kctl.records.message07 import message_set
from tests.support.golden07 import PAYLOADS07, golden07, golden07_json
from tests.support.kafka07_world import LOG_DIR, Kafka07World, disk_of

SETTINGS = {"num.partitions": "2", "topic.log.file.size": "rolled:100,rolled-mixed:1000"}
RECOVERED = golden07_json("recovery/results.json")["recovered"]
MARKER = f"{LOG_DIR}/.kafka_cleanshutdown"
READABLE = sorted(PAYLOADS07)


def split(name):
    topic, _, partition = name.rpartition("-")
    return topic, int(partition)


def opened(name, properties=None):
    disk = disk_of(golden07() / name)
    return Kafka07World({**SETTINGS, **(properties or {})}, disk).start()


@pytest.mark.parametrize("kind", ["logs-clean", "logs-killed"])
def test_every_message_of_apache_kafka_is_there(kind):
    world = opened(kind)
    for name in READABLE:
        payloads = world.read_all(*split(name))
        wanted = PAYLOADS07[name]
        assert payloads[: len(wanted)] == wanted, name
        more = 20 if kind == "logs-killed" and name in ("none-0", "gzip-0") else 0
        assert len(payloads) == len(wanted) + more, name


def test_offsets_are_those_of_apache_kafka():
    world = opened("logs-clean")
    for name, offsets in golden07_json("offsets-logs-clean.json").items():
        assert world.offsets(*split(name), LATEST_TIME) == offsets, name


def test_a_directory_is_unchanged_but_for_what_is_appended():
    world = opened("logs-clean")
    before = world.files()
    world.produce("none", 0, message_set([b"one more"]))
    world.produce("rolled", 0, message_set([b"42"]))
    world.stop()
    after = world.files()
    for path, data in before.items():
        assert after[path].startswith(data), path
        grown = path.startswith(("none-0/", "rolled-0/00000000000000000216"))
        assert (after[path] != data) == grown, path
    # A marker, the log directories and their files: nothing that 0.7 would not start with.
    others = [path for path in world.disk.contents() if not path.endswith(".kafka")]
    assert others == [MARKER, f"{LOG_DIR}/.lock"]
    again = Kafka07World(SETTINGS, world.disk).start()
    assert again.read_all("none", 0) == [*PAYLOADS07["none-0"], b"one more"]


@pytest.mark.parametrize("name", RECOVERED)
def test_recovery_cuts_where_apache_kafka_does(name):
    world = opened("recovery/before")
    wanted = RECOVERED[name]
    sizes = {
        path.partition("/")[2]: len(data)
        for path, data in world.files().items()
        if path.startswith(f"{name}/")
    }
    assert sizes == wanted["after"]
    topic, partition = split(name)
    assert world.offsets(topic, partition) == wanted["offsets"]
    found = world.fetch(topic, partition, 0)
    assert found.error == wanted["fetch at 0"]["error"]
    assert len(found.message_set) == wanted["fetch at 0"]["bytes"]
    cut = [line for line in world.warnings if f"/{name}:" in line]
    assert bool(cut) == bool(wanted["cut"])


def world_of(files, *, is_clean=False, properties=None):
    world = Kafka07World(properties)
    world.disk.make_directory(LOG_DIR)
    for path, data in files.items():
        world.disk.make_directory(f"{LOG_DIR}/{path.rpartition('/')[0]}")
        world.disk.write_file(f"{LOG_DIR}/{path}", data)
    if is_clean:
        world.disk.write_file(MARKER, b"")
    return world.start()


TEN = message_set([b"ten bytes!"] * 10)
FIRST = "t-0/00000000000000000000.kafka"


@pytest.mark.parametrize(
    "tail", [b"\0\0\0\5\1" + b"\0" * 4, b"\0\0\0\x0b\2" + b"\0" * 10], ids=["size 5", "magic 2"]
)
def test_what_stops_apache_kafka_from_starting_is_cut(tail):
    world = world_of({FIRST: TEN + tail})
    assert world.files()[FIRST] == TEN
    assert len(world.read_all("t", 0)) == 10


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({FIRST: TEN, f"t-0/{len(TEN) + 10:020d}.kafka": TEN}, "the next segment begins at"),
        ({FIRST: TEN, f"t-0/{len(TEN) - 10:020d}.kafka": TEN}, "the next segment begins at"),
        ({FIRST: TEN, "t-0/abc.kafka": TEN}, "abc.kafka: the name is no offset"),
    ],
    ids=["hole", "overlap", "name"],
)
def test_a_log_that_is_no_chain_is_offline_and_the_others_serve(files, why):
    world = world_of({**files, "u-0/00000000000000000000.kafka": TEN})
    assert [line for line in world.warnings if "t-0 is offline" in line and why in line]
    assert world.fetch("t", 0, 0).error == Kafka07Error.UNKNOWN
    client = world.connect()
    world.produce("t", 0, TEN, client)
    assert client.is_closed
    assert world.files()[FIRST] == TEN
    assert len(world.read_all("u", 0)) == 10
    world.stop()
    assert not world.disk.exists(MARKER), "the offline log was not stopped cleanly"


def test_after_a_clean_stop_nothing_is_checked():
    damaged = TEN[:-5]
    world = world_of({FIRST: damaged}, is_clean=True)
    assert world.fetch("t", 0, 0).message_set == damaged
    assert not world.disk.exists(MARKER), "a crash from here on is no clean stop"


def test_directories_and_files_of_other_names_are_left_alone():
    files = {"nodash/00000000000000000000.kafka": TEN, "t-0/readme.txt": b"x", FIRST: TEN}
    world = world_of(files)
    assert len(world.read_all("t", 0)) == 10
    assert [line for line in world.warnings if "nodash is not served" in line]
    assert world.disk.read_file(f"{LOG_DIR}/t-0/readme.txt") == b"x"


def test_names_of_fewer_digits_are_read():
    world = world_of({"t-0/00000000000.kafka": TEN, f"t-0/{len(TEN):011d}.kafka": TEN})
    assert len(world.read_all("t", 0)) == 20


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("meta.properties", r"Kafka 0\.8 or later"),
        ("replication-offset-checkpoint", r"Kafka 0\.8 or later"),
        ("00000000000000000000.kafka", "the directory of a partition"),
    ],
)
def test_a_directory_of_another_kind_is_refused_and_left_as_it_is(name, reason):
    world = Kafka07World()
    world.disk.make_directory(LOG_DIR)
    world.disk.write_file(f"{LOG_DIR}/{name}", b"version=0\n")
    with pytest.raises(UsageError, match=reason):
        world.start()
    assert world.disk.contents().keys() == {f"{LOG_DIR}/{name}", f"{LOG_DIR}/.lock"}


def test_a_partition_of_a_later_kafka_is_offline():
    world = world_of({"t-0/00000000000000000000.log": b"x"})
    assert [line for line in world.warnings if "segments of Kafka 0.8 or later" in line]
    assert world.files() == {}


def test_a_directory_in_use_is_refused():
    world = Kafka07World().start()
    with pytest.raises(LockedError):
        Kafka07World(disk=world.disk).start()


def test_a_full_disk_refuses_a_set_and_keeps_the_log():
    world = world_of({FIRST: TEN})
    world.disk.capacity = sum(map(len, world.disk.contents().values())) + 10
    client = world.connect()
    world.produce("t", 0, TEN, client)
    assert client.is_closed
    assert world.fetch("t", 0, 0).message_set == TEN
    world.disk.capacity = 1 << 30
    world.produce("t", 0, TEN)
    assert len(world.read_all("t", 0)) == 20


def test_a_failed_flush_takes_the_log_offline_and_shows_nothing():
    files = {FIRST: TEN, "u-0/00000000000000000000.kafka": TEN}
    world = world_of(files, properties={"log.flush.interval": "500"})
    world.produce("t", 0, TEN)
    world.disk.fail[f"{LOG_DIR}/t-0"] = "Input/output error"
    world.advance(6_000)
    world.disk.fail.clear()
    assert world.fetch("t", 0, len(TEN)).error == Kafka07Error.UNKNOWN
    assert [line for line in world.warnings if "t-0 is offline until" in line]
    assert len(world.read_all("u", 0)) == 10
    assert Kafka07World(disk=world.disk.process_loss()).start().offsets("t", 0)
