"""kctl verify-log, repair-log and the filters of dump-log as their user sees them."""

import json
import struct

import pytest

from kctl.records.builder import build_batch
from kctl.records.record import Record
from kctl.repair.rebuild import Wanted, rebuild
from kctl.runtime.real.disk import RealDisk

T0_MS = 1_600_000_000_000


@pytest.fixture
def log(tmp_path):
    """A log directory with one partition of ten batches of three records."""
    directory = tmp_path / "data/orders-0"
    directory.mkdir(parents=True)
    (tmp_path / "data/meta.properties").write_text("version=0\nbroker.id=0\n")
    data = b"".join(
        bytes(
            build_batch(
                [
                    Record(offset + i, T0_MS + offset + i, b"k%d" % i, b"value %d" % offset)
                    for i in range(3)
                ],
                partition_leader_epoch=0,
            )
        )
        for offset in range(0, 30, 3)
    )
    (directory / f"{0:020d}.log").write_bytes(data)
    rebuild(RealDisk(), str(directory), Wanted())
    return directory


@pytest.fixture
def damaged(log):
    path = log / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2 + 30] ^= 1
    path.write_bytes(data)
    return log


def test_a_whole_log_is_silent(kctl, log):
    ran = kctl("verify-log", log.parent)
    assert (ran.status, ran.out) == (0, "")
    assert "no damage" in ran.err


def test_damage_is_a_finding_and_status_1(kctl, damaged):
    ran = kctl("verify-log", damaged, "-o", "json")
    assert ran.status == 1
    (finding,) = ran.documents
    assert finding["rule"] == "batch-crc"
    assert finding["last_offset"] - finding["first_offset"] == 2
    assert finding["broker"]
    assert finding["repair"]


@pytest.mark.parametrize("words", [["/nowhere"], ["--compare", "/nowhere", "/tmp"], ["/etc"]])
def test_misuse_is_status_2(kctl, words):
    ran = kctl("verify-log", *words)
    assert ran.status == 2
    assert ran.err.startswith("error: ")


def test_processes_find_what_one_finds(kctl, damaged):
    alone = kctl("verify-log", damaged.parent, "-o", "json", "-j", 1)
    (damaged.parent / "other-0").mkdir()
    many = kctl("verify-log", damaged.parent, "-o", "json", "-j", 2)
    assert many.documents == alone.documents != []


def test_replicas_on_disk_are_compared(kctl, damaged, tmp_path):
    assert kctl("verify-log", damaged, "--compare", damaged).status == 0
    other = tmp_path / "other/orders-0"
    other.mkdir(parents=True)
    data = build_batch([Record(0, T0_MS, b"k", b"another")], partition_leader_epoch=3)
    (other / f"{0:020d}.log").write_bytes(data)
    ran = kctl("verify-log", damaged, "--compare", other, "-o", "json")
    assert ran.status == 1
    assert "leader epoch 3" in ran.documents[0]["message"]


def test_one_of_a_kind_is_named_in_the_singular(kctl, tmp_path):
    directory = tmp_path / "data/orders-0"
    directory.mkdir(parents=True)
    path = directory / f"{0:020d}.log"
    path.write_bytes(build_batch([Record(0, T0_MS, b"k", b"v")], partition_leader_epoch=0))
    rebuild(RealDisk(), str(directory), Wanted())
    assert "1 segment, 1 batch, 70 bytes: no damage" in kctl("verify-log", directory).err
    compared = kctl("verify-log", directory, "--compare", directory)
    assert compared.err == "1 batch agrees, up to offset 1\n"
    with path.open("ab") as file:
        file.write(b"\0")

    assert "1 byte of NULs" in kctl("verify-log", directory).out
    assert "1 byte is removed" in kctl("repair-log", directory).out


def test_only_partitions_are_compared(kctl, log):
    for words in ((log.parent, "--compare", log), (log, "--compare", log.parent)):
        ran = kctl("verify-log", *words)

        assert ran.status == 2
        assert "not a partition's directory" in ran.err


@pytest.mark.parametrize("command", ["dump-log", "verify-log", "repair-log"])
def test_a_brokers_data_directory_leads_to_its_log_directory(kctl, log, command):
    (log.parents[1] / "broker").mkdir()
    log.parent.rename(log.parents[1] / "broker/logs")

    ran = kctl(command, log.parents[1] / "broker")

    assert ran.status == 2
    assert ran.err.endswith(f"hint: did you mean {log.parents[1]}/broker/logs?\n")


def test_replicas_are_compared_over_the_network(on, topic):
    on("produce", topic, "-v", "x")
    ran = on("verify-log", "--replicas", topic, "-o", "json")
    assert {row["result"] for row in ran.documents} == {"only one replica"}
    assert ran.status == 0


def test_a_repair_is_planned_done_and_leaves_nothing_to_do(kctl, damaged, tmp_path):
    plan = kctl("repair-log", damaged, "-o", "json")
    assert plan.status == 1
    assert plan.documents[0]["action"] == "edit"
    assert kctl("verify-log", damaged).status == 1
    done = kctl("repair-log", "--apply", "--backup", tmp_path / "kept", damaged)
    assert done.status == 0
    assert (tmp_path / "kept/orders-0" / f"{0:020d}.log").exists()
    assert kctl("verify-log", damaged.parent).status == 0
    assert kctl("repair-log", damaged).status == 0


def test_a_broker_that_runs_is_left_alone(kctl, damaged):
    lock = RealDisk().lock(f"{damaged.parent}/.lock")
    ran = kctl("repair-log", "--apply", damaged)
    lock.release()
    assert ran.status == 1
    assert "locked" in ran.err


def test_a_broker_is_left_alone_when_a_link_leads_to_its_partition(kctl, damaged, tmp_path):
    """Found by attack: the lock was looked for beside the link, and a live log was destroyed."""
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / damaged.name
    link.symlink_to(damaged)
    before = {path.name: path.read_bytes() for path in damaged.iterdir()}
    lock = RealDisk().lock(f"{damaged.parent}/.lock")
    ran = kctl("repair-log", "--apply", link)
    assert ran.status == 1
    assert "locked" in ran.err
    assert {path.name: path.read_bytes() for path in damaged.iterdir()} == before
    lock.release()
    backup = tmp_path / "kept"
    assert kctl("repair-log", "--apply", "--backup", backup, link).status == 0
    assert (backup / damaged.name / f"{0:020d}.log").exists()
    assert kctl("verify-log", damaged.parent).status == 0


def test_tools_do_not_write_into_a_log_directory(kctl, damaged, tmp_path):
    (damaged.parent / "meta.properties").write_text("version=0\nbroker.id=0\n")
    (tmp_path / "link").symlink_to(damaged.parent)
    ran = kctl("repair-log", "--apply", "--backup", tmp_path / "link" / "kept", damaged)
    assert ran.status == 2
    assert "cannot be in the log directory" in ran.err
    ran = kctl("export", damaged, "--out", tmp_path / "link" / "table")
    assert ran.status == 2
    lock = RealDisk().lock(f"{damaged.parent}/.lock")
    ran = kctl("repair-log", "--extract", tmp_path / "link" / "copy", damaged)
    assert "locked" in ran.err
    lock.release()


@pytest.mark.parametrize(
    "words",
    [
        ["--rebuild", "everything"], ["--cut", "9..3"], ["--codec", "zstd"],
        ["--extract", "/tmp/x", "--apply"], ["--truncate-to", "5", "--cut", "1..2"],
    ],
)  # fmt: skip
def test_repairs_that_make_no_sense(kctl, log, words):
    ran = kctl("repair-log", log, *words)
    assert ran.status == 2
    assert ran.err.startswith("error: ")


def test_what_is_readable_is_extracted(kctl, damaged, tmp_path):
    ran = kctl("repair-log", "--extract", tmp_path / "out", "--key", "k1", damaged, "-o", "json")
    assert ran.status == 1  # Not all could be read.
    assert ran.documents[0]["records"] == 9
    shown = kctl("dump-log", "--deep-iteration", "-o", "ndjson", tmp_path / "out/orders-0")
    offsets = [it["offset"] for it in shown.ndjson if it["type"] == "record"]
    assert len(offsets) == 9
    assert all(offset % 3 == 1 for offset in offsets)


def shown_offsets(ran):
    return [it["offset"] for it in ran.ndjson if it["type"] == "record"]


def test_ranges_of_a_dump_are_those_of_consume(kctl, log):
    def dump(*words):
        return shown_offsets(kctl("dump-log", "--deep-iteration", "-o", "ndjson", *words, log))

    assert dump("--offset", "4..7") == [4, 5, 6]
    assert dump("--offset", "-2") == dump("--tail", 2) == [28, 29]
    assert dump("--offset", f"@{T0_MS + 25}") == list(range(25, 30))
    assert dump("--key", "k2", "--limit", 3) == [2, 5, 8]


def test_keys_and_values_are_shown_as_wanted(kctl, log):
    words = ["dump-log", "--print-data-log", "-o", "ndjson", "--tail", 1, "--key-as", "hex"]
    (record,) = [it for it in kctl(*words, log).ndjson if it["type"] == "record"]
    assert record["key"] == b"k2".hex()


def test_statistics_as_a_table_and_as_json(kctl, log):
    text = kctl("dump-log", "--stats", log)
    assert "10 batches, 30 records" in text.out
    figures = json.loads(kctl("dump-log", "--stats", "-o", "json", log).out)
    assert (figures["records"], figures["codecs"][0]["codec"]) == (30, "none")
    assert {"key": "k1", "records": 10} in figures["top_keys"]


def test_statistics_of_an_empty_log_name_no_offsets(kctl, tmp_path):
    (tmp_path / "t-0").mkdir()
    empty = tmp_path / "t-0" / f"{0:020d}.log"
    empty.touch()
    lines = kctl("dump-log", "--stats", empty).out.splitlines()
    assert lines[:2] == ["1 file, 0 bytes, 0 batches, 0 records", "no offsets"]


def test_where_a_group_is_held(kctl, tmp_path):
    for number in range(4):
        (tmp_path / f"__consumer_offsets-{number}").mkdir()
    ran = kctl("dump-log", "--where", "--group", "abc", tmp_path)
    # What Java makes of it is 96354.
    assert ran.lines == [f"__consumer_offsets-2  abc  {tmp_path}/__consumer_offsets-2"]
    # Of a negative hash (-109829509), the coordinator takes the absolute value.
    ran = kctl("dump-log", "--where", "--group", "billing", tmp_path)
    assert ran.lines == [f"__consumer_offsets-1  billing  {tmp_path}/__consumer_offsets-1"]


def test_a_sanity_check_prints_the_entries_of_a_transaction_index(kctl, log):
    index = log / f"{0:020d}.txnindex"
    index.write_bytes(struct.pack(">hqqqq", 0, 7, 1, 4, 5))
    ran = kctl("dump-log", "--index-sanity-check", "--files", index)
    assert ran.status == 0
    entry = "version: 0 producerId: 7 firstOffset: 1 lastOffset: 4 lastStableOffset: 5"
    assert ran.out == f"Dumping {index}\n{entry}\n"
    index.write_bytes(b"torn")
    ran = kctl("dump-log", "--index-sanity-check", "--files", index)
    assert ran.status == 1
    assert str(index) in ran.err


def test_kafka_dump_logs_flags(kctl, log):
    index = log / f"{0:020d}.index"
    assert "passed sanity check" in kctl("dump-log", "--index-sanity-check", "--files", index).out
    index.write_bytes(b"\0\0\0\1\0\0\0\7")
    ran = kctl("dump-log", "--format", "kafka", "--verify-index-only", "--files", index)
    assert ran.status == 1
    assert ran.out == f"Dumping {index}\n"
    assert "index-entry" in ran.err


@pytest.mark.parametrize("form", ["bare", "dot", "double-slash", "inner-dot", "up"])
def test_a_file_is_verified_by_any_path_that_leads_to_it(kctl, damaged, monkeypatch, form):
    """Paths without a slash were compared with paths that have one, so that no finding was left."""
    name = f"{0:020d}.log"
    (damaged / "below").mkdir()
    places = {
        "bare": (damaged, name),
        "dot": (damaged, f"./{name}"),
        "double-slash": (damaged.parent, f"orders-0//{name}"),
        "inner-dot": (damaged.parent, f"orders-0/./{name}"),
        "up": (damaged / "below", f"../{name}"),
    }
    directory, path = places[form]
    monkeypatch.chdir(directory)
    ran = kctl("verify-log", path, "-o", "json")
    assert ran.status == 1
    assert [it["rule"] for it in ran.documents] == ["batch-crc"]
    dumped = kctl("dump-log", path)
    assert dumped.status == 1


def test_the_working_directory_is_the_partition_that_its_name_says(kctl, damaged, monkeypatch):
    """`.` names no partition, so facts about the partition were not looked up."""
    checkpoint = damaged.parent / "log-start-offset-checkpoint"
    checkpoint.write_text("0\n1\norders 0 30\n")
    by_name = kctl("verify-log", damaged, "-o", "json")
    extracted = damaged.parent.parent / "extracted"
    monkeypatch.chdir(damaged)
    for path in (".", "../orders-0"):
        ran = kctl("verify-log", path, "-o", "json")
        assert [it["rule"] for it in ran.documents] == [it["rule"] for it in by_name.documents]
        (row,) = kctl("log-stats", path, "-o", "json").documents
        assert row["topic"] == "orders"
    (row,) = kctl("repair-log", ".", "--extract", extracted, "-o", "json").documents
    assert row["partition"] == "orders-0"
    assert (extracted / "orders-0" / f"{0:020d}.log").exists()


def test_dump_log_decodes_an_internal_topic_in_the_working_directory(kctl, log, monkeypatch):
    internal = log.parent / "__consumer_offsets-0"
    log.rename(internal)
    monkeypatch.chdir(internal)
    by_name = kctl("dump-log", internal, "--print-data-log", "-o", "ndjson")
    assert kctl("dump-log", ".", "--print-data-log", "-o", "ndjson").out == by_name.out
    assert "unknown" in by_name.out
