"""Replays on engines: the same report byte for byte, also if a worker dies."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from policyguard.cli import main
from policyguard.model.constraint import Constraint
from policyguard.simulate.clusters.cluster import Ended, Task, _Cluster, connect
from policyguard.simulate.jobs.job import (
    ONE_PROCESS,
    Executor,
    Job,
    JobInputs,
    Key,
    ProgressCallback,
    StoppedError,
    WorkerError,
)
from policyguard.simulate.jobs.parts import Part, fold_part, split
from policyguard.simulate.learning import learn_constraints
from policyguard.simulate.simulation import build_report, simulate, start_replay
from policyguard.traces.session_trees import find_session_trees
from tests.simulate.recording import failed, lines, policy, read, write

ENGINES = ["dask", "ray"]
RULES = """
extends: [core]
rules: {no-b: {tools: [read], when: 'call.args.path == "/b"', message: no}}
"""

LEARNS = """
signatures:
  - {id: broken, pattern: boom, blame: agent, examples: {match: [boom], no_match: [x]}}
learn: {corroborate: 2, ban: call, scope: global}
"""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job with a large file, small ones, a family in two files, labels, and what is no trace."""
    large = [lines(f"l{n}", [read(f"/{n % 5}"), failed("run", "boom", n=n)] * 4) for n in range(80)]
    files = [write(tmp_path / "large.jsonl", *large)]
    for number in range(12):
        calls = [read("/b"), *[failed("run", "boom", x=1)] * (number % 7)]
        sessions = [lines(f"s{number}.{one}", calls, success=one == 1) for one in range(3)]
        files.append(write(tmp_path / f"small{number}.jsonl", *sessions))
    files.append(write(tmp_path / "parent.jsonl", lines("parent", [read("/a")] * 3, success=True)))
    files.append(write(tmp_path / "zchild.jsonl", lines("child", [read("/b")], parent="parent")))
    poisoned = tmp_path / "poisoned.jsonl"
    poisoned.write_bytes(b'{"event":"started","session":"x"}\n\xff\xfe nothing\n')
    files.append(poisoned)
    labels = tmp_path / "labels.jsonl"
    labels.write_text('{"session": "l3", "success": true}\n{"session": "l4", "success": false}\n')
    return Job(
        policies=(str(policy(tmp_path / "p.yaml", RULES)),),
        baseline=("core",),
        labels=labels,
        files=tuple(files),
    )


def _report(figures: Any) -> bytes:
    return msgspec.json.encode(figures)


def _expected(job: Job) -> bytes:
    return _report(simulate(job, JobInputs.load(job), lambda *_: None))


def run_on(engine: str, address: str, workers: int, job: Job, on_progress: ProgressCallback) -> Any:
    with connect(engine, address, workers) as executor:
        return simulate(job, JobInputs.load(job), on_progress, executor)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    pytest.importorskip(name, reason=f"{name} is not installed")
    if name == "dask":
        pytest.importorskip("distributed", reason="distributed is not installed")
    return name


pytestmark = pytest.mark.filterwarnings("default")  # of the engines


def test_parts_hold_each_tree_once(job: Job) -> None:
    trees = find_session_trees(job.files)
    parts = split(job.files, trees, 2)
    shards = [part for part in parts if part.shards > 1]
    assert [(part.shard, part.shards) for part in shards] == [(0, 2), (1, 2)]
    assert {tree for part in shards for tree in part.trees} == {trees[0]}
    whole = [tree for part in parts if part.shards == 1 for tree in part.trees]
    assert sorted(whole, key=lambda tree: tree.indices) == trees[1:]
    assert len([part for part in parts if part.shards == 1]) > 2
    assert split(job.files, trees, 1) != [] and split((), (), 2) == []  # noqa: PT018 - both


@pytest.mark.slow
def test_the_report_is_the_same(job: Job, engine: str) -> None:
    expected = _expected(job)
    for workers in (1, 2):
        seen: list[int] = []
        figures = run_on(engine, "", workers, job, lambda done, *_, seen=seen: seen.append(done))
        assert _report(figures) == expected
        assert sum(seen) == pytest.approx(sum(file.stat().st_size for file in job.files), rel=0.01)


@pytest.mark.slow
def test_a_worker_that_dies_changes_nothing(job: Job) -> None:
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    killed: list[int] = []
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):

        def on_progress(done: int, events: int, note: str = "") -> None:
            if done and not killed:
                pid = next(iter(client.run(os.getpid).values()))
                killed.append(pid)
                os.kill(pid, signal.SIGKILL)

        figures = run_on("dask", cluster.scheduler_address, 2, job, on_progress)
    assert killed
    assert _report(figures) == _expected(job)


def _fail_once(marker: Path, *arguments: Any) -> Any:
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return start_replay(*arguments)
    raise OSError("not yet")


@pytest.mark.slow
def test_a_part_that_fails_always_is_named_in_one_line(job: Job, engine: str) -> None:
    message = r"^the part with .* failed, also when it was tried again: WorkerError: the .* here$"
    other = msgspec.structs.replace(job, revision="other")
    with connect(engine, "", 1) as executor, pytest.raises(WorkerError, match=message):
        executor.fold(start_replay, other, JobInputs.load(job), lambda *_: None)


@pytest.mark.slow
def test_parts_that_were_tried_again_are_counted(job: Job, tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="distributed is not installed")
    notes: list[str] = []
    with connect("dask", "", 1) as executor:
        inputs = JobInputs.load(job)
        start = partial(_fail_once, tmp_path / "marker")
        tally, stopped = executor.fold(
            start, job, inputs, lambda done, events, note="": notes.append(note)
        )
    assert not stopped
    assert _report(build_report(job, inputs, tally, partial=False)) == _expected(job)
    parts = len(split(job.files, find_session_trees(job.files), 1))
    assert next(filter(None, notes)) == f"0 of {parts} parts"
    assert notes[-1] == f"{parts} of {parts} parts, 1 failed and retried"


@pytest.mark.slow
def test_an_interrupt_at_the_terminal_spares_the_workers(job: Job) -> None:
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    interrupted: list[int] = []

    def on_progress(done: int, events: int, note: str = "") -> None:
        if not interrupted:
            interrupted.extend(distributed.default_client().run(os.getpid).values())
            for pid in interrupted:
                os.kill(pid, signal.SIGINT)

    figures = run_on("dask", "", 2, job, on_progress)
    assert len(interrupted) == 2
    assert _report(figures) == _expected(job)


@pytest.mark.slow
def test_an_interrupted_replay_reports_what_was_done(job: Job, engine: str) -> None:
    done_bytes = 0

    def on_progress(done: int, events: int, note: str = "") -> None:
        nonlocal done_bytes
        done_bytes += done
        if done_bytes:
            raise StoppedError

    figures = run_on(engine, "", 2, job, on_progress)
    assert figures.partial
    assert figures.traces.named_files == len(job.files)
    assert 0 < figures.traces.sessions <= json.loads(_expected(job))["traces"]["sessions"]


class _Task:
    """A task of `_OneByOne`."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._function, self._args = function, args
        self.results: list[Any] = []

    def run(self) -> None:
        args = [arg.result() if isinstance(arg, _Task) else arg for arg in self._args]
        self.results.append(self._function(*args))

    def result(self) -> Any:
        return self.results[0]


class _OneByOne:
    """An engine without workers: it runs one task each time that it is waited for."""

    def __init__(self) -> None:
        self.cancelled: list[Task] = []

    def submit(self, function: Callable[..., Any], *args: object) -> Task:
        task = _Task(function, args)
        if any(isinstance(arg, _Task) for arg in args):
            task.run()
        return task

    def wait(self, tasks: Sequence[Any], seconds: float) -> list[Task]:
        waiting = [task for task in tasks if not task.results]
        if seconds and waiting:
            waiting[0].run()
        return [task for task in tasks if task.results]

    def check(self, task: Any) -> Ended:
        return Ended(len(task.results))

    def result(self, task: Any) -> Any:
        return task.result()

    def cancel(self, tasks: Sequence[Task]) -> None:
        self.cancelled += tasks


def test_parts_add_up_to_the_report(job: Job) -> None:
    engine = _OneByOne()
    figures = simulate(job, JobInputs.load(job), lambda *_: None, _Cluster(engine, 4))
    assert len(split(job.files, find_session_trees(job.files), 4)) > 8  # added up in a tree
    assert _report(figures) == _expected(job)
    assert engine.cancelled == []


def test_progress_counts_what_engines_try_again(job: Job) -> None:
    class Retrying(_OneByOne):
        def check(self, task: Any) -> Ended:
            return Ended(1, retries=2)

    notes: list[str] = []
    simulate(
        job,
        JobInputs.load(job),
        lambda done, events, note="": notes.append(note),
        _Cluster(Retrying(), 1),
    )
    parts = len(split(job.files, find_session_trees(job.files), 1))
    assert notes[-1] == f"{parts} of {parts} parts, {2 * parts} failed and retried"


def test_a_success_refutes_failures_of_another_part(tmp_path: Path) -> None:
    """All parts learn of all failures, also where there are only two."""
    boom = failed("run", "boom", x=1)
    done = {"tool": "run", "args": {"x": 1}, "text": "done"}
    files = [
        write(tmp_path / "fails.jsonl", lines("s1", [boom, boom])),
        write(tmp_path / "works.jsonl", lines("s2", [done])),
    ]
    file = policy(tmp_path / "p.yaml", LEARNS)

    def learn(files: Sequence[Path], executor: Executor = ONE_PROCESS) -> list[Constraint]:
        job = Job(policies=(str(file),), files=tuple(files), key=Key(b"k" * 32))
        return list(learn_constraints(job, JobInputs.load(job), executor=executor))

    assert len(split(files, find_session_trees(files), 1)) == 2
    assert learn(files, _Cluster(_OneByOne(), 1)) == learn(files) != learn(files[:1])


def test_a_stopped_fold_has_the_parts_that_had_ended(job: Job) -> None:
    engine, ended = _OneByOne(), 0

    def on_progress(done: int, events: int, note: str = "") -> None:
        nonlocal ended
        ended += done > 0
        if ended == 2:
            raise StoppedError

    figures = simulate(job, JobInputs.load(job), on_progress, _Cluster(engine, 4))
    assert figures.partial
    parts = split(job.files, find_session_trees(job.files), 4)
    assert len(engine.cancelled) == len(parts) - 2
    assert all(not task.results for task in engine.cancelled if isinstance(task, _Task))
    assert figures.traces.sessions == 40  # half of the large file, which is read in four


def _simulate(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["simulate", *map(str, arguments)])


@pytest.mark.slow  # it waits ten seconds
def test_a_cluster_that_is_not_there_is_said(job: Job, engine: str) -> None:
    address = {"dask": "tcp://127.0.0.1:1", "ray": "127.0.0.1:1"}[engine]
    if engine == "ray":
        pytest.skip("Ray tries for minutes")
    result = _simulate(*job.files, "--executor", engine, "--address", address)
    assert (result.exit_code, "no scheduler of Dask answers" in result.output) == (2, True)


def test_an_engine_that_is_not_installed_is_named(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "policyguard.simulate.clusters.ray", raising=False)
    with pytest.raises(WorkerError, match=r"pip install 'policyguard-engine\[ray\]'"):
        run_on("ray", "", 1, job, lambda *_: None)
    result = _simulate(*job.files, "--executor", "ray")
    assert result.exit_code == 2


def test_an_address_needs_an_engine(job: Job) -> None:
    result = _simulate(*job.files, "--address", "tcp://127.0.0.1:1")
    assert (result.exit_code, "choose its engine" in result.output) == (2, True)


def test_an_empty_part_is_an_empty_tally(job: Job) -> None:
    assert fold_part(start_replay, job, Part((), 0)).traces.sessions == 0
