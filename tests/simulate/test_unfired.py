"""Entries that never fired, and those among them whose tools were not called."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from policyguard.report.replay.figures import Figures
from policyguard.report.replay.renderers import RENDERERS
from policyguard.simulate.gate import Gate
from policyguard.simulate.jobs.job import Job, JobInputs
from policyguard.simulate.jobs.workers import LocalProcesses
from policyguard.simulate.simulation import simulate
from tests.simulate.recording import lines, policy, read, write

POLICY = """
extends: [core]
rules:
  spoke: {tools: [read], effect: advise}
  watched: {mode: observe, tools: ['re*']}
  mute: {tools: [read, raed], when: "call.args.path == '/never'"}
  all: {when: "call.tool == 'never'"}
  misspelt: {tools: [raed, 'wrte*']}
  others: {tools: {outside: [write]}, when: "call.tool == 'never'"}
budgets: {many: {calls: 100}, mails: {tools: [send_mial], calls: 1}}
limits:
  default: {repeat: {max: 90, window: 90}}
  tools:
    read: {timeout: 5s}
    bsah: {timeout: 5s, polling: {unchanged: 3, cooldown: 1s}}
"""
ABSENT = {
    "rules/misspelt": ["raed", "wrte*"],
    "budgets/mails": ["send_mial"],
    "limits/tools:bsah/timeout": ["bsah"],
    "limits/tools:bsah/polling/unchanged": ["bsah"],
    "limits/tools:bsah/polling/cooldown": ["bsah"],
}
MUTE = ["rules/mute", "rules/all", "rules/others", "budgets/many", "limits/default/repeat"]


def _figures(folder: Path, text: str = POLICY, *, workers: int = 1) -> Figures:
    sessions = (lines(f"s{n}", [read("/a"), {"tool": "list", "args": {}}]) for n in range(4))
    trace = write(folder / "t.jsonl", *sessions)
    job = Job(policies=(str(policy(folder / "p.yaml", text)),), files=(trace,))
    return simulate(job, JobInputs.load(job), lambda *_: None, LocalProcesses(workers))


@pytest.mark.parametrize("workers", [1, 2])
def test_own_entries_that_never_fired_are_grouped_by_reason(tmp_path: Path, workers: int) -> None:
    found = {entry.id: entry.absent_tools for entry in _figures(tmp_path, workers=workers).unfired}
    assert {id_: absent for id_, absent in found.items() if absent} == ABSENT
    assert {id_ for id_, absent in found.items() if not absent} == set(MUTE)


def test_each_has_its_position(tmp_path: Path) -> None:
    line_by_id = {
        one.id: one.line for one in _figures(tmp_path).unfired if one.file.endswith("p.yaml")
    }
    assert line_by_id["rules/misspelt"] == 2 + POLICY.splitlines().index(
        "  misspelt: {tools: [raed, 'wrte*']}"
    ) + 1  # fmt: skip


def test_a_pack_alone_has_no_own_entries(tmp_path: Path) -> None:
    assert _figures(tmp_path, "extends: [core, strict]").unfired == []


@pytest.mark.parametrize("form", RENDERERS)
def test_every_format_names_a_tool_without_calls(tmp_path: Path, form: str) -> None:
    report = RENDERERS[form](_figures(tmp_path))
    assert "raed" in report
    assert ("rules/mute" in report) is (form != "junit")


def test_the_text_is_short_and_the_json_complete(tmp_path: Path) -> None:
    names = [f"r{n}: {{tools: [none{n}]}}" for n in range(50)]
    names += [f"m{n}: {{tools: [read], when: 'false'}}" for n in range(50)]
    figures = _figures(tmp_path, f"rules: {{{', '.join(names)}}}")
    text = RENDERERS["text"](figures)
    assert text.count("in these runs") == 5
    assert "45 more entries for tools without a call" in text
    assert "and 45 more" in text.split("never fired: ")[1].splitlines()[0]
    assert len(json.loads(RENDERERS["json"](figures))["silent"]) == 100


def test_without_calls_no_tool_is_reported(tmp_path: Path) -> None:
    figures = _figures(tmp_path)
    figures.traces.calls = 0
    assert "raed" not in RENDERERS["text"](figures) + RENDERERS["markdown"](figures)


def test_a_gate_can_ask_for_it(tmp_path: Path) -> None:
    figures = _figures(tmp_path)
    assert Gate(["silent.exists(s, size(s.absent) > 0)"], has_baseline=False).evaluate(figures)
    assert not Gate(["silent.exists(s, s.id == 'rules/spoke')"], has_baseline=False).evaluate(
        figures
    )
