"""The data source over Spark Connect: the client has no JVM, and the server's Python runs it. The
client sends kctl, but streams need it to be installed there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.spark_cluster import python_without_kctl

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.long]
ROOT = Path(__file__).parents[2]
# Conditions, and the partitions and offsets that satisfy them: each partition has 50 records, whose
# values are the numbers of orders-0, orders-1, orders-0, ... All but the last two are planned when
# they are read, with Spark's filter and without.
CONDITIONS = {
    "partition = 1 and offset between 10 and 19": [(1, at) for at in range(10, 20)],
    "partition = 0 and (offset < 2 or offset in (20, 22))": [(0, at) for at in (0, 1, 20, 22)],
    "offset < 5 and string(value) = '5'": [(1, 2)],
    "offset < 0": [],
    "partition = 0 and offset >= 48 and offset < 1000": [(0, 48), (0, 49)],
    "partition = 1 and offset >= 40": [(1, at) for at in range(40, 50)],
}
CLIENT = """
import json
import os
import sys
import warnings
from contextlib import redirect_stdout
from io import StringIO

warnings.simplefilter("ignore")
from pyspark.sql import SparkSession
from kctl.export.spark import commit_offsets, explain, read
from kctl.export.spark.source import KctlDataSource
from kctl.runtime.real.spark_gateway import zip_package
from kctl.testing.kafka_broker import KafkaBroker

root = os.environ.pop("PYTHONPATH")
builder = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
os.environ["PYTHONPATH"] = root
spark.addArtifacts(zip_package("kctl"), pyfile=True)
spark.dataSource.register(KctlDataSource)
place, *conditions = sys.argv[1:]
found = {"session": type(spark).__module__, "selected": []}
with KafkaBroker(topics=["orders:2", "out:1", "copy:1"]) as broker:
    for number in range(100):
        broker.produce("orders", b"%d" % number, partition=number % 2)
    brokers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    source = brokers | {"subscribe": "orders"}
    values = spark.read.format("kctl").options(**source).load().selectExpr("int(string(value)) v")
    found["brokers"] = sorted(row.v for row in values.collect())
    for where in conditions:
        for either in (broker.bootstrap_servers, str(broker.log_directory)):
            part = read(spark, either, where=where, subscribe="orders")
            rows = sorted((row.partition, row.offset) for row in part.collect())
            found["selected"].append((where, rows))
    found["explained"] = str(explain(spark, str(broker.log_directory), where=conditions[-1]))
    bounded = read(spark, broker.bootstrap_servers, where=conditions[0], subscribe="orders")
    with redirect_stdout(StringIO()) as plan:
        bounded.explain()
    found["plan"] = plan.getvalue()
    found["counted"] = [bounded.count(), bounded.where("offset < 13").count()]
    rows = spark.createDataFrame([("a", "1"), ("b", "2")], "key string, value string")
    rows.write.format("kctl").mode("append").options(**brokers).option("topic", "out").save()
    found["written"] = sorted(int(it.value) for it in broker.records("out"))
    os.symlink(f"{root}/kctl", f"{place}/env/packages/kctl")
    stream = spark.readStream.format("kctl").options(**source, startingOffsets="earliest").load()
    sink = stream.select("value").writeStream.format("kctl").options(**brokers)
    sink = sink.option("topic", "copy").option("kctl.exactly.once", "true")
    sink = sink.option("checkpointLocation", place + "/checkpoint").trigger(availableNow=True)
    query = sink.start()
    query.awaitTermination()
    found["copied"] = sorted(int(it.value) for it in broker.records("copy"))
    found["offsets"] = commit_offsets(query, source | {"kafka.group.id": "copier"})
    try:
        spark.read.format("kctl").options(**brokers, subscribe="odrers").load().count()
    except Exception as error:
        found["error"] = str(error)
spark.stop()
print(json.dumps(found))
"""


def test_a_client_of_spark_connect_reads_and_writes(tmp_path):
    pytest.importorskip("pandas")
    pytest.importorskip("grpc_status")
    environment = os.environ | {
        "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(python_without_kctl(tmp_path / "env")),
        "SPARK_LOCAL_IP": "127.0.0.1",
        # The server listens on a free port.
        "SPARK_TESTING": "1",
    }  # fmt: skip
    ran = subprocess.run(
        [sys.executable, "-c", CLIENT, str(tmp_path), *CONDITIONS], capture_output=True, text=True,
        check=False, env=environment, cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-5000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["session"] == "pyspark.sql.connect.session"
    assert found["brokers"] == found["copied"] == list(range(100))
    expected = [
        [where, [list(row) for row in rows]] for where, rows in CONDITIONS.items() for _ in range(2)
    ]
    assert found["selected"] == expected
    assert "reads 10 of 100 offsets" in found["explained"]
    assert "KctlRows" in found["plan"]
    assert found["counted"] == [10, 3]
    assert found["written"] == [1, 2]
    assert found["offsets"] == {"orders": {"0": 50, "1": 50}}
    assert "No topic odrers" in found["error"]
