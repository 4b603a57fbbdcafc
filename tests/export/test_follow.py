"""A table that follows a directory or brokers has each record once, whatever happens to either."""

import pytest

from kctl.admin.admin_client import AdminClient
from kctl.arrow_files.log_discovery import find_logs
from kctl.errors import NotFoundError, StorageError, UsageError
from kctl.export import lake
from kctl.export.export import ExportRequest, export_logs, run_here
from kctl.export.follow import Follower
from kctl.export.follow_sources import BrokerSource, DirectorySource
from kctl.export.live import RecordsGoneError
from kctl.export.manifest import Manifest
from kctl.export.options import ExportOptions, TableFormat
from kctl.export.published import Published
from kctl.export.splits import plan_log
from kctl.runtime.real import make_runtime
from kctl.runtime.real.disk import RealDisk
from kctl.runtime.trace import NullTrace
from kctl.testing.kafka_broker import KafkaBroker
from tests.export.log_files import batch_of, rows_of, write_segment
from tests.export.test_lake import read


@pytest.fixture
def runtime():
    running = make_runtime(NullTrace())
    yield running
    running.scheduler.close()


class Following:
    """Rounds of one run, with what it reports."""

    def __init__(
        self, runtime, source, out, sources=(), topics=(), run="run1", compact_bytes=None, **options
    ):
        self.runtime = runtime
        self.said = []
        self.commits = []
        request = ExportRequest(sources, str(out), ExportOptions(**options), topics, run=run)
        self.follower = Follower(
            runtime, source, request, every_ms=60_000, on_commit=self.commits.append,
            on_problem=self.said.append, compact_bytes=compact_bytes,
        )  # fmt: skip

    def round(self):
        return self._wait(self.follower.round())

    def compact(self):
        return self._wait(self.follower._compact(self.runtime.clock.monotonic_ms()))

    def _wait(self, work):
        scheduler = self.runtime.scheduler
        return scheduler.run_until(scheduler.spawn(work))


@pytest.fixture
def log(tmp_path):
    directory = tmp_path / "logs" / "orders-0"
    directory.mkdir(parents=True)
    return directory / f"{0:020d}.log"


@pytest.fixture
def follow(runtime, tmp_path):
    runs = 0

    def start(**options):
        nonlocal runs
        runs += 1
        return Following(
            runtime, DirectorySource(), tmp_path / "table", [str(tmp_path / "logs")],
            run=f"run{runs}", **options,
        )  # fmt: skip

    return start


def offsets(table, partition=0):
    return [row[2] for row in rows_of(table) if row[1] == partition]


def append(path, data):
    path.parent.mkdir(exist_ok=True)
    with path.open("ab") as file:
        file.write(data)


def test_each_round_adds_what_the_directory_has_gained(log, follow, tmp_path):
    append(log, batch_of(0))
    run = follow()
    assert run.round()
    assert offsets(tmp_path / "table") == list(range(10))
    assert run.round()
    assert len(run.commits) == 1

    append(log, batch_of(10))
    append(tmp_path / "logs" / "orders-1" / log.name, batch_of(0, 3))
    append(tmp_path / "logs" / "orders-0" / f"{20:020d}.log", batch_of(20))
    assert run.round()

    assert offsets(tmp_path / "table") == list(range(30))
    assert offsets(tmp_path / "table", 1) == [0, 1, 2]
    assert (run.follower.report.rows, run.commits[-1].lag, run.said) == (33, 0, [])
    again = follow()
    assert again.round()
    assert (again.follower.report.rows, again.follower.report.earlier_rows) == (0, 33)


def test_a_batch_that_is_being_written_waits_for_its_end(log, follow, tmp_path):
    whole = batch_of(10)
    append(log, batch_of(0) + whole[:70])
    run = follow()
    run.round()
    assert offsets(tmp_path / "table") == list(range(10))

    append(log, whole[70:])
    run.round()

    assert offsets(tmp_path / "table") == list(range(20))
    assert run.said == []
    assert run.follower.report.damages == []


def test_a_batch_that_is_appended_after_the_listing_is_not_counted_as_exported(log, tmp_path):
    append(log, batch_of(0))
    (found,) = find_logs([str(tmp_path / "logs")], [])
    append(log, batch_of(10))

    assert found.end_offset == 10
    assert [split.end_offset for split in plan_log(found, ExportOptions())] == [10]


def test_records_deleted_before_they_were_exported_are_reported_once(log, follow, tmp_path):
    append(log, batch_of(0))
    follow().round()
    log.unlink()
    append(log.with_name(f"{25:020d}.log"), batch_of(25))

    run = follow()
    run.round()
    run.round()

    assert run.said == ["orders-0: offsets 10 to 24 were deleted before they were exported"]
    assert [(it.first_offset, it.last_offset) for it in run.follower.report.damages] == [(10, 24)]
    assert offsets(tmp_path / "table") == [*range(10), *range(25, 35)]
    later = follow()
    later.round()
    assert later.said == []


def test_deleted_records_end_the_run_if_damage_does(log, follow):
    append(log, batch_of(0))
    follow().round()
    log.unlink()
    append(log.with_name(f"{25:020d}.log"), batch_of(25))
    with pytest.raises(RecordsGoneError, match="10 to 24"):
        follow(fails_on_damage=True).round()


def test_a_log_that_is_shorter_than_the_table_is_reported_and_others_go_on(log, follow, tmp_path):
    append(log, batch_of(0, 20))
    run = follow()
    run.round()
    log.write_bytes(batch_of(0, 5))
    append(tmp_path / "logs" / "orders-1" / log.name, batch_of(0, 3))

    run.round()
    run.round()

    assert len(run.said) == len(run.follower.report.problems) == 1
    assert "the log ends at 5, before offset 20" in run.said[0]
    assert offsets(tmp_path / "table", 1) == [0, 1, 2]


def test_splits_that_were_finished_before_a_kill_are_taken_over(log, follow, tmp_path, monkeypatch):
    append(log, batch_of(0))

    class KilledError(Exception):
        pass

    def killed(*_arguments, **_options):
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "commit", killed)
        with pytest.raises(KilledError):
            follow().round()
    append(log, batch_of(10))

    follow().round()

    assert offsets(tmp_path / "table") == list(range(20))


def test_a_delta_table_gets_one_version_for_each_commit(log, follow, tmp_path):
    deltalake = pytest.importorskip("deltalake")
    append(log, batch_of(0))
    run = follow(table_format=TableFormat.DELTA)
    run.round()
    append(log, batch_of(10))
    run.round()
    run.round()

    table = deltalake.DeltaTable(str(tmp_path / "table"))
    assert table.version() == 2
    rows = table.to_pyarrow_table(columns=["offset"])["offset"].to_pylist()
    assert sorted(rows) == list(range(20))


def test_the_latest_record_of_each_key_cannot_be_followed(follow):
    with pytest.raises(UsageError, match="--latest-per-key"):
        follow(latest_per_key=True)


def test_topics_of_brokers_are_followed_with_their_new_partitions(runtime, tmp_path):
    with KafkaBroker(topics=["orders:1"]) as broker:
        broker.produce("orders", b"a")
        broker.produce("orders", b"b")
        admin = AdminClient.connect(runtime, [(broker.host, broker.port)], 10_000, {})
        run = Following(runtime, BrokerSource(admin), tmp_path / "table", topics=["ord*"])
        run.round()
        assert offsets(tmp_path / "table") == [0, 1]

        broker.produce("orders", b"c")
        broker.create_topic("ordered", 2)
        broker.produce("ordered", b"d", partition=1)
        run.round()
        run.round()

        rows = [row[:3] for row in rows_of(tmp_path / "table")]
        assert rows == [("ordered", 1, 0), ("orders", 0, 0), ("orders", 0, 1), ("orders", 0, 2)]
        assert (len(run.commits), run.said) == (2, [])
        admin.close()


def test_the_beginning_of_a_partition_is_exported_even_if_it_failed_first(log, follow, tmp_path):
    """The table began where the first split that succeeded began, and the records before it never
    came."""
    for offset in range(0, 120, 30):
        write_segment(RealDisk(), log.parent, offset, [batch_of(offset, 30)])
    run = follow(file_bytes=1024)
    source = run.follower._source
    write, failed = source.write, []

    def fail_once(request, split, attempt):
        if not failed:
            failed.append(split.first_offset)
            raise NotFoundError("a segment is gone")
        return write(request, split, attempt)

    source.write = fail_once
    run.round()
    assert failed == [0]
    # What is not committed yet is no beginning of a later run, either.
    assert not list((tmp_path / "table").glob("*.parquet"))
    again = follow(file_bytes=1024)
    again.round()
    assert offsets(tmp_path / "table") == list(range(120))
    run = follow(file_bytes=1024)
    run.round()
    assert offsets(tmp_path / "table") == list(range(120))


def test_a_merge_keeps_the_files_of_rows_that_are_held_back(log, follow, tmp_path, monkeypatch):
    """The merge of another partition removed them, and the manifest still got their rows."""
    monkeypatch.setattr("kctl.export.compaction.MERGED_MAX", 2)
    run = follow(file_bytes=1024, compact_bytes=1 << 20)
    source = run.follower._source
    write, failed = source.write, []

    def fail_once(request, split, attempt):
        if split.partition == 1 and not failed:
            failed.append(split.first_offset)
            raise NotFoundError("a segment is gone")
        return write(request, split, attempt)

    source.write = fail_once
    append(log, batch_of(0))
    run.round()
    append(log, batch_of(10))
    for offset in (0, 30):
        write_segment(RealDisk(), tmp_path / "logs" / "orders-1", offset, [batch_of(offset, 30)])
    run.round()
    run.compact()
    assert failed == [0]
    assert len(list((tmp_path / "table").glob("*.parquet"))) == 1
    run.round()
    run.compact()

    assert offsets(tmp_path / "table", 1) == list(range(60))
    assert not (tmp_path / "table" / "_kctl" / "tmp").exists()


def test_a_file_that_is_gone_before_its_commit_ends_the_run(log, follow, tmp_path, monkeypatch):
    """Its records counted as exported."""
    append(log, batch_of(0))
    run = follow()
    commit = Manifest.commit

    def commit_without_files(manifest, rows, **options):
        for row in rows:
            (tmp_path / "table" / row.files[0].tmp_path).unlink()
        commit(manifest, rows, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "commit", commit_without_files)
        with pytest.raises(StorageError, match="gone before it was committed"):
            run.round()
    # Its row is still below tmp, where the next run looks for what is complete.
    request = ExportRequest([str(log)], str(tmp_path / "table"), ExportOptions(), run="plain")
    assert export_logs(request, run_here).rows == 10
    assert offsets(tmp_path / "table") == list(range(10))


def test_a_table_whose_old_files_were_deleted_by_hand_goes_on(log, follow, tmp_path):
    append(log, batch_of(0))
    follow().round()
    for path in (tmp_path / "table").glob("*.parquet"):
        path.unlink()
    append(log, batch_of(10))
    follow().round()
    assert offsets(tmp_path / "table") == list(range(10, 20))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_commit_does_not_read_what_earlier_ones_have_added(log, follow, tmp_path, monkeypatch):
    """Each round read the names of all files since the table's first day."""
    pytest.importorskip("deltalake")
    reads = []
    paths = Published.paths
    monkeypatch.setattr(Published, "paths", lambda self: reads.append(1) or paths(self))
    run = follow(table_format=TableFormat.DELTA)
    for offset in range(0, 50, 10):
        append(log, batch_of(offset))
        run.round()
    assert len(reads) == 1
    assert run.follower.report.rows == 50
    # What a failed commit has left is looked for by the next one.
    monkeypatch.setattr(lake._Delta, "add", lambda *_: (_ for _ in ()).throw(OSError("full")))
    append(log, batch_of(50))
    with pytest.raises(StorageError, match="full"):
        run.round()
    monkeypatch.undo()
    run.follower._commit()
    append(log, batch_of(60))
    run.round()
    found = read(tmp_path / "table", TableFormat.DELTA)
    assert sorted(found["offset"].to_pylist()) == list(range(70))
