"""`--sample`: the same sessions however they are read, with their sub-agents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from policyguard.cli import main
from policyguard.model.event import Admitted, SessionStarted
from policyguard.simulate.jobs.job import Job, JobInputs
from policyguard.simulate.jobs.workers import LocalProcesses
from policyguard.simulate.sample.sampling import Draw, SessionSample, parse_share
from policyguard.simulate.simulation import simulate
from policyguard.traces import TraceError
from tests.simulate.recording import lines, policy, read, write


def traces(folder: Path) -> tuple[Path, ...]:
    large = [lines(f"l{n}", [read("/a")] * 3, success=n % 2 == 0) for n in range(400)]
    files = [write(folder / "large.jsonl", *large)]
    for number in range(40):
        family = [
            lines("p", [read("/a")], success=True, closed=False),
            lines("c", [read("/b")], parent="p"),
            lines("g", [read("/c")], parent="c"),
        ]
        files.append(write(folder / f"family{number}.jsonl", *family))
    return tuple(files)


def report(files: tuple[Path, ...], share: float | None, workers: int = 1) -> Any:
    small = policy(files[0].parent / "small.yaml", "limits: {default: {repeat: {max: 2}}}")
    job = Job(policies=(str(small),), files=files, sample=share)
    inputs = JobInputs.load(job)
    return simulate(job, inputs, lambda *_: None, LocalProcesses(workers))


def names(figures: Any) -> set[tuple[str, str]]:
    return {(run.file, run.id) for run in figures.sessions}


def test_a_sample_is_a_share_of_the_sessions(tmp_path: Path) -> None:
    files = traces(tmp_path)
    everything, tenth, half = (report(files, share) for share in (None, 0.1, 0.5))
    assert everything.traces.sample is None
    assert (tenth.traces.sample, everything.traces.sessions) == (0.1, 520)
    assert 25 < tenth.traces.sessions < 90
    assert 200 < half.traces.sessions < 320
    assert names(tenth) < names(half) < names(everything)
    assert names(report(files, 1.0)) == names(everything)
    families = [{run for run in names(half) if f"family{n}.jsonl" in run[0]} for n in range(40)]
    assert {len(family) for family in families} == {0, 3}, "sub-agents go with their parents"
    rate, (low, high) = half.harm.rate, half.harm.ci95
    assert low <= rate <= high
    assert high - low > everything.harm.ci95[1] - everything.harm.ci95[0]


def test_a_sample_is_the_same_with_several_workers(tmp_path: Path) -> None:
    files = [*traces(tmp_path)]
    for number in range(20):
        parent, child = f"apart{number}", f"child{number}"  # in files that are read as one
        files += [
            write(tmp_path / f"{parent}.jsonl", lines(parent, [read("/a")], success=True)),
            write(tmp_path / f"{child}.jsonl", lines(child, [read("/b")], parent=parent)),
        ]
    figures = report(tuple(files), 0.3)
    assert figures == report(tuple(files), 0.3, workers=2)
    assert any("apart" in file for file, _ in names(figures))


@given(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=30))
def test_a_sub_agent_goes_with_its_parent(parents: list[str]) -> None:
    sample = SessionSample(0.5, Draw())
    sample.begin("t.jsonl")
    chosen = {name: sample(SessionStarted(name)) for name in "abcdef"}
    for number, parent in enumerate(parents):
        assert sample(SessionStarted(f"c{number}", parent=parent)) is chosen[parent]
        assert sample(Admitted(f"c{number}")) is chosen[parent]
    late = SessionSample(0.5, Draw())
    late.begin("t.jsonl")
    assert late(SessionStarted("c", parent=parents[0])) is chosen[parents[0]]


def test_the_report_says_that_it_is_a_sample(tmp_path: Path) -> None:
    files = traces(tmp_path)
    arguments = ["simulate", *map(str, files), "--sample", "25%"]
    said = CliRunner().invoke(main, arguments).output
    assert "a sample of 0.25 of the sessions, " in " ".join(said.split())
    found = json.loads(CliRunner().invoke(main, [*arguments, "--format", "json"]).stdout)
    assert found["traces"]["sample"] == 0.25


@pytest.mark.parametrize("text", ["0", "0%", "-1%", "101%", "1.5", "x", "1%%", "nan", "inf", "%"])
def test_a_share_that_is_none_is_said(text: str) -> None:
    with pytest.raises(TraceError, match="no share of the sessions; write 1% or"):
        parse_share(text)


def test_shares() -> None:
    assert [parse_share(text) for text in ("1%", " 12.5% ", "0.3", "1", "100%")] == [
        0.01,
        0.125,
        0.3,
        1,
        1,
    ]
