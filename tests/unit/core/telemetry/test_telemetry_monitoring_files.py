"""The dashboards and alert rules in deploy/monitoring: the metrics that they read are in the table of metrics."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from barnabas.core.telemetry.table import METRICS, MetricKind

MONITORING = Path(__file__).parents[4] / "deploy" / "monitoring"
DASHBOARDS = sorted((MONITORING / "grafana").glob("*.json"))
_LABEL = re.compile(r'(\w+)(?:=~|!~|!=|=)"')
PROMETHEUS = {"job", "instance", "quantile"}
"""Labels that Prometheus adds, and one that all quantiles have."""


def expressions(page: Path) -> list[str]:
    text = page.read_text()
    if page.suffix == ".json":
        return [target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"]]
    return re.findall(r"^ +expr: (.*)$", text, re.MULTILINE)


@pytest.mark.parametrize("page", [*DASHBOARDS, MONITORING / "alerts.yml"], ids=lambda page: page.name)
def test_metrics_and_labels_exist(page: Path) -> None:
    found = expressions(page)
    assert len(found) > 5
    for expression in found:
        for selected in re.finditer(r"((?:barnabas|kafka|process)_\w+)(?:\{([^}]*)\})?", expression):
            name, labels = selected.groups()
            row = METRICS[name]
            assert set(_LABEL.findall(labels or "")) <= {*row.labels, *PROMETHEUS}, expression
            if row.kind is MetricKind.COUNTER:
                assert re.search(rf"(rate|increase)\({name}", expression), expression


def test_every_alert_has_a_test_and_says_what_to_do() -> None:
    rules = (MONITORING / "alerts.yml").read_text()
    alerts = re.findall(r"- alert: (\w+)", rules)
    tested = re.findall(r"^ {4}name: (\w+)$", (MONITORING / "alerts.test.yml").read_text(), re.MULTILINE)
    assert alerts == sorted(alerts, key=alerts.index)
    assert sorted(tested) == sorted(alerts)
    assert rules.count("summary:") == rules.count("description:") == len(alerts)


def test_dashboards_have_ids_of_their_own() -> None:
    boards = [json.loads(page.read_text()) for page in DASHBOARDS]
    assert len({board["uid"] for board in boards}) == len(boards) == 3
    for board in boards:
        ids = [panel["id"] for panel in board["panels"]]
        assert len(set(ids)) == len(ids)
