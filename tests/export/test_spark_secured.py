"""Spark's executors log in to brokers by SASL over TLS, with certificates that travel inline; no
plan, explanation or error shows a secret."""

from pathlib import Path

import pytest
from confluent_kafka import Producer

from kctl.testing.kafka_broker import KafkaBroker
from tests.support.spark_session import patiently

pytest.importorskip("cryptography")

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
RECORDS = 60
SECRET = "planted-spark-7Kq2"


@pytest.fixture(scope="module")
def broker():
    acls = [
        "alice: Read,Write,Describe topic:orders", "alice: Write,Describe topic:written",
        "alice: Describe topic:closed", "alice: IdempotentWrite cluster",
    ]  # fmt: skip
    users = {"alice": SECRET}
    topics = ["orders:3", "written:2", "closed:1"]
    with KafkaBroker(topics=topics, users=users, security="SASL_SSL", acls=acls) as running:
        producer = Producer(running.client_config("alice"))
        for number in range(RECORDS):
            producer.produce("orders", b"%d" % number)
        assert producer.flush(30) == 0
        yield running


def in_librdkafkas_spelling(broker):
    settings = broker.client_config("alice")
    # A file of the driver need not exist on executors.
    settings["ssl.ca.pem"] = Path(settings.pop("ssl.ca.location")).read_text()
    return settings


def in_javas_spelling(broker):
    settings = broker.java_properties("alice")
    settings["ssl.truststore.certificates"] = Path(
        settings.pop("ssl.truststore.location")
    ).read_text()
    return settings


SPELLINGS = [in_librdkafkas_spelling, in_javas_spelling]


def options(settings, **changes):
    return {f"kafka.{name}": value for name, value in {**settings, **changes}.items()}


def frame(spark, settings):
    return spark.read.format("kctl").option("subscribe", "orders").options(**settings).load()


def explained(found):
    """Every plan of a query, and what `explain` prints of it."""
    execution = found._jdf.queryExecution()
    jvm = found.sparkSession._jvm
    modes = ("simple", "extended", "codegen", "cost", "formatted")
    of_mode = jvm.org.apache.spark.sql.execution.ExplainMode.fromString
    return "\n".join(
        [execution.toString(), *(execution.explainString(of_mode(it)) for it in modes)]
    )


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_executors_log_in_and_plans_show_no_secret(spark, broker, spelling):
    found = frame(spark, options(spelling(broker)))
    values = {int(bytes(row.value)) for row in patiently(found.collect)}
    assert values == set(range(RECORDS))
    text = explained(found)
    assert "Scan" in text
    assert SECRET not in text
    assert "BEGIN CERTIFICATE" not in text


def test_a_stream_logs_in(spark, broker, tmp_path):
    read = spark.readStream.format("kctl").options(**options(in_javas_spelling(broker)))
    sink = (
        read.option("subscribe", "orders").option("startingOffsets", "earliest").load()
        .writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        .option("path", str(tmp_path / "sink")).trigger(availableNow=True)
    )  # fmt: skip
    patiently(lambda: sink.start().awaitTermination())
    assert spark.read.parquet(str(tmp_path / "sink")).count() == RECORDS
    checkpoint = (tmp_path / "checkpoint").rglob("*")
    assert not any(SECRET.encode() in it.read_bytes() for it in checkpoint if it.is_file())


def test_a_batch_and_a_stream_are_written_with_permission_only(spark, broker, tmp_path):
    settings = options(in_javas_spelling(broker))
    read = spark.readStream.format("kctl").options(**settings).option("subscribe", "orders")
    stream = (
        read.option("startingOffsets", "earliest").load().select("key", "value")
        .writeStream.format("kctl")
        .options(**settings, topic="written").trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "written"))
    )  # fmt: skip
    patiently(lambda: stream.start().awaitTermination())
    assert {int(it.value) for it in broker.records("written")} == set(range(RECORDS))
    rows = spark.range(3).selectExpr("cast(1000 + id as string) as value")
    rows.write.format("kctl").mode("append").options(**settings, topic="written").save()
    assert {int(it.value) for it in broker.records("written")} >= {1000, 1001, 1002}
    with pytest.raises(Exception, match="TOPIC_AUTHORIZATION_FAILED") as failed:
        rows.write.format("kctl").mode("append").options(**settings, topic="closed").save()
    assert SECRET not in str(failed.value)
    assert broker.records("closed") == []


def test_errors_show_no_secret(spark, broker):
    wrong = options(in_librdkafkas_spelling(broker), **{"sasl.password": f"{SECRET}-wrong"})
    with pytest.raises(Exception, match="rejects user alice") as failed:
        frame(spark, wrong).collect()
    assert SECRET not in str(failed.value)
