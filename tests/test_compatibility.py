"""docs/compatibility.md says what is so."""

import re

from kctl.broker.broker_settings import BrokerSettings
from kctl.broker.handlers import HANDLERS
from kctl.broker.topic_configs import TOPIC_CONFIGS
from kctl.protocol.api_keys import ApiKey
from tools import compatibility


def test_the_generated_tables_are_current():
    """`python -m tools.compatibility` makes them anew."""
    page = compatibility.PAGE.read_text()
    assert page == compatibility.current(page)


def test_every_api_has_a_row():
    rows = re.findall(r"^\| (\d+) \|", compatibility.PAGE.read_text(), re.MULTILINE)
    assert [int(row) for row in rows] == [int(key) for key in ApiKey]


def test_every_api_that_is_not_served_has_a_reason_and_no_other_has():
    assert set(compatibility.NOT_SERVED) == set(ApiKey) - set(HANDLERS)


def test_every_setting_without_effect_has_a_reason():
    effective = compatibility.effective_settings()
    idle = [name for name in BrokerSettings.KEYS if name not in effective]
    assert [n for n in idle if compatibility.reason_for(n, compatibility.REASONS) is None] == []
    topic_idle = TOPIC_CONFIGS.keys() - compatibility.effective_topic_settings()
    reasons = compatibility.TOPIC_REASONS
    assert [n for n in sorted(topic_idle) if compatibility.reason_for(n, reasons) is None] == []


def test_every_reason_explains_a_setting_that_has_no_effect():
    idle = BrokerSettings.KEYS.keys() - compatibility.effective_settings().keys()
    used = {compatibility.reason_for(name, compatibility.REASONS) for name in idle}
    assert {reason for _, reason in compatibility.REASONS} == used


def test_effects_are_read_off_the_source():
    effective = compatibility.effective_settings()
    assert effective["num.partitions"] == ""  # looked up by name
    assert effective["log.retention.hours"] == ""  # goes into log.retention.ms
    assert effective["log.segment.bytes"] == "default of a topic's `segment.bytes`"
    assert "ssl.protocol" not in effective
    assert "log.cleaner.delete.retention.ms" not in effective  # its topic setting has no effect


def test_a_stale_page_is_noticed():
    page = compatibility.PAGE.read_text()
    stale = page.replace("| 0 | Produce | 0-8 |", "| 0 | Produce | 0-7 |")
    assert stale != page
    assert compatibility.current(stale) == page
