"""The examples of docs/api/kafka.md run as they are, and the page has every setting and name."""

import pytest

import kctl.kafka
from kctl.kafka.connector_config import TABLE as CONNECTOR_TABLE
from kctl.kafka.producer_config import TABLE
from tests.support.api_pages import API, examples, undocumented

PAGE = (API / "kafka.md").read_text()


@pytest.mark.parametrize("number", range(len(examples("kafka.md"))))
def test_an_example_runs(number):
    exec(compile(examples("kafka.md")[number], "docs/api/kafka.md", "exec"), {"__name__": "page"})


def test_every_public_name_is_documented():
    assert undocumented("kafka.md", ["kctl.kafka", "kctl.kafka.aio"]) == []


def row(setting):
    """The line of a setting in the table."""
    ages = [setting.defaults] * 3 if not isinstance(setting.defaults, tuple) else setting.defaults
    defaults = [shown(it) for it in ages]
    names = [f"`{name}`" if name else "" for name in setting.names]
    return f"| {' | '.join(names)} | {', '.join(dict.fromkeys(defaults))} |"


def shown(default):
    if default is None or default == ():
        return "none"
    if isinstance(default, bool | int | str):
        return str(default).lower()
    return f"`{type(default).__name__}`"


def test_every_setting_of_the_producer_is_in_the_table():
    missing = [row(it) for it in TABLE if row(it) not in PAGE]
    assert missing == [], "\n".join(missing)


def test_every_setting_of_the_connector_is_in_the_table():
    missing = [row(it) for it in CONNECTOR_TABLE if row(it) not in PAGE]
    assert missing == [], "\n".join(missing)


def test_all_names_can_be_imported_and_only_those():
    for name in kctl.kafka.__all__:
        # Constants have no name of their own.
        assert getattr(getattr(kctl.kafka, name), "__name__", name) == name
    assert set(kctl.kafka.__all__) <= set(dir(kctl.kafka))
    with pytest.raises(AttributeError, match="Producr"):
        kctl.kafka.Producr  # noqa: B018 - the attribute is the test
