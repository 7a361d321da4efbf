"""Files whose lines several workers share: odd lines, labels of files, samples, conditions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from policyguard.simulate.jobs import line_shard
from policyguard.simulate.jobs.job import FoldWorker, Job, JobInputs, merge
from policyguard.simulate.jobs.line_shard import LineShard
from policyguard.simulate.sessions import trace_player
from policyguard.simulate.simulation import simulate
from tests.simulate.recording import failed, lines, policy, read, write

PARENTS = "pqrst"
"""Of sessions with other workers."""


class SharedLines:
    """An executor of so many workers that share all files by lines."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def fold(self, start: Any, job: Job, *_: Any, **__: Any) -> Any:
        shards = [LineShard(number, self._workers) for number in range(self._workers)]
        workers = [FoldWorker(start, job, None, shard, lambda *_: None) for shard in shards]
        return merge(*(worker.run()[0] for worker in workers)), False


def _check(
    folder: Path,
    *files: Sequence[str],
    labels: Sequence[dict[str, Any]] = (),
    sample: float | None = None,
    where: str = "",
) -> Any:
    """Return the report of some files, the same from one worker and from several."""
    paths = [write(folder / f"f{number}.jsonl", file) for number, file in enumerate(files)]
    write(folder / "labels.jsonl", map(json.dumps, labels))
    job = Job(
        policies=(str(policy(folder / "p.yaml", "budgets: {reads: {tools: [read], calls: 2}}")),),
        labels=folder / "labels.jsonl" if labels else None,
        files=tuple(paths),
        sample=sample,
        where=where,
    )
    inputs = JobInputs.load(job)
    whole = simulate(job, inputs, lambda *_: None)
    for workers in (2, 3):
        assert simulate(job, inputs, lambda *_: None, SharedLines(workers)) == whole
    return whole


def _start(session: str, **started: str) -> str:
    return next(lines(session, [], **started))


def _broken(event: str, session: str) -> str:
    """An event as only a later version may know it."""
    return json.dumps({"event": event, "session": session, "unknown": 1})


def _children(*between: str) -> Iterator[str]:
    """Sessions with a parent, whose lines `between` come before their calls."""
    for parent in PARENTS:
        child = list(lines("c" + parent, [read("/a")] * 3, parent=parent))
        yield _start(parent)
        yield from child[:1]
        yield from (line.replace("CHILD", "c" + parent) for line in between)
        yield from child[1:]


def test_a_broken_end_ends_no_session(tmp_path: Path) -> None:
    report = _check(tmp_path, [*_children(_start("other"), _broken("closed", "CHILD"))])
    assert report.traces.sessions == 2 * len(PARENTS) + 1


def test_a_broken_line_starts_no_session(tmp_path: Path) -> None:
    broken = [_broken("turn_started", "c" + parent) for parent in PARENTS]
    assert _check(tmp_path, [*broken, *_children()]).traces.skipped == len(PARENTS)


def test_a_broken_line_is_no_other_session_of_a_labelled_file(tmp_path: Path) -> None:
    file = [_start("s"), _broken("turn_started", "other"), *lines("s", [read("/a")])]
    report = _check(tmp_path, file, labels=[{"file": "f0.jsonl", "success": True}])
    assert report.labels.matched == 1


@pytest.mark.parametrize("is_open", [True, False])
def test_a_label_of_a_source_needs_a_single_session(tmp_path: Path, *, is_open: bool) -> None:
    """Also where a sub-agent has the worker of its parent, and not that of its source."""
    file = [
        line
        for parent in PARENTS
        for line in (
            *lines(parent, [], closed=not is_open),
            *lines("a" + parent, [read("/a")], source=f"{parent}.json"),
            *lines("c" + parent, [read("/a")], source=f"{parent}.json", parent=parent),
            *lines("d" + parent, [read("/a")], source=f"only-{parent}.json", parent=parent),
        )
    ]
    names = [f"{only}{parent}.json" for only in ("", "only-") for parent in PARENTS]
    report = _check(tmp_path, file, labels=[{"file": name, "success": True} for name in names])
    assert report.labels.matched == len(PARENTS)


@pytest.mark.parametrize(("between", "sessions"), [(3, 1), (4, 2)])
def test_workers_agree_on_when_an_idle_session_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, between: int, sessions: int
) -> None:
    for module in (trace_player, line_shard):
        monkeypatch.setattr(module, "IDLE_LINES", 4)
    session = list(lines("s", [read("/a")] * 2, closed=False))
    file = [*session[:4], *["broken"] * between, *session[4:]]
    figures = _check(tmp_path, file, labels=[{"file": "f0.jsonl", "success": False}])
    assert figures.traces.sessions == sessions
    assert {run.success for run in figures.sessions} == ({False} if sessions == 1 else {None})


def test_a_label_of_a_file_needs_a_single_session_beside_a_sample(tmp_path: Path) -> None:
    files = [[*lines(f"a{n}", [read("/a")]), *lines(f"b{n}", [read("/a")])] for n in range(40)]
    labels = [{"file": f"f{number}.jsonl", "success": True} for number in range(40)]
    report = _check(tmp_path, *files, labels=labels, sample=0.3)
    assert 0 < report.traces.sessions < 80
    assert report.labels.matched == 0


@pytest.mark.parametrize("again", [True, False])
def test_a_sample_has_the_same_sessions_after_a_parent_has_ended(
    tmp_path: Path, *, again: bool
) -> None:
    """A sub-agent of a sub-agent that has ended, or a session with the id of such a one."""
    file = [
        line
        for n in range(40)
        for line in (
            _start(f"p{n}"),
            *lines(f"c{n}", [read("/a")], parent=f"p{n}"),
            *lines(f"c{n}" if again else f"g{n}", [], parent="" if again else f"c{n}"),
        )
    ]
    assert 0 < _check(tmp_path, file, sample=0.4).traces.sessions < 120


def test_a_file_that_no_condition_reads_is_skipped_once(tmp_path: Path) -> None:
    report = _check(tmp_path, [*lines("s", [read("/a")])], where="agent == 'x'")
    assert (report.traces.skipped, report.traces.sessions) == (1, 0)


def test_errors_of_parallel_calls_are_in_the_order_of_their_results(tmp_path: Path) -> None:
    start, turn, call, boom, other_call, full, end = lines(
        "a", [failed("run", "boom"), failed("run", "full")]
    )
    other = lines("b", [failed("run", "full"), failed("run", "boom")])
    report = _check(tmp_path, [start, turn, call, other_call, boom, full, *other, end])
    assert [error.error for error in report.signatures.unmatched] == ["boom", "full"]
