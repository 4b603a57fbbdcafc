"""What is made from the catalogue of metrics is current."""

import json
import re

from tools import metrics


def test_the_tables_of_the_page_are_current():
    """`python -m tools.metrics` makes them."""
    page = metrics.PAGE.read_text()
    assert page == metrics.current(page)


def test_the_dashboard_and_the_alerts_are_current():
    assert metrics.DASHBOARD.read_text() == metrics.dashboard()
    assert metrics.ALERTS.read_text() == metrics.alerts()


def test_every_expression_names_metrics_and_labels_of_the_catalogue():
    labels = {name: it.labels for it in metrics.CATALOGUE for name in metrics.sample_names(it)}
    allowed = {"le", "instance", "job", "quantile"}
    for expression in metrics.expressions():
        names = metrics.metrics_in(expression)
        assert names - labels.keys() == set(), expression
        assert names or 'up{job="kctl"}' in expression
        known = allowed.union(*(labels[name] for name in names))
        used = re.findall(r"by \(([^)]*)\)", expression)
        used += re.findall(r"(\w+)(?:=~|!=|=)\"", expression)
        assert {label for each in used for label in each.split(", ")} <= known, expression


def test_each_alert_has_a_runbook():
    page = metrics.OPERATIONS.read_text()
    for rule in metrics.ALERT_RULES:
        assert f"\n### {rule.name}\n" in page, rule.name


def test_a_panel_is_legible():
    assert len(metrics.PANELS) == 12
    assert len(metrics.MIRROR_PANELS) == 8
    assert len(metrics.FOLLOW_PANELS) == 3
    panels = json.loads(metrics.dashboard())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in (it for it in panels if it["type"] != "row"):
        assert 1 <= len(panel["targets"]) <= 4
