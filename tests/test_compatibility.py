"""docs/compatibility.md describes the code as it is."""

import re

from kctl.broker.handlers import HANDLERS
from kctl.configs.broker_configs import BrokerSettings
from kctl.configs.idle_configs import IDLE_SETTINGS
from kctl.configs.topic_configs import TOPIC_CONFIGS
from kctl.protocol.api_keys import ApiKey
from tools import compatibility


def test_the_generated_tables_are_current():
    """`python -m tools.compatibility` generates them."""
    page = compatibility.PAGE.read_text()
    assert page == compatibility.current(page)


def test_every_api_has_a_row():
    rows = re.findall(r"^\| (\d+) \|", compatibility.PAGE.read_text(), re.MULTILINE)
    assert [int(row) for row in rows] == [int(key) for key in ApiKey]


def test_every_api_that_is_not_served_has_a_reason_and_no_other_has():
    assert set(compatibility.NOT_SERVED) == set(ApiKey) - set(HANDLERS)


def test_the_settings_without_effect_are_never_looked_up():
    idle = BrokerSettings.KEYS.keys() - compatibility.effective_settings().keys()
    assert idle == IDLE_SETTINGS.keys()
    topic_idle = TOPIC_CONFIGS.keys() - compatibility.effective_topic_settings()
    assert [n for n in sorted(topic_idle) if compatibility.topic_reason(n) is None] == []


def test_effects_are_read_off_the_source():
    effective = compatibility.effective_settings()
    assert effective["num.partitions"] == ""  # looked up by name
    assert effective["log.retention.hours"] == ""  # goes into log.retention.ms
    assert effective["log.segment.bytes"] == "default of a topic's `segment.bytes`"
    assert "ssl.protocol" in effective
    assert "ssl.provider" not in effective
    assert "log.cleaner.threads" not in effective


def test_a_stale_page_is_noticed():
    page = compatibility.PAGE.read_text()
    stale = page.replace("| 0 | Produce | 0-8 |", "| 0 | Produce | 0-7 |")
    assert stale != page
    assert compatibility.current(stale) == page
