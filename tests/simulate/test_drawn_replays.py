"""Replays of drawn recordings: reports are what they were when they were written down.

`tests/cases/drawn_replays.txt` has a line for each part of a report: its numbers as far as they are
short, and a checksum of all of it. After a change of behaviour that is wanted, run with
`POLICYGUARD_PIN=1` and read the difference.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from policyguard.cli import main
from tests.guard.play import number_ids, see_at_once
from tests.pinned_lines import PinnedLines

from .drawn_recordings import Drawing

__all__ = ["see_at_once"]

pytestmark = pytest.mark.usefixtures("see_at_once")

PINNED = PinnedLines("drawn_replays.txt")
SEEDS = range(60)
EXPLAINED = range(100, 112)
SUGGESTED = range(200, 208)
_VARYING = ("created_at", "elapsed_s", "digest")


def run(*arguments: str) -> tuple[int, str, str]:
    """Return the exit code of `policyguard`, what it prints, and what it says beside it."""
    result = CliRunner().invoke(main, arguments)
    return result.exit_code, result.stdout, result.stderr


def describe(name: str, value: Any) -> str:
    """Return a line about one part of a report."""
    text = number_ids(json.dumps(_rounded(value), sort_keys=True), {})
    if len(text) <= 60:
        return f"  {name}: {text}"
    return f"  {name}: {len(value)} parts {zlib.crc32(text.encode()):08x}"


def _rounded(value: Any) -> Any:
    """Return a value whose shares do not depend on how a machine rounds."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items() if key not in _VARYING}
    if isinstance(value, list):
        return [*map(_rounded, value)]
    return round(value, 6) if isinstance(value, float) else value


def describe_run(options: Sequence[str], code: int, printed: str, said: str) -> list[str]:
    """Return the lines about a report, and how it came about."""
    lines = [" ".join(options), f"  exit code {code}", *(f"  {line}" for line in said.splitlines())]
    report = json.loads(printed) if printed else {}
    found = [(name, part) for name, part in report.items() if part and name not in _VARYING]
    return lines + [describe(name, part) for name, part in found]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_drawn_replay_is_reported_as_it_was_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.chdir(tmp_path)
    drawing = Drawing(seed)
    traces = ["one.jsonl", "two.jsonl", "alone.jsonl"]
    drawing.write_recording(Path("one.jsonl"), 8)
    drawing.write_recording(Path("two.jsonl"), 3)
    drawing.write_recording(Path("alone.jsonl"), 1)
    options = ["--policy", str(drawing.write_policy(Path("policy"), 0))]
    baseline = drawing.write_policy(Path("before"), 1)
    if drawing.chance(0.5):
        options += ["--baseline", str(baseline)]
    if drawing.chance(0.5):
        drawing.write_journals(Path("journals"), baseline)
        traces.append("journals/journal")
    if drawing.chance(0.7):
        drawing.write_labels(Path("labels.jsonl"), all_of=8)
        options += ["--labels", "labels.jsonl"]
    options += drawing.pick((), (), ("--mode", "observe"))
    options += drawing.pick((), (), ("--sessions", "3"), ("--timelines", "1"))
    options += drawing.pick((), (), (), ("--sample", "50%"))
    gates = ("harm.rate > 0.1", "size(rules) > 2", "baseline.newly_refused.failed > 0")
    options += drawing.pick((), ("--fail-on", drawing.pick(*gates)))
    code, printed, said = run("simulate", *traces, *options, "--format", "json")
    PINNED.check(f"replay {seed}", describe_run((*traces, *options), code, printed, said))


@pytest.mark.parametrize("seed", EXPLAINED)
def test_decisions_of_a_drawn_play_are_explained_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.chdir(tmp_path)
    drawing = Drawing(seed)
    policy = drawing.write_policy(Path("policy"), 0)
    drawing.write_journals(Path("state"), policy)
    asked = [call for file in sorted(Path("state/journal").iterdir()) for call in _decided(file)]
    names: dict[str, str] = {}
    lines = []
    for session, call in asked[:: 1 + len(asked) // 12]:
        arguments = (session, call, "--policy", str(policy), "--store", "state/store.db")
        code, printed, said = run("why", *arguments, "--format", "json")
        text = number_ids(f"{printed}{said}", names)
        lines.append(f"  {session} {names.get(call, call)}: {code} {zlib.crc32(text.encode()):08x}")
    PINNED.check(f"why {seed}", lines)


def _decided(journal: Path) -> list[tuple[str, str]]:
    """Return the calls of a journal that were not simply allowed, and some others."""
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    decided = [event for event in events if event.get("event") in ("admitted", "refused")]
    noted = [event for event in decided if event.get("violations")]
    return [(event["session"], event["call"]) for event in (*noted, *decided[:3])]


@pytest.mark.parametrize("seed", SUGGESTED)
def test_proposals_from_drawn_recordings_are_what_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.chdir(tmp_path)
    drawing = Drawing(seed)
    drawing.write_recording(Path("one.jsonl"), 40)
    drawing.write_labels(Path("labels.jsonl"), all_of=40)
    policy = drawing.write_policy(Path("policy"), 0)
    options = ["--policy", str(policy), "--labels", "labels.jsonl"]
    options += ["--max-harm", drawing.pick("0.1", "0.3"), "--delta", drawing.pick("0.1", "0.4")]
    code, printed, said = run("suggest", "one.jsonl", *options, "--format", "json")
    PINNED.check(f"suggest {seed}", describe_run(options, code, printed, said))
