"""The examples of docs/api/records.md run as they are, and the page covers every public name."""

from tests.support.api_pages import examples, undocumented

PUBLIC = [
    "kctl.records.builder",
    "kctl.records.columnar",
    "kctl.records.compression",
    "kctl.records.control",
    "kctl.records.legacy",
    "kctl.records.memory_records",
    "kctl.records.record",
    "kctl.records.record_batch",
]


def test_the_examples_run():
    names = {}
    for text in examples("records.md"):
        exec(compile(text, "docs/api/records.md", "exec"), names)
    assert names["table"].num_rows in (0, 2)


def test_every_public_name_is_documented():
    assert undocumented("records.md", PUBLIC) == []
