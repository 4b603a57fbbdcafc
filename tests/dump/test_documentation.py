"""The examples of docs/api/dump.md run as they are, and the page covers every public name."""

import shutil
from pathlib import Path

from kctl.testing.kafka_broker import KafkaBroker
from tests.support.api_pages import examples, undocumented
from tests.support.local_cluster import until

PUBLIC = [
    "kctl.dump.dump",
    "kctl.dump.filtered_dump",
    "kctl.dump.filters",
    "kctl.dump.values",
    "kctl.repair.repair",
    "kctl.repair.repair_plan",
    "kctl.verify.rules",
    "kctl.verify.verification",
]


def test_the_examples_run(tmp_path, monkeypatch):
    with KafkaBroker(topics=["orders"]) as broker:
        for value in ("tea", "coffee", "cocoa"):
            broker.produce("orders", value)
        # The index files of a new segment may appear later than its records.
        until(lambda: list(Path(broker.log_directory).glob("orders-0/*.timeindex")))
        # The broker writes checkpoints to a .tmp file and renames it.
        ignored = shutil.ignore_patterns("*.tmp")
        shutil.copytree(broker.log_directory, tmp_path / "data", ignore=ignored)
    monkeypatch.chdir(tmp_path)
    names = {}
    for text in examples("dump.md"):
        exec(compile(text, "docs/api/dump.md", "exec"), names)
    assert (tmp_path / "backup/orders-0/00000000000000000000.log").exists()


def test_every_public_name_is_documented():
    assert undocumented("dump.md", PUBLIC) == []
