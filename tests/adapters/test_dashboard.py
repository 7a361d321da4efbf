"""The dashboard asks for metrics and labels that the service has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from policyguard import Guard
from policyguard.adapters.service.metrics import Metrics

DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "policyguard.json"
POLICY = """\
policyguard: 1
name: no-rm
rules:
  no-rm: {tools: [rm], effect: block, message: Not this.}
"""
ADDED_BY_PROMETHEUS = {"job", "le"}


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The names of the service's series, with their labels."""
    policy = tmp_path_factory.mktemp("policy") / "policy.yaml"
    policy.write_text(
        "policyguard: 1\nname: p\nrules:\n  no-rm: {tools: [rm], effect: block, message: No.}\n"
    )
    guard = Guard.load(policy)
    metrics = Metrics(guard)
    session = guard.session("s")
    metrics.note_request("/v1/check", 0.1)
    metrics.note_error("/v1/check")
    metrics.note_decision(session.check("rm"))
    metrics.note_result(session.record(session.check("ls"), result="x"))
    text = metrics.render()[0].decode()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_each_query_finds_its_series(series: dict[str, set[str]]) -> None:
    asked = 0
    for panel in panels():
        for target in panel["targets"]:
            expression = target["expr"]
            for name in re.findall(r"policyguard_\w+", expression):
                assert name in series, panel["title"]
                asked += 1
            groups = re.findall(r"by \(([^)]*)\)", expression)
            labels = {label for group in groups for label in re.split(r",\s*", group)}
            labels |= set(re.findall(r"[{,](\w+)=", expression))
            names = re.findall(r"policyguard_\w+", expression)
            known = set().union(*(series[name] for name in names))
            assert labels <= known | ADDED_BY_PROMETHEUS, panel["title"]
    assert asked >= 8


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in panels()}) == len(panels())
