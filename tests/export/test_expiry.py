"""Days and hours that are older than --retention are removed, and no younger record is."""

import pyarrow.parquet
import pytest

from kctl.arrow_files.files import Files
from kctl.cli.app import run as kctl
from kctl.errors import UsageError
from kctl.export import expiry
from kctl.export.expiry import Expiry
from kctl.export.export import ExportRequest
from kctl.export.follow import Follower
from kctl.export.follow_sources import DirectorySource
from kctl.export.manifest import Manifest
from kctl.export.options import ExportOptions, TableFormat
from kctl.records.builder import build_batch
from kctl.records.record import Record
from kctl.runtime.real import make_runtime
from kctl.runtime.real.disk import RealDisk
from kctl.runtime.trace import NullTrace
from tests.export.log_files import rows_of, write_segment
from tests.export.test_lake import read

HOUR = 3_600_000
DAY = 24 * HOUR
# A midnight, UTC.
FIRST_DAY = 20_000 * DAY
BY_DATE = {"partition_by": ("topic", "date")}
BY_HOUR = {"partition_by": ("date", "hour")}


def write(tmp_path, times, first=0, topic="orders-0"):
    records = [Record(first + n, when, b"k", b"v") for n, when in enumerate(times)]
    batches = [build_batch([it]) for it in records]
    write_segment(RealDisk(), tmp_path / "logs" / topic, first, batches)


def offsets(table):
    return [row[2] for row in rows_of(table, ("topic", "partition", "offset"))]


def expire(tmp_path, now_ms, retention_ms, options=BY_DATE, run="expiry"):
    chosen = ExportOptions(**options)
    table = str(tmp_path / "table")
    manifest = Manifest.look(table, chosen, run)
    return Expiry(table, chosen, retention_ms).step(manifest, now_ms)[0]


def files(tmp_path):
    return sum(1 for it in (tmp_path / "table").rglob("*.parquet"))


def test_a_day_expires_when_its_last_moment_is_too_old(export, tmp_path):
    write(tmp_path, [FIRST_DAY, FIRST_DAY + DAY - 1, FIRST_DAY + DAY, -1])
    export(tmp_path / "logs", **BY_DATE)
    end = FIRST_DAY + DAY
    assert expire(tmp_path, end + 2 * DAY - 1, 2 * DAY).files == 0
    assert offsets(tmp_path / "table") == [0, 1, 2, 3]
    assert expire(tmp_path, end + 2 * DAY, 2 * DAY).files == 1
    assert offsets(tmp_path / "table") == [2, 3]
    assert expire(tmp_path, end + 100 * DAY, 2 * DAY, run="later").files == 1
    # A record without a timestamp does not become old.
    (rest,) = (tmp_path / "table").rglob("*.parquet")
    assert pyarrow.parquet.ParquetFile(rest).read(["offset"])["offset"].to_pylist() == [3]
    # The offsets are still those of the table.
    assert export(tmp_path / "logs", **BY_DATE).rows == 0
    assert [it.name for it in (tmp_path / "table" / "topic=orders").iterdir()] == [
        "date=__HIVE_DEFAULT_PARTITION__"
    ]


def test_hours_expire_one_by_one(export, tmp_path):
    write(tmp_path, [FIRST_DAY + n * HOUR for n in range(30)])
    export(tmp_path / "logs", **BY_HOUR)
    found = expire(tmp_path, FIRST_DAY + 26 * HOUR + 1, HOUR, BY_HOUR)
    assert (found.files, found.bytes > 0, found.is_whole) == (25, True, True)
    assert offsets(tmp_path / "table") == [25, 26, 27, 28, 29]


def test_a_step_is_bounded_and_the_next_one_continues(export, tmp_path, monkeypatch):
    monkeypatch.setattr(expiry, "EXPIRED_FILES_MAX", 2)
    write(tmp_path, [FIRST_DAY + n * DAY for n in range(5)])
    export(tmp_path / "logs", **BY_DATE)
    steps = [expire(tmp_path, FIRST_DAY + 9 * DAY, DAY, run=f"run{n}") for n in range(3)]
    assert [(it.files, it.is_whole) for it in steps] == [(2, False), (2, False), (1, True)]
    assert files(tmp_path) == 0


class KilledError(BaseException):
    """An exception that no `except` of kctl catches."""


def test_a_kill_at_any_moment_costs_nothing_and_is_made_up_for(export, tmp_path, monkeypatch):
    real_do, kills, left = Files._do, 0, 0

    def mortal(self, path, work):
        nonlocal left
        left -= 1
        if left < 0:
            raise KilledError
        return real_do(self, path, work)

    write(tmp_path, [FIRST_DAY + n * DAY for n in range(4)])
    now_ms, is_killed = FIRST_DAY + 3 * DAY, True
    while is_killed:
        place = tmp_path / str(kills)
        monkeypatch.setattr(Files, "_do", real_do)
        export(tmp_path / "logs", out=f"{kills}/table", **BY_DATE)
        left = kills
        monkeypatch.setattr(Files, "_do", mortal)
        try:
            expire(place, now_ms, DAY)
            is_killed = False
        except KilledError:
            pass
        finally:
            monkeypatch.setattr(Files, "_do", real_do)
        # The next run neither adds a record again nor fails, and the next step ends the work.
        assert export(tmp_path / "logs", out=f"{kills}/table", **BY_DATE).rows == 0
        expire(place, now_ms, DAY, run="again")
        assert offsets(place / "table") == [2, 3]
        manifest = Manifest.look(str(place / "table"), ExportOptions(**BY_DATE))
        assert sum(row.rows for row in manifest.rows) == 2
        kills += 1
    assert kills > 8


def test_a_followed_table_expires_and_its_other_files_are_merged(tmp_path):
    runtime = make_runtime(NullTrace())
    now_ms = runtime.clock.wall_ms()
    write(tmp_path, [now_ms - 40 * DAY, now_ms - 10 * DAY])
    removed = []
    options = ExportOptions(**BY_DATE)
    request = ExportRequest([str(tmp_path / "logs")], str(tmp_path / "table"), options, run="run")
    follower = Follower(
        runtime, DirectorySource(), request, every_ms=600_000, compact_bytes=1_000_000,
        retention_ms=30 * DAY, on_expired=removed.append,
    )  # fmt: skip
    scheduler = runtime.scheduler

    def turn():
        scheduler.run_until(scheduler.spawn(follower.round()))
        follower._expire()
        scheduler.run_until(scheduler.spawn(follower._compact(runtime.clock.monotonic_ms())))

    turn()
    assert offsets(tmp_path / "table") == [1]
    for number in range(2, 40):
        write(tmp_path, [now_ms - 10 * DAY], first=number)
        turn()
    assert offsets(tmp_path / "table") == list(range(1, 40))
    # 32 files of a level are merged; the first of them had expired files.
    assert files(tmp_path) < 32
    assert (len(removed), follower.expired_files) == (1, 1)
    runtime.scheduler.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("table_format", [TableFormat.DELTA, TableFormat.ICEBERG])
def test_rows_of_lakes_are_deleted_by_their_own_commits(export, tmp_path, table_format):
    pytest.importorskip("deltalake" if table_format is TableFormat.DELTA else "pyiceberg")
    times = [FIRST_DAY, FIRST_DAY + DAY - 1, FIRST_DAY + DAY, FIRST_DAY + DAY + HOUR, -1]
    for number, keys in enumerate((("date",), ("topic", "date", "hour"))):
        place = tmp_path / str(number)
        write(place, times)
        options = {"table_format": table_format, "partition_by": keys}
        export(place / "logs", out=f"{number}/table", **options)

        def left(place=place):
            return sorted(read(place / "table", table_format)["offset"].to_pylist())

        def step(now_ms, place=place, options=options):
            return expire(place, now_ms, DAY, options).files

        assert step(FIRST_DAY + 2 * DAY - 1) == (1 if "hour" in keys else 0)
        assert left() == ([1, 2, 3, 4] if "hour" in keys else [0, 1, 2, 3, 4])
        assert step(FIRST_DAY + 2 * DAY) == 1
        assert step(FIRST_DAY + 2 * DAY) == 0
        assert left() == [2, 3, 4]
        assert export(place / "logs", out=f"{number}/table", **options).rows == 0
        assert left() == [2, 3, 4]
        write(place, [FIRST_DAY + 2 * DAY], first=5)
        export(place / "logs", out=f"{number}/table", **options)
        assert left() == [2, 3, 4, 5]


def test_the_command_removes_and_explains(tmp_path, capsys):
    write(tmp_path, [FIRST_DAY, FIRST_DAY + DAY])
    words = ["export", str(tmp_path / "logs"), "--out", str(tmp_path / "table")]
    words += ["--partition-by", "date"]
    assert kctl(words) == 0
    words += ["--retention", "30d"]
    capsys.readouterr()
    assert kctl([*words, "--explain"]) == 0
    said = capsys.readouterr().err
    assert "would remove what is before " in said
    assert " UTC: 2 files (" in said
    assert offsets(tmp_path / "table") == [0, 1]
    assert kctl(words) == 0
    assert "removed 2 files (" in capsys.readouterr().err
    assert files(tmp_path) == 0


@pytest.mark.parametrize(
    ("options", "retention_ms", "what"),
    [
        ({}, DAY, "partitioned by them"),
        ({"partition_by": ("hour",)}, DAY, "partitioned by them"),
        (BY_DATE, 0, "must be positive"),
        (BY_DATE | {"latest_per_key": True}, DAY, "however old"),
    ],
)
def test_tables_without_days_cannot_expire(tmp_path, options, retention_ms, what):
    with pytest.raises(UsageError, match=what):
        Expiry(str(tmp_path), ExportOptions(**options), retention_ms)
