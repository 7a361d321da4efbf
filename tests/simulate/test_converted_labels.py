"""Labels match recordings by their files, also when these were converted to one file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from policyguard.cli import main
from policyguard.report.replay.figures import Figures
from policyguard.simulate.jobs.job import FoldWorker, Job, JobInputs, merge
from policyguard.simulate.jobs.line_shard import LineShard
from policyguard.simulate.simulation import build_report, simulate, start_replay
from policyguard.simulate.suggest import Request, suggest
from tests.simulate.recording import lines, policy, read, write

NO_B = "rules: {no-b: {tools: [read], when: 'call.args.path == \"/b\"', message: no}}"


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    (folder / "sub").mkdir(parents=True)
    for number in range(12):
        write(folder / f"one{number}.jsonl", lines("s", [read("/b")], agent="x"))
    write(folder / "several.jsonl", *(lines(f"v{n}", [read("/a")]) for n in range(3)))
    write(folder / "parent.jsonl", lines("p", [read("/a")] * 2))
    write(folder / "sub" / "zchild.jsonl", lines("c", [read("/b")], parent="p"))
    labels = [{"file": f"one{n}.jsonl", "success": n % 2 == 0} for n in range(8)]
    labels += [
        {"file": "several.jsonl", "success": True},  # does not say which of them
        {"file": "runs/several.jsonl", "session": "v1", "success": True},
        {"file": "zchild.jsonl", "success": False},
        {"file": "parent.jsonl", "success": True},
    ]
    text = "".join(f"{json.dumps(label)}\n" for label in labels)
    (tmp_path / "labels.jsonl").write_text(text)
    return folder


def _figures(folder: Path, files: list[Path], sample: float | None = None) -> Figures:
    job = _job(folder, files, sample)
    return simulate(job, JobInputs.load(job), lambda *_: None)


def _job(folder: Path, files: list[Path], sample: float | None = None) -> Job:
    return Job(
        policies=(str(policy(folder.parent / "p.yaml", NO_B)),),
        labels=folder.parent / "labels.jsonl",
        files=tuple(files),
        sample=sample,
    )


@pytest.mark.parametrize("kind", ["events", "parquet"])
def test_labels_match_what_was_converted(recorded: Path, tmp_path: Path, kind: str) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    files = sorted(recorded.rglob("*.jsonl"))
    first, again = tmp_path / f"1.{kind}", tmp_path / f"2.{kind}"
    for source, output in ((recorded, first), (first, again)):
        arguments = ["traces", "convert", str(source), "--to", kind, "-o", str(output)]
        assert CliRunner().invoke(main, arguments).exit_code == 0
    expected = _figures(recorded, files)
    assert expected.labels.matched == 11
    assert (expected.harm.succeeded, expected.harm.refused, expected.catch.failed) == (6, 4, 5)
    for converted in (first, again):
        found = _figures(recorded, [converted])
        assert (found.harm, found.catch, found.labels) == (
            expected.harm,
            expected.catch,
            expected.labels,
        )
    sampled = _figures(recorded, [first], 1.0)
    assert [(one.success, one.drawn) for one in sampled.traces.strata] == [
        (one.success, one.sessions) for one in _figures(recorded, files, 1.0).traces.strata
    ]


def test_one_worker_has_all_sessions_of_a_source(recorded: Path, tmp_path: Path) -> None:
    output = tmp_path / "all.jsonl"
    CliRunner().invoke(main, ["traces", "convert", str(recorded), "-o", str(output)])
    job = _job(recorded, [output])
    inputs = JobInputs.load(job)
    parts = [
        FoldWorker(start_replay, job, inputs, LineShard(n, 3), lambda *_: None).run()[0]
        for n in range(3)
    ]
    assert sum(part.traces.sessions > 0 for part in parts) > 1
    assert build_report(job, inputs, merge(*parts), partial=False) == _figures(recorded, [output])


def test_suggest_uses_them_too(recorded: Path, tmp_path: Path) -> None:
    output = tmp_path / "all.jsonl"
    CliRunner().invoke(main, ["traces", "convert", str(recorded), "-o", str(output)])
    rules = str(policy(tmp_path / "p.yaml", NO_B))
    found = suggest(
        Request(policies=(rules,), files=(output,), labels=tmp_path / "labels.jsonl", max_harm=0.5)
    )
    assert found.explored.succeeded + found.held_out.succeeded == 6
    assert found.explored.failed + found.held_out.failed == 5
