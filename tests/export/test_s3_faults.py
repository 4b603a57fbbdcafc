"""Tables on S3 that throttles and fails: every row is in the table once, or the command says why it
stopped, and the next one completes the table."""

import os
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import pyarrow.parquet
import pytest

from kctl.runtime.real.disk import RealDisk
from tests.export.log_files import batch_of, write_segment
from tests.support.faulty_proxy import faulty_proxy
from tests.support.moto_server import CREDENTIALS, running_moto

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.filterwarnings("ignore")]
SEED = int(os.environ.get("KCTL_TEST_SEED", "1"))
ROOT = Path(__file__).parents[2]
# A run that hangs fails its test; on a busy machine, Spark alone starts for a minute.
PATIENCE_S = 300
# "catalog": Iceberg, in a catalog beside the logs.
FORMATS = ("parquet", "delta", "iceberg", "catalog")
LIBRARIES = {
    "parquet": "pyarrow", "delta": "deltalake", "iceberg": "pyiceberg", "catalog": "pyiceberg",
}  # fmt: skip
NAME = "sales.orders"
ROWS = [(partition, offset) for partition in range(2) for offset in range(200)]


class Store:
    """A bucket behind a proxy, and a log of 400 records in four segments beside it."""

    def __init__(self, place, moto, proxy):
        boto3 = pytest.importorskip("boto3")
        self.s3 = boto3.client(
            "s3", endpoint_url=moto, region_name="eu-west-1",
            aws_access_key_id="key", aws_secret_access_key="secret",
        )  # fmt: skip
        where = {"LocationConstraint": "eu-west-1"}
        self.s3.create_bucket(Bucket="bucket", CreateBucketConfiguration=where)
        self.moto, self.proxy, self.place = moto, proxy, place
        self.uri = f"sqlite:///{place}/catalog.db"
        for partition in range(2):
            for base in (0, 100):
                directory = place / "logs" / f"orders-{partition}"
                batches = [batch_of(base + 10 * number) for number in range(10)]
                write_segment(RealDisk(), directory, base, batches)

    def export(self, table_format, *more):
        """Run the command through the proxy."""
        environment = os.environ | CREDENTIALS | {
            "AWS_ENDPOINT_URL": self.proxy.url, "AWS_REGION": "eu-west-1",
            "AWS_ALLOW_HTTP": "true", "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1",
        }  # fmt: skip
        words = ["-f", table_format, "--out", "s3://bucket/table", *more]
        if table_format == "catalog":
            words[1] = "iceberg"
            words += ["--catalog", self.uri, "--catalog-table", NAME]
        return subprocess.run(
            [sys.executable, "-m", "kctl", "export", str(self.place / "logs"), *words],
            env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        )  # fmt: skip

    def names(self):
        found = self.s3.list_objects_v2(Bucket="bucket").get("Contents", [])
        return [it["Key"] for it in found]

    def get(self, key):
        return self.s3.get_object(Bucket="bucket", Key=key)["Body"].read()

    def rows(self, table_format):
        """The rows that readers of the format see, around the proxy; None without a table."""
        if table_format == "parquet":
            paths = [it for it in self.names() if it.endswith(".parquet") and "/_kctl/" not in it]
            tables = [pyarrow.parquet.read_table(BytesIO(self.get(it))) for it in paths]
        elif not self.is_there(table_format):
            return None
        else:
            tables = [getattr(self, table_format)()]
        return sorted(
            pair for it in tables
            for pair in zip(it["partition"].to_pylist(), it["offset"].to_pylist(), strict=True)
        )  # fmt: skip

    def is_there(self, table_format):
        if table_format == "catalog":
            return self.catalog_of().table_exists(NAME)
        return any("/_delta_log/0" in it or "version-hint" in it for it in self.names())

    def delta(self):
        options = CREDENTIALS | {
            "AWS_ENDPOINT_URL": self.moto, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "eu-west-1",
        }  # fmt: skip
        table = pytest.importorskip("deltalake").DeltaTable(
            "s3://bucket/table", storage_options=options
        )
        return table.to_pyarrow_table()

    def iceberg(self):
        number = self.get("table/metadata/version-hint.text").decode()
        table = pytest.importorskip("pyiceberg.table").StaticTable.from_metadata(
            f"s3://bucket/table/metadata/v{number}.metadata.json", self.properties()
        )
        return table.scan().to_arrow()

    def catalog(self):
        return self.catalog_of().load_table(NAME).scan().to_arrow()

    def catalog_of(self):
        catalogs = pytest.importorskip("pyiceberg.catalog")
        return catalogs.load_catalog("kctl", uri=self.uri, **self.properties())

    def properties(self):
        return {
            "s3.endpoint": self.moto, "s3.region": "eu-west-1", "s3.access-key-id": "key",
            "s3.secret-access-key": "secret",
        }  # fmt: skip


@pytest.fixture
def store(tmp_path):
    with running_moto() as moto, faulty_proxy(moto, SEED) as proxy:
        yield Store(tmp_path, moto, proxy)


def completes(store, table_format, *more):
    """Run until the command succeeds: a fault may also hit what a library does not repeat."""
    for _ in range(5):
        ran = store.export(table_format, *more)
        if ran.returncode == 0:
            break
        assert "error: " in ran.stderr
        assert "Traceback" not in ran.stderr
    assert ran.returncode == 0, ran.stderr
    assert store.rows(table_format) == ROWS
    assert not any("/_kctl/tmp/" in it for it in store.names())


@pytest.mark.parametrize("table_format", FORMATS)
def test_throttled_and_lost_answers_change_no_row(store, table_format):
    pytest.importorskip(LIBRARIES[table_format])
    store.proxy.refused_share, store.proxy.lost_share = 0.1, 0.05
    completes(store, table_format)
    assert store.proxy.faults.total() > 10
    # Nothing is added again.
    completes(store, table_format)


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_store_that_takes_no_data_ends_the_run_and_the_next_completes_it(store, table_format):
    pytest.importorskip(LIBRARIES[table_format])
    # Files of data arrive below tmp, and the rows that complete them do not.
    store.proxy.refuses = lambda method, path: method != "GET" and "row.json" in path
    ran = store.export(table_format)
    assert ran.returncode == 1
    assert "error: " in ran.stderr
    assert "Traceback" not in ran.stderr
    assert store.rows(table_format) in ([], None)
    store.proxy.clear()
    completes(store, table_format)


def test_a_delta_commit_whose_answer_is_lost_is_a_success(store):
    pytest.importorskip("deltalake")
    path = "/bucket/table/_delta_log/00000000000000000001.json"
    store.proxy.loses = lambda method, given: method == "PUT" and given.startswith(path)
    ran = store.export("delta")
    assert ran.returncode == 0, ran.stderr
    assert store.rows("delta") == ROWS
    assert store.proxy.faults.total() == 1


@pytest.mark.spark
def test_tasks_of_spark_write_to_such_a_store(store):
    pytest.importorskip("pyspark")
    store.proxy.refused_share, store.proxy.lost_share = 0.1, 0.05
    completes(store, "parquet", "--spark", "--master", "local[2]")
