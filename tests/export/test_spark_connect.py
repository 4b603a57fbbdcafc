"""The data source over Spark Connect: the client has no JVM, and the server's Python runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
CLIENT = """
import json
import sys
import warnings

warnings.simplefilter("ignore")
from pyspark.sql import SparkSession
from kctl.export.spark import commit_offsets, explain, read
from kctl.export.spark.source import KctlDataSource
from kctl.testing.kafka_broker import KafkaBroker

builder = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
spark.dataSource.register(KctlDataSource)
place = sys.argv[1]
found = {"session": type(spark).__module__}
with KafkaBroker(topics=["orders:2", "out:1", "copy:1"]) as broker:
    for number in range(100):
        broker.produce("orders", b"%d" % number, partition=number % 2)
    brokers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    source = brokers | {"subscribe": "orders"}
    values = spark.read.format("kctl").options(**source).load().selectExpr("int(string(value)) v")
    found["brokers"] = sorted(row.v for row in values.collect())
    where = "partition = 1 and offset >= 40"
    part = read(spark, str(broker.log_directory), where=where, subscribe="orders")
    found["directory"] = sorted(row.offset for row in part.collect())
    found["explained"] = str(explain(spark, str(broker.log_directory), where=where))
    rows = spark.createDataFrame([("a", "1"), ("b", "2")], "key string, value string")
    rows.write.format("kctl").mode("append").options(**brokers).option("topic", "out").save()
    found["written"] = sorted(int(it.value) for it in broker.records("out"))
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
        found["error"] = str(error)[:4000]
spark.stop()
print(json.dumps(found))
"""


def test_a_client_of_spark_connect_reads_and_writes(tmp_path):
    pytest.importorskip("pandas")
    pytest.importorskip("grpc_status")
    environment = os.environ | {
        "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
        # The server listens on a free port.
        "SPARK_TESTING": "1",
    }  # fmt: skip
    ran = subprocess.run(
        [sys.executable, "-c", CLIENT, str(tmp_path)], capture_output=True, text=True, check=False,
        env=environment, cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-5000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["session"] == "pyspark.sql.connect.session"
    assert found["brokers"] == found["copied"] == list(range(100))
    assert found["directory"] == list(range(40, 50))
    assert "reads 10 of 100 offsets" in found["explained"]
    assert found["written"] == [1, 2]
    assert found["offsets"] == {"orders": {"0": 50, "1": 50}}
    assert "No topic odrers" in found["error"]
