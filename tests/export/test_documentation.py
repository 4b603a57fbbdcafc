"""The examples of docs/api/export.md run as they are, and the page covers every public name."""

import shutil

import pytest

from kctl.testing.kafka_broker import KafkaBroker
from tests.support.api_pages import examples, undocumented

EXAMPLES = examples("export.md")
ON_SPARK = [text for text in EXAMPLES if "spark." in text or "(spark," in text]
PUBLIC = [
    "kctl.export.explain",
    "kctl.export.export",
    "kctl.export.live",
    "kctl.export.live_plan",
    "kctl.export.manifest",
    "kctl.export.options",
    "kctl.export.rows",
]
PUBLIC_ON_SPARK = [
    "kctl.export.spark.brokers",
    "kctl.export.spark.filtered_read",
    "kctl.export.spark.follow_writer",
    "kctl.export.spark.query_offsets",
    "kctl.export.spark.runner",
    "kctl.export.spark.source",
]


@pytest.fixture
def broker(tmp_path, monkeypatch):
    """A broker with three records, and a copy of its log directory at `data`."""
    with KafkaBroker(topics=["orders"]) as broker:
        for value in ("tea", "coffee", "cocoa"):
            broker.produce("orders", value)
        # The broker replaces checkpoints by way of files that end with .tmp.
        unfinished = shutil.ignore_patterns("*.tmp")
        shutil.copytree(broker.log_directory, tmp_path / "data", ignore=unfinished)
        monkeypatch.chdir(tmp_path)
        yield broker


def test_the_examples_run(broker):
    names = {"__name__": "example"}
    for text in EXAMPLES:
        if text in ON_SPARK:
            continue
        # Threads, because this process runs a broker and cannot safely be forked.
        runnable = text.replace("ProcessPoolExecutor", "ThreadPoolExecutor")
        runnable = runnable.replace('("localhost", 9092)', f'("{broker.host}", {broker.port})')
        exec(compile(runnable, "docs/api/export.md", "exec"), names)


@pytest.mark.spark
def test_the_spark_example_runs(broker, spark, tmp_path):
    for text in ON_SPARK:
        runnable = text.replace('"/data"', f'"{tmp_path}/data"')
        exec(compile(runnable, "docs/api/export.md", "exec"), {"spark": spark})


def test_every_public_name_is_documented():
    assert undocumented("export.md", PUBLIC) == []


@pytest.mark.spark
def test_every_public_name_on_spark_is_documented():
    assert undocumented("export.md", PUBLIC_ON_SPARK) == []
