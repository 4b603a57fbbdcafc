"""Documents and lines of dumps, of what Apache Kafka wrote."""

from kctl.dump.documents import document
from kctl.dump.dump import dump_file
from kctl.dump.text_format import text_lines
from kctl.dump.values import DumpOptions
from kctl.records.builder import build_batch
from kctl.records.record import Record
from kctl.runtime.real.disk import RealDisk

WITH_RECORDS = DumpOptions(with_records=True)


def documents(path, *, with_data=True):
    items = dump_file(RealDisk(), str(path), WITH_RECORDS)
    return [document(item, with_data=with_data) for item in items]


def test_batches_and_records_of_a_transaction(golden_logs):
    path = golden_logs / "logs-clean/tx-0/00000000000000000012.log"
    found = documents(path)
    assert found[0]["kind"] == "log"
    assert found[0]["base_offset"] == 12
    marker, record = found[1:3]
    assert (marker["is_control"], marker["producer_id"], marker["count"]) == (True, 6, 1)
    assert record["decoded"] == {
        "type": "control",
        "control_type": "COMMIT",
        "control_type_id": 1,
        "coordinator_epoch": 0,
    }
    keyed = next(entry for entry in found if entry.get("key") == "key-00001")
    assert keyed["value"].startswith("value-00001-")
    assert keyed["timestamp"] == 1_600_000_001_000


def test_records_without_data_tell_only_sizes(golden_logs):
    path = golden_logs / "logs-clean/v2-none-0/00000000000000000000.log"
    found = [e for e in documents(path, with_data=False) if e["type"] == "record"]
    assert found[1] == {
        "type": "record",
        "offset": 1,
        "timestamp": 1_600_000_001_000,
        "key_size": 9,
        "value_size": 48,
        "sequence": -1,
    }


def test_old_messages_have_their_own_checksums(golden_logs):
    path = golden_logs / "logs-clean/v1-gzip-0/00000000000000000000.log"
    found = [entry for entry in documents(path) if entry["type"] == "record"]
    assert all(entry["is_valid"] for entry in found)
    assert "sequence" not in found[0]


def test_bytes_that_are_no_text_are_base64(tmp_path):
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(build_batch([Record(0, 1, b"\xff\x00", None, (("h", b"\xfe"), ("n", None)))]))
    (record,) = [entry for entry in documents(path) if entry["type"] == "record"]
    assert record["key_base64"] == "/wA="
    assert "key" not in record
    assert record["value"] is None
    assert record["headers"] == [
        {"name": "h", "value_base64": "/g=="},
        {"name": "n", "value": None},
    ]


def test_internal_topics_are_understood_by_their_names(golden_logs):
    found = [
        entry["decoded"]
        for path in sorted((golden_logs / "logs-clean").glob("__*/*.log"))
        for entry in documents(path)
        if "decoded" in entry
    ]
    assert {"offset_commit", "group_metadata", "transaction_metadata", "control"} == {
        entry["type"] for entry in found
    }
    live = next(entry for entry in found if entry.get("group") == "g-live" and "members" in entry)
    assert live["protocol"] == "range"
    assert sorted(p for m in live["members"] for p in m["assigned_partitions"]) == [
        "tx-0",
        "tx-1",
        "v2-gzip-0",
        "v2-none-0",
    ]
    tombstone = next(entry for entry in found if entry.get("is_tombstone"))
    assert tombstone["offset"] is None
    assert {e["state"] for e in found if "state" in e} >= {"Empty", "Ongoing", "CompleteCommit"}


def test_lines_escape_what_would_move_the_cursor(tmp_path):
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(build_batch([Record(0, 1, b"a\x1b[2Jb", b"\xff\n", (("h\n", b"x"),))]))
    text = "".join(text_lines(dump_file(RealDisk(), str(path), WITH_RECORDS), with_data=True))
    assert "\x1b" not in text
    assert "a\\x1b[2Jb" in text
    assert "\\xff\\n" in text
    assert len(text.splitlines()) == 3


def test_columns_of_batches_are_aligned(golden_logs):
    path = golden_logs / "logs-clean/v2-none-0/00000000000000000000.log"
    items = dump_file(RealDisk(), str(path), DumpOptions())
    lines = "".join(text_lines(items, with_data=False)).splitlines()[1:]
    assert len({line.index(" v2 ") for line in lines}) == 1
    assert len({line.index("2020-") for line in lines}) == 1
