"""What recordings teach is the same in one process and in parts, however sessions are spread."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing import Pipe
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard.compiler import CompiledPolicy
from policyguard.guard.replay import ReplayGuard, ReplaySession
from policyguard.model.constraint import Constraint
from policyguard.model.event import Admitted, Completed, Refused, SessionEnded, SessionStarted
from policyguard.simulate import observed_sessions
from policyguard.simulate.clusters.cluster import connect
from policyguard.simulate.jobs import line_shard
from policyguard.simulate.jobs.job import (
    ONE_PROCESS,
    Executor,
    FoldWorker,
    Job,
    JobInputs,
    Key,
    ProgressCallback,
    StartFold,
    StoppedError,
    merge,
    narrow_result,
    summarize,
)
from policyguard.simulate.jobs.line_shard import LineShard
from policyguard.simulate.jobs.parts import fold_part, split
from policyguard.simulate.jobs.reading_units import find_reading_units
from policyguard.simulate.jobs.workers import LocalProcesses, _run_worker
from policyguard.simulate.learning import find_ordered_entries, learn_constraints
from policyguard.simulate.observations import Observations
from policyguard.simulate.observed_sessions import start_observing
from policyguard.simulate.sessions import trace_player
from policyguard.traces import Reader, Skipped
from policyguard.traces.convert import RenamedSession, convert_traces
from policyguard.traces.session_trees import find_session_trees
from tests.examples import examples
from tests.simulate.recording import SECOND, failed, lines, policy, read, write

KEY = Key(b"k" * 32)
SIGNATURES = """
signatures:
  - {id: broken, pattern: boom, blame: agent, examples: {match: [boom], no_match: [x]}}
  - {id: full, pattern: full, blame: agent, examples: {match: [full], no_match: [x]}, learn: %s}
classify:
  targets: [path]
  classes: [{class: look, tools: [read]}]
"""
PARAMETERS = "{full: {of: [x], direction: up}}"
POLICIES = {
    "calls of a project, for a time": (
        "learn: {corroborate: 2, ban: call, scope: project, weaken: {lives: 9s, half_life: 3s}}",
        "{scope: session, corroborate: 1}",
    ),
    "calls of a session": ("learn: {corroborate: 2, ban: call, scope: session}", "{ban: call}"),
    "tools of an agent, few": (
        "learn: {corroborate: 2, ban: tool, scope: agent, most: 2, blame: [agent, unknown]}\n"
        "bounds: {evidence: 2}",
        "{ban: class, count_by: outcome.signature, corroborate: 3}",
    ),
    "targets and keys": (
        "learn: {corroborate: 2, ban: target, scope: project, except: [], reset_on: none}\n"
        "bounds: {constraints: 2, evidence: 3}",
        "{key: call.tool, scope: global, scope_key: call.args.x, weaken: {on_success: keep}}",
    ),
    "regions of parameters": (
        "learn: {corroborate: 2, scope: project, count_by: call.tool, ban: tool, "
        f"blame: [agent, unknown], parameters: {PARAMETERS}}}",
        "{corroborate: 1, scope: agent}",
    ),
}

CALL = st.one_of(
    st.builds(lambda n: read(f"/{n}"), st.integers(0, 1)),
    st.builds(lambda n: read(f"/{n}", "boom", ok=False), st.integers(0, 1)),
    st.builds(
        lambda error, n: failed("run", error, x=n),
        st.sampled_from(["boom", "full", "odd 1", "odd 2"]),
        st.integers(0, 2),
    ),
    st.builds(lambda n: {"tool": "run", "args": {"x": n}, "text": "done"}, st.integers(0, 2)),
)
SESSION = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["s", "t", "s#1", "u"]),
        "calls": st.lists(CALL, max_size=7),
        "project": st.sampled_from(["", "a", "b"]),
        "agent": st.sampled_from(["", "x"]),
        "parent": st.sampled_from(["", "s", "t"]),
        "closed": st.booleans(),
        "starts": st.booleans(),
        "delay": st.integers(0, 20),
        "batch": st.sampled_from(["", "b"]),
    }
)
FILES = st.lists(st.lists(SESSION, min_size=1, max_size=4), min_size=1, max_size=5)


def _session_lines(session: dict[str, Any]) -> list[str]:
    """The lines of a session, at its own time; some without their start, some in one batch."""
    names = ("project", "agent", "parent")
    started = {name: session[name] for name in names if session[name] != session["id"]}
    events = [
        json.loads(line)
        for line in lines(session["id"], session["calls"], closed=session["closed"], **started)
    ]
    for event in events:
        event["at"] += session["delay"] * SECOND
        if event["event"] == "admitted" and session["batch"]:
            event["batch"] = session["batch"]
    return [json.dumps(event) for event in events[0 if session["starts"] else 2 :]]


def _write_files(folder: Path, files: Sequence[Any], order: Any) -> tuple[Path, ...]:
    """Write files of interleaved sessions; one of the same id follows the one before."""
    paths = []
    for number, sessions in enumerate(files):
        waiting: dict[str, list[str]] = {"": ["{broken"]}
        for session in sessions:
            waiting.setdefault(session["id"], []).extend(_session_lines(session))
        merged = []
        while any(waiting.values()):
            merged.append(order.choice([one for one in waiting.values() if one]).pop(0))
        paths.append(write(folder / f"f{number}.jsonl", merged))
    return tuple(paths)


def _starts_again(sessions: Sequence[Any]) -> bool:
    """Whether a session that is still open starts again under a parent."""
    unlinked: set[str] = set()
    for session in sessions:
        id_ = session["id"]
        is_linked = session["starts"] and session["parent"] not in ("", id_)
        if id_ in unlinked and is_linked:
            return True
        if session["closed"] or is_linked:
            unlinked.discard(id_)
        elif session["starts"] or session["calls"]:
            unlinked.add(id_)
    return False


def _learn_from_all(
    compiled: CompiledPolicy, files: Sequence[Path], project: str
) -> tuple[list[Constraint], list[Skipped]]:
    """What one guard learns that reads all recordings in order, and what it skips."""
    compiled.fingerprinter.rekey(KEY)
    guard, reader = ReplayGuard(compiled, observe=True), Reader()
    sessions: dict[str, ReplaySession] = {}
    skipped = []
    for item in convert_traces(trace for file in files for trace in reader.iter_files(file)):
        if isinstance(item, RenamedSession):
            continue
        if isinstance(item, Skipped):
            skipped.append(item)
            continue
        if item.session not in sessions:
            started = SessionStarted(item.session, item.at)
            started = item if isinstance(item, SessionStarted) else started
            named = msgspec.structs.replace(started, parent="", project=started.project or project)
            sessions[item.session] = guard.start_session(named)
        session = sessions[item.session]
        match item:
            case SessionStarted() | Refused():
                pass
            case Admitted():
                session.admit(item, state_changing=False)
            case Completed():
                session.record(item)
            case SessionEnded():
                session.apply(item)
                del sessions[item.session]
            case _:
                session.apply(item)
    return list(guard.constraints()), skipped


class InParts:
    """An executor that folds parts one by one, each as if in another process.

    They are those of a cluster with so many workers, or else (`by_line`) each part has its share of
    the sessions of every file.
    """

    def __init__(self, count: int, *, by_line: bool = False) -> None:
        self._count = count
        self._by_line = by_line
        self.narrowed: list[Observations] = []

    def fold(
        self,
        start: StartFold[Any],
        job: Job,
        inputs: JobInputs,
        on_progress: ProgressCallback,
        *,
        narrow: bool = False,
    ) -> tuple[Any, bool]:
        found = [_copy(result) for result in self._fold_parts(start, job, on_progress)]
        found.reverse()  # whichever is done first
        assert narrow
        summary = merge(*(_copy(summarize(result)) for result in found))
        self.narrowed = [_copy(narrow_result(result, _copy(summary))) for result in found]
        return merge(*map(_copy, self.narrowed)), False

    def _fold_parts(
        self, start: StartFold[Any], job: Job, on_progress: ProgressCallback
    ) -> Iterator[Any]:
        if self._by_line:
            units = find_reading_units(job.files, find_session_trees(job.files))
            shared = {unit.trees[0].indices[0] for unit in units if unit.is_shared}
            for number in range(self._count):
                mine = [unit for unit in units if unit.is_shared or number == self._count - 1]
                worker = FoldWorker(
                    _copy(start), _copy(job), None, LineShard(number, self._count), on_progress
                )
                trees = [tree for unit in mine for tree in unit.trees]
                yield worker.run(trees, shared.__contains__)[0]
            return
        for part in split(job.files, find_session_trees(job.files), self._count):
            yield fold_part(_copy(start), _copy(job), part)


def _copy(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - ours


def _learn(
    job: Job, inputs: JobInputs, executor: Executor = ONE_PROCESS, project: str = ""
) -> tuple[list[Constraint], list[Skipped]]:
    skipped: list[Skipped] = []
    found = learn_constraints(
        job, inputs, executor=executor, project=project, on_skipped=skipped.append
    )
    return list(found), skipped


@pytest.fixture(scope="module", params=POLICIES)
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A policy, and its inputs, which one process needs."""
    learn, own = POLICIES[request.param]
    file = policy(tmp_path_factory.mktemp("policy") / "p.yaml", learn + SIGNATURES % own)
    return (str(file),), JobInputs.load(Job(policies=(str(file),)))


@settings(max_examples=examples(150, 15), deadline=None)
@given(
    files=FILES,
    order=st.randoms(use_true_random=False),
    project=st.sampled_from(["", "a"]),
    idle=st.sampled_from([3, 12, trace_player.IDLE_LINES]),
)
def test_parts_teach_what_all_recordings_do(
    tmp_path_factory: pytest.TempPathFactory,
    compiled: Any,
    files: Any,
    order: Any,
    project: str,
    idle: int,
) -> None:
    """Several projects, sub-agents in other files, ids used twice, bans that end, small caps."""
    folder = tmp_path_factory.mktemp("parts")
    policies, inputs = compiled
    assert find_ordered_entries(inputs) == ()
    job = Job(policies=policies, files=_write_files(folder, files, order), key=KEY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(observed_sessions, "IDLE_LINES", idle)
        patch.setattr(observed_sessions, "PROGRESS_INTERVAL", 2)
        patch.setattr(line_shard, "IDLE_LINES", idle)
        whole = _learn(job, inputs, project=project)
        for executor in (InParts(2), InParts(99), InParts(3, by_line=True)):
            assert _learn(job, inputs, executor, project) == whole
    if idle == trace_player.IDLE_LINES and not any(map(_starts_again, files)):
        assert whole == _learn_from_all(inputs.policy, job.files, project)


@pytest.fixture
def recorded(tmp_path: Path) -> Job:
    """A large file, small ones, a family, ids that are used twice, and what is no trace."""
    run, boom = {"tool": "run", "args": {"x": 1}, "text": "done"}, failed("run", "boom", x=1)
    odd = [failed("run", "boom", x=number) for number in range(9)]
    calls = [
        [read("/a"), *odd[number % 9 :], *[run] * (number % 5 == 4), *[boom] * (number % 3)]
        for number in range(60)
    ]
    large = [lines(f"l{n}", calls[n], closed=n % 2 == 0, project="ab"[n % 2]) for n in range(60)]
    files = [write(tmp_path / "large.jsonl", *large)]
    for number in range(8):
        sessions = [lines(f"s{n}", calls[number * 5 + n]) for n in range(3)]
        files.append(write(tmp_path / f"small{number}.jsonl", *sessions))
    files.append(write(tmp_path / "achild.jsonl", lines("child", odd, parent="parent")))
    files.append(write(tmp_path / "parent.jsonl", lines("parent", odd)))
    poisoned = tmp_path / "poisoned.jsonl"
    poisoned.write_bytes(b'{"event":"started","session":"x"}\n\xff\xfe nothing\n')
    (tmp_path / "other.txt").write_text("no trace")
    files += [poisoned, tmp_path / "other.txt", tmp_path / "gone.jsonl"]
    learn, own = POLICIES["calls of a project, for a time"]
    policies = (str(policy(tmp_path / "p.yaml", learn + SIGNATURES % own)),)
    return Job(policies=policies, files=tuple(files), key=KEY)


def test_a_session_that_starts_again_under_a_parent_is_another(tmp_path: Path) -> None:
    """A worker that has its parent reads it from there."""
    boom = failed("run", "boom", x=1)
    events = [
        event
        for number in range(12)
        for started in ({}, {"parent": f"p{number}"})
        for event in lines(f"s{number}", [boom], closed=False, **started)
    ]
    file = write(tmp_path / "f.jsonl", events)
    learn = "learn: {corroborate: 2, ban: call, scope: session, reset_on: none}"
    policies = (str(policy(tmp_path / "p.yaml", learn + SIGNATURES % "{}")),)
    job = Job(policies=policies, files=(file,), key=KEY)
    inputs = JobInputs.load(job)
    assert _learn(job, inputs, InParts(5, by_line=True)) == _learn(job, inputs)


@pytest.mark.parametrize("workers", [2, 3])
def test_processes_learn_the_same(recorded: Job, workers: int) -> None:
    inputs = JobInputs.load(recorded)
    expected = _learn(recorded, inputs)
    assert expected == _learn_from_all(inputs.policy, recorded.files, "")
    found, skipped = expected
    assert len(found) > 10
    assert [Path(item.file).name for item in skipped] == [
        "poisoned.jsonl",
        "other.txt",
        "gone.jsonl",
    ]
    assert _learn(recorded, inputs, LocalProcesses(workers)) == expected


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_engines_learn_the_same(recorded: Job, engine: str) -> None:
    pytest.importorskip(engine, reason=f"{engine} is not installed")
    inputs = JobInputs.load(recorded)
    with connect(engine, "", 2) as executor:
        assert _learn(recorded, inputs, executor) == _learn(recorded, inputs)


def test_only_what_can_teach_is_sent(tmp_path: Path) -> None:
    """Of calls that never failed nothing is left, nor of sessions that no failure concerns."""
    sessions = [lines(f"s{n}", [read(f"/{n}.{call}") for call in range(99)]) for n in range(30)]
    fine = write(tmp_path / "fine.jsonl", *sessions)
    bad = write(tmp_path / "bad.jsonl", lines("s1", [read("/1.1", "boom", ok=False)] * 2))
    learn, own = POLICIES["calls of a project, for a time"]
    file = str(policy(tmp_path / "p.yaml", learn + SIGNATURES % own))
    job = Job(policies=(file,), files=(fine, bad), key=KEY)
    executor, inputs = InParts(99), JobInputs.load(job)
    (found,) = _learn(job, inputs, executor, "a")[0]
    assert found.count == 2
    kept = [step for part in executor.narrowed for step in part.steps()]
    assert len(kept) == 2 + 2 + 1 + 1  # starts of both s1, failures, the end, the success before
    assert len(pickle.dumps(executor.narrowed)) < 5000


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("marks: {seen: {per: agent, set: {tools: [read]}}}", "marks/seen"),
        ("rules: {r: {when: 'session.progress == \"plateau\"'}}", "`session.progress`"),
        ("rules: {r: {when: call.session == 's'}}", "`call.session`"),
        ("rules: {r: {when: session.id == 's'}}", "`session.id`"),
        ("budgets: {b: {calls: 2, per: project}}", ""),
    ],
)
def test_what_depends_on_sessions_before_takes_one_process(
    recorded: Job, tmp_path: Path, more: str, why: str
) -> None:
    more_file = str(policy(tmp_path / "q.yaml", more))
    job = msgspec.structs.replace(recorded, policies=(*recorded.policies, more_file))
    inputs = JobInputs.load(job)
    assert find_ordered_entries(inputs) == tuple(filter(None, [why]))
    executor = InParts(2)
    assert _learn(job, inputs, executor) == _learn_from_all(inputs.policy, job.files, "")
    assert bool(executor.narrowed) is not bool(why)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupt_teaches_nothing(recorded: Job, workers: int) -> None:
    def stop(done: int, events: int, note: str = "") -> None:
        if events:
            raise StoppedError

    with pytest.raises(StoppedError):
        learn_constraints(recorded, JobInputs.load(recorded), stop, LocalProcesses(workers))


def test_a_worker_that_is_stopped_waits_for_no_other(recorded: Job) -> None:
    """It asks for no sum of what failed elsewhere, which would never come."""
    ours, theirs = Pipe()
    for sent in ((partial(start_observing, ""), recorded, True), [], None):
        ours.send(sent)
    worker = Thread(target=_run_worker, args=(theirs, 0, 2), daemon=True)
    worker.start()
    messages = [ours.recv(), ours.recv()] if ours.poll(30) else []
    worker.join(30)
    assert [type(message).__name__ for message in messages] == ["_Idle", "_Result"]
    assert messages[1].partial


def test_no_message_shows_the_key(recorded: Job) -> None:
    assert "kkkk" not in repr(recorded)
    assert repr(_copy(recorded).key) == "Key(…)"
