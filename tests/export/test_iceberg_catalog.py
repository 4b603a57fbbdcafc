"""An Iceberg table in a SQL catalog has each row of the log once, whatever crashed in between."""

import pytest

from kctl.cli.app import run as kctl
from kctl.errors import StorageError, UsageError
from kctl.export import lake
from kctl.export.options import TableFormat
from kctl.runtime.real.disk import RealDisk
from tests.export.log_files import batch_of, write_segment

catalogs = pytest.importorskip("pyiceberg.catalog")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
NAME = "sales.orders"


@pytest.fixture
def orders(tmp_path):
    directory = tmp_path / "logs" / "orders-0"
    write_segment(RealDisk(), directory, 0, [batch_of(10 * n) for n in range(10)])
    return directory


@pytest.fixture
def in_catalog(tmp_path):
    uri = f"sqlite:///{tmp_path}/catalog.db"
    return {"table_format": TableFormat.ICEBERG, "catalog": uri, "catalog_table": NAME}


def offsets(in_catalog):
    table = catalogs.load_catalog("kctl", uri=in_catalog["catalog"]).load_table(NAME)
    return sorted(table.scan().to_arrow()["offset"].to_pylist())


def test_runs_are_commits_of_the_catalogs_table(orders, export, in_catalog, tmp_path):
    words = ["export", str(orders), "-f", "iceberg", "--catalog", in_catalog["catalog"]]
    words += ["--catalog-table", NAME, "--partition-by", "topic,date"]
    assert kctl([*words, "--out", str(tmp_path / "table")]) == 0
    assert offsets(in_catalog) == list(range(100))
    write_segment(RealDisk(), orders, 100, [batch_of(100)])
    for _ in range(2):
        assert kctl([*words, "--out", str(tmp_path / "table")]) == 0
        assert offsets(in_catalog) == list(range(110))
    assert kctl([*words, "--out", str(tmp_path / "other")]) == 2
    assert not (tmp_path / "other").exists()
    assert in_catalog["catalog"] not in (tmp_path / "table/_kctl/table.json").read_text()


class Killed(BaseException):
    """An exception that no `except` of kctl catches."""


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_run_killed_at_its_commit_is_completed_once(
    orders, export, in_catalog, monkeypatch, is_committed
):
    real = lake.add_files

    def mortal(*words):
        if is_committed:
            real(*words)
        raise Killed

    monkeypatch.setattr(lake, "add_files", mortal)
    with pytest.raises(Killed):
        export(orders, **in_catalog)
    monkeypatch.setattr(lake, "add_files", real)
    assert export(orders, **in_catalog).rows == 0
    assert offsets(in_catalog) == list(range(100))


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        ("Failed to acquire lock for ('sales', 'orders'), state: 2", "hive.txn.timeout"),
        (
            "The following columns have types incompatible with the existing columns :\nvalue",
            "hive.metastore.disallow.incompatible.col.type.changes",
        ),
    ],
)
def test_refusals_of_a_hive_metastore_have_remedies(
    orders, export, in_catalog, monkeypatch, message, hint
):
    def refused(*_words):
        raise RuntimeError(message)

    monkeypatch.setattr(lake, "add_files", refused)
    with pytest.raises(StorageError) as failed:
        export(orders, **in_catalog)
    assert hint in failed.value.hint


def test_a_catalog_that_lost_versions_is_rejected(orders, export, in_catalog, tmp_path):
    export(orders, **in_catalog)
    write_segment(RealDisk(), orders, 100, [batch_of(100)])
    export(orders, **in_catalog)
    (tmp_path / "catalog.db").unlink()
    with pytest.raises(StorageError, match="has version 0 of kctl"):
        export(orders, **in_catalog)


def test_an_unusable_catalog_is_reported_before_the_work(orders, tmp_path, capsys):
    words = ["export", str(orders), "-f", "iceberg", "--catalog-table", NAME]
    words += ["--out", str(tmp_path / "table"), "--catalog"]
    assert kctl([*words, "nowhere"]) == 2
    assert "PYICEBERG_CATALOG__<NAME>__URI" in capsys.readouterr().err
    assert kctl([*words, f"sqlite:///{tmp_path}/missing/catalog.db"]) != 0
    assert "hint: check its address" in capsys.readouterr().err
    assert not (tmp_path / "table").exists()


@pytest.mark.parametrize(
    "changed",
    [{"catalog_table": None}, {"catalog_table": "orders"}, {"table_format": TableFormat.DELTA}],
)
def test_options_that_do_not_go_together_are_usage_errors(orders, export, in_catalog, changed):
    with pytest.raises(UsageError):
        export(orders, **{**in_catalog, **changed})
