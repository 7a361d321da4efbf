"""Long traces, many sessions, several workers, interrupts."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard.report.replay.figures import Figures, UnmatchedFigures
from policyguard.simulate import Replay, load
from policyguard.simulate.jobs import line_shard, workers
from policyguard.simulate.jobs.job import (
    FoldWorker,
    Job,
    JobInputs,
    StoppedError,
    WorkerError,
    merge,
)
from policyguard.simulate.jobs.line_shard import LineShard
from policyguard.simulate.jobs.workers import (
    MIN_WORKER_BYTES,
    LocalProcesses,
    count_useful_workers,
    find_sequential_entries,
)
from policyguard.simulate.sessions import error_kinds, trace_player
from policyguard.simulate.sessions.error_kinds import ErrorKinds
from policyguard.simulate.simulation import build_report, simulate, start_replay
from policyguard.simulate.tally import TopN
from policyguard.traces import Reader
from tests.examples import examples, some
from tests.simulate.recording import NO_SECRETS, failed, lines, policy, read, write

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "traces" / "cases"
MIB = 1024  # ru_maxrss counts in KiB


def _ignore_progress(done: int, events: int, note: str = "") -> None:
    pass


# Memory.


def _one_session(calls: int) -> Iterator[Iterator[str]]:
    yield lines("s", (_any_call(n) for n in range(calls)), success=True)


def _many_sessions(calls: int) -> Iterator[Iterator[str]]:
    for n in range(calls // 10):
        yield lines(f"s{n}", (_any_call(n * 10 + m) for m in range(10)), success=n % 2 == 0)


def _any_call(number: int) -> dict[str, Any]:
    if number % 7 == 0:
        return failed("run", f"{'abcdefghij'[number % 10] * (number % 50)} broke", n=number)
    return read(f"/{number}", f"text {number} " * 20)


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has another unit elsewhere")
@pytest.mark.slow
@pytest.mark.parametrize("shape", [_one_session, _many_sessions])
def test_memory_does_not_grow_with_the_trace(
    tmp_path: Path, shape: Callable[[int], Iterator[Iterator[str]]]
) -> None:
    """Thirty times the trace needs no more memory than a few timelines and sessions."""
    peaks = []
    for calls in (1_000, 30_000):
        trace = write(tmp_path / f"{calls}.jsonl", *shape(calls))
        command = [sys.executable, "-m", "policyguard", "simulate", trace, "--policy", "core",
                   "--sessions", "50", "--format", "json"]  # fmt: skip
        # A separate process, since the peak is that of all children so far.
        script = (
            "import resource, subprocess, sys\n"
            "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)\n"
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
        )
        run = subprocess.run(
            [sys.executable, "-c", script, *command],
            check=True, capture_output=True, text=True, cwd=ROOT,
        )  # fmt: skip
        peaks.append(int(run.stdout))
    assert (tmp_path / "30000.jsonl").stat().st_size > 8_000_000
    assert peaks[1] - peaks[0] < 8 * MIB, peaks


def test_an_idle_session_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_player, "IDLE_LINES", 20)
    monkeypatch.setattr(trace_player, "PROGRESS_INTERVAL", 4)
    compiled = load(policy(tmp_path / "p.yaml", "budgets: {reads: {calls: 2}}"))
    open_ = list(lines("s", [read("/a"), read("/b"), read("/c")], closed=False))
    others = [list(lines(f"o{n}", [read("/x")], closed=False)) for n in range(30)]
    together = Replay(compiled, observe=False, labels=None)
    together.add(Reader().read(write(tmp_path / "a.jsonl", open_, *others)))
    assert together.finish().refused.count == 1
    interleaved = Replay(compiled, observe=False, labels=None)
    most_open = reports = 0

    def on_progress() -> None:
        nonlocal most_open, reports
        reports += 1
        most_open = max(most_open, len(interleaved._player._open))

    interleaved._player._on_progress = on_progress
    interleaved.add(Reader().read(write(tmp_path / "b.jsonl", open_[:6], *others, open_[6:])))
    figures = interleaved.finish()
    assert figures.refused.count == 0  # the third read is another session's first
    assert [run.id for run in figures.sessions].count("s") == 2
    assert most_open <= 2 * 20 // 4 + 3  # of 31
    assert reports == (len(open_) + sum(map(len, others))) // 4


def test_a_session_with_an_active_sub_agent_is_not_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_player, "IDLE_LINES", 6)
    monkeypatch.setattr(trace_player, "PROGRESS_INTERVAL", 2)
    compiled = load(policy(tmp_path / "p.yaml", "budgets: {reads: {calls: 15}}"))
    parent = list(lines("parent", [read("/a")] * 3, closed=False))
    child = lines("child", [read(f"/{n}") for n in range(20)], parent="parent", closed=False)
    replay = Replay(compiled, observe=False, labels=None)
    replay.add(Reader().read(write(tmp_path / "t.jsonl", parent[:4], child, parent[4:])))
    figures = replay.finish()
    assert [(run.id, run.calls) for run in figures.sessions] == [("parent", 3), ("child", 20)]
    assert [run.first_refusal for run in figures.sessions] == [1, 14]


def test_an_idle_session_adopts_no_sub_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes no difference whether it was closed yet."""
    monkeypatch.setattr(trace_player, "IDLE_LINES", 6)
    compiled = load(policy(tmp_path / "p.yaml", "budgets: {reads: {calls: 1}}"))
    parent = list(lines("parent", [read("/a")], closed=False))
    others = [list(lines(f"o{n}", [], closed=False)) for n in range(4)]
    child = lines("child", [read("/b")], parent="parent")
    for often in (1, 1000):
        monkeypatch.setattr(trace_player, "PROGRESS_INTERVAL", often)
        replay = Replay(compiled, observe=False, labels=None)
        replay.add(Reader().read(write(tmp_path / "t.jsonl", parent, *others, child)))
        assert replay.finish().refused.count == 0
        child = lines("child", [read("/b")], parent="parent")


def test_kinds_of_errors_are_bounded_and_their_counts_exact() -> None:
    halves = [ErrorKinds(), ErrorKinds()]
    whole = ErrorKinds()
    for n in range(error_kinds.MAX_KINDS * 2):
        for kind in (f"{n:08x}", "00000000"):
            whole.add(kind, (n,), UnmatchedFigures(kind, 1))
            halves[n % 2].add(kind, (n,), UnmatchedFigures(kind, 1))
    halves[1].merge(halves[0])
    assert len(whole) == len(halves[1]) == error_kinds.MAX_KINDS
    assert whole.total == halves[1].total == error_kinds.MAX_KINDS * 4
    assert list(whole.most_frequent(5)) == list(halves[1].most_frequent(5))
    assert next(whole.most_frequent(1)).hits == error_kinds.MAX_KINDS * 2 + 1


@given(st.lists(st.integers(0, 50), unique=True), st.integers(0, 9), st.integers(1, 4))
def test_top_n_does_not_depend_on_how_items_are_split(
    keys: list[int], most: int, parts: int
) -> None:
    whole: TopN[int] = TopN(most)
    split: list[TopN[int]] = [TopN(most) for _ in range(parts)]
    for number, key in enumerate(keys):
        whole.offer((key,), lambda key=key: key)  # type: ignore[misc]
        split[number % parts].offer((key,), lambda key=key: key)  # type: ignore[misc]
    for other in split[1:]:
        split[0].merge(other)
    assert [item for _, item in whole.items()] == sorted(keys)[:most]
    assert list(split[0].items()) == list(whole.items())
    assert split[0].left_out == whole.left_out == max(0, len(keys) - most)


@given(st.lists(st.integers(-1, 2), max_size=30), st.integers(0, 6), st.integers(0, 30))
def test_of_equal_keys_the_first_offered_are_kept_in_order(
    keys: list[int], most: int, cut: int
) -> None:
    first, second, whole = TopN[int](most), TopN[int](most), TopN[int](most)
    for number, key in enumerate(keys):
        for kept in (whole, first if number < cut else second):
            kept.offer((key,), lambda number=number: number)  # type: ignore[misc]
    first.merge(second)
    expected = sorted(range(len(keys)), key=keys.__getitem__)[:most]
    assert [item for _, item in whole.items()] == expected
    assert list(first.items()) == list(whole.items())


# Workers.

CALLS = st.lists(
    st.sampled_from(
        [read("/a"), read("/secret"), read("/b", "changing"), failed("run", "boom 1", n=1),
         {"tool": "write", "args": {"path": "/a"}, "text": "", "cost": 0.1}]
    ),
    max_size=6,
)  # fmt: skip
SESSIONS = st.lists(
    st.tuples(
        CALLS,
        st.sampled_from([True, False, None]),
        st.booleans(),
        st.integers(-1, 3),
        st.integers(-1, 7),
    ),
    min_size=1,
    max_size=7,
)
TEXT = NO_SECRETS + "budgets: {reads: {tools: [read], calls: 3}, spent: {cost: 0.2}}\n"
NO_WRITES = "rules: {no-writes: {tools: [write], when: 'true'}}"
TAGGED = "  tagged: {tools: [write], when: tags.plan == 'free'}\n"
TEXT = TEXT.replace("rules:\n", f"rules:\n{TAGGED}", 1)
TEXT += "tags: {plan: string}\nlearn: {scope: session}\n"


@settings(max_examples=examples(60), deadline=None)
@given(
    sessions=SESSIONS,
    order=st.randoms(use_true_random=False),
    workers=st.integers(2, 4),
    idle=st.sampled_from([4, 12, trace_player.IDLE_LINES]),
)
def test_parts_of_a_replay_add_up_to_the_whole(
    tmp_path_factory: pytest.TempPathFactory,
    sessions: list[Any],
    order: Any,
    workers: int,
    idle: int,
) -> None:
    """Interleaved sessions, some with parents, never closed or started twice; invalid lines."""
    folder = tmp_path_factory.mktemp("parts")
    waiting = []
    for number, (calls, success, closed, parent, other_parent) in enumerate(sessions):
        started = {"parent": f"s{parent}"} if 0 <= parent < number else {}
        session = lines(f"s{number}", calls, success=success, closed=closed, **started)
        waiting.append(list(session))
        if other_parent >= 0:
            again, *_ = lines(f"s{number}", [], parent=f"s{other_parent}")
            waiting[-1].insert(len(waiting[-1]) // 2, again)
    waiting += [['{"broken": '], ["[1]"], ['{"event":"odd","session":"s0"}']]
    merged = []
    while any(waiting):
        merged.append(order.choice([one for one in waiting if one]).pop(0))
    trace = write(folder / "t.jsonl", merged)
    (folder / "labels.jsonl").write_text(
        '{"session":"s1","success":true}\n{"file":"t.jsonl","success":false}'
    )
    job = Job(
        policies=(str(policy(folder / "p.yaml", TEXT)),),
        baseline=(str(policy(folder / "b.yaml", NO_WRITES)),),
        labels=folder / "labels.jsonl",
        files=(trace,),
    )
    loaded = JobInputs.load(job)
    assert find_sequential_entries(loaded) == ()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_player, "IDLE_LINES", idle)
        patch.setattr(line_shard, "IDLE_LINES", idle)
        patch.setattr(trace_player, "PROGRESS_INTERVAL", 3)
        whole = simulate(job, loaded, _ignore_progress)
        parts = [
            FoldWorker(start_replay, job, loaded, LineShard(n, workers), _ignore_progress).run()[0]
            for n in range(workers)
        ]
    order.shuffle(parts)  # whichever part is done first
    assert build_report(job, loaded, merge(*parts), partial=False) == whole
    assert whole.traces.skipped == 3


@pytest.mark.parametrize("session", ["", "s"])
def test_one_worker_reads_the_lines_of_a_session(session: str) -> None:
    events = [*lines(session, [read("/a")]), *lines("child", [read("/b")], parent=session)] * 2
    shards = [LineShard(number, 3) for number in range(3)]
    for shard in shards:
        shard.begin()
    found = [[shard(line.encode()) for line in events] for shard in shards]
    assert [sum(one) for one in zip(*found, strict=True)] == [1] * len(events)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our own format, compressed and not, with a broken line; the cases cover all others."""
    folder = tmp_path_factory.mktemp("mixed")
    own = write(
        folder / "own.jsonl",
        *(
            lines(f"s{n}", [_any_call(n + m) for m in range(12)], success=n % 3 == 0)
            for n in range(40)
        ),
        ["broken"],
        [*lines("last", [read("/a")], closed=False)][:-1],  # a call without a result
    )
    (folder / "own.jsonl.gz").write_bytes(gzip.compress(own.read_bytes()))
    for name, *parents in (("child", "main"), ("main",), ("other", "main"), ("lost", "nobody")):
        calls = [_any_call(number) for number in range(30)]
        write(folder / f"{name}.jsonl", lines(name, calls, parent=parents[0] if parents else ""))
    return folder


SMALL_WORKERS = """
from policyguard.simulate.jobs import workers
workers.MIN_WORKER_BYTES = 1
from policyguard.cli import main
main(prog_name="policyguard")
"""


@pytest.mark.parametrize("form", ["json", pytest.param("text", marks=pytest.mark.slow)])
def test_two_workers_give_the_same_report_to_the_byte(mixed: Path, form: str) -> None:
    cases = some(sorted(CASES.iterdir()), 8)

    def report(workers: int) -> bytes:
        command = [sys.executable, "-c", SMALL_WORKERS, "simulate", mixed, *cases,
                   "--policy", "core", "--baseline", ROOT / "docs" / "demo" / "policy.yaml",
                   "--format", form, "--timelines", "200", "--workers", str(workers)]  # fmt: skip
        done = subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
        times = rb'"(created_at|elapsed_s)": [^,\n]+'
        return re.sub(times, b"", done.stdout)

    one = report(1)
    assert len(one) > 1000
    assert report(2) == one


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("budgets: {a: {calls: 1, per: user}, b: {calls: 1, per: turn}}", ("budgets/a",)),
        (
            "marks: {a: {set: host, per: agent}, b: {set: host}, c: {set: host, per: project}}",
            ("marks/a", "marks/c"),
        ),
        ("learn: {scope: project}", ("learn",)),
        ("learn: {scope: session}", ()),
        (
            "signatures: [{id: x, pattern: x, learn: {scope: global}}]\nlearn: {scope: session}",
            ("signatures/x/learn",),
        ),
    ],
)
def test_entries_beyond_a_session_are_named(
    tmp_path: Path, text: str, entries: tuple[str, ...]
) -> None:
    job = Job(policies=("core",), baseline=(str(policy(tmp_path / "p.yaml", text)),))
    assert find_sequential_entries(JobInputs.load(job)) == entries


def test_a_policy_that_reaches_beyond_sessions_is_replayed_in_order(tmp_path: Path) -> None:
    text = "budgets: {all: {tools: [read], calls: 3, per: project}}\n"
    trace = write(
        tmp_path / "t.jsonl",
        *(lines(f"s{n}", [read("/a"), read("/b")], project="p") for n in range(4)),
    )
    job = Job(policies=(str(policy(tmp_path / "p.yaml", text)),), files=(trace,))
    loaded = JobInputs.load(job)
    assert find_sequential_entries(loaded) == ("budgets/all",)
    figures = simulate(job, loaded, _ignore_progress, LocalProcesses(3))
    assert [run.first_refusal for run in figures.sessions] == [None, 1, 0, 0]


def test_progress_adds_up_to_the_size_of_the_files(tmp_path: Path) -> None:
    traces = [
        write(tmp_path / f"{name}.jsonl", lines(name, [read("/a"), read("/b")])) for name in "ab"
    ]
    job = Job(policies=("core",), files=tuple(traces))
    done: list[int] = []
    simulate(job, JobInputs.load(job), lambda new_bytes, *_: done.append(new_bytes))
    texts = [line for trace in traces for line in trace.read_bytes().splitlines()]
    assert sum(done) == sum(map(len, texts))


# Interrupts.


@pytest.mark.parametrize("workers", [1, 2])
def test_a_stopped_replay_reports_what_was_read(tmp_path: Path, workers: int) -> None:
    calls = [[_any_call(n * m) for m in range(200)] for n in range(40)]
    trace = write(tmp_path / "t.jsonl", *(lines(f"s{n}", one) for n, one in enumerate(calls)))
    job = Job(policies=("core",), files=(trace, trace))
    read_so_far = 0

    def on_progress(done: int, events: int, note: str = "") -> None:
        nonlocal read_so_far
        read_so_far += events
        if read_so_far > 500:
            raise StoppedError

    figures = simulate(job, JobInputs.load(job), on_progress, LocalProcesses(workers))
    assert figures.partial
    assert 500 < figures.traces.events < 16_000
    assert 0 < figures.traces.calls < 8_000
    assert figures.traces.named_files == 2
    assert sum(run.calls for run in figures.sessions) == figures.traces.calls


@pytest.mark.parametrize("workers", [1, 2])
def test_a_replay_that_is_stopped_before_it_reads_reports_nothing(
    tmp_path: Path, workers: int
) -> None:
    job = Job(policies=("core",), files=(write(tmp_path / "t.jsonl", lines("s", [])),))

    def stop(done: int, events: int, note: str = "") -> None:
        raise StoppedError

    figures = simulate(job, JobInputs.load(job), stop, LocalProcesses(workers))
    assert (figures.partial, figures.traces.events) == (True, 0)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="sees by /proc when it reads")
def test_an_interrupt_gives_the_partial_report_and_130(tmp_path: Path) -> None:
    sessions = (lines(f"s{n}", [_any_call(n + m) for m in range(200)]) for n in range(150))
    trace = write(tmp_path / "t.jsonl", *sessions)
    process = subprocess.Popen(
        [sys.executable, "-m", "policyguard", "simulate", trace, "--policy", "core",
         "--format", "json", "--fail-on", "traces.calls > 0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    fds = Path(f"/proc/{process.pid}/fd")
    deadline = time.monotonic() + 60
    while not any(_reads(fd, trace) for fd in fds.iterdir()):
        assert process.poll() is None, "it was done before it could be interrupted"
        assert time.monotonic() < deadline
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    report = json.loads(out)
    assert process.returncode == 130
    assert report["partial"] is True
    assert report["traces"]["files"] == report["traces"]["given"] == 1
    assert report["traces"]["events"] < 60_450
    assert "interrupted: the report covers only what was read until then" in err
    assert "Traceback" not in err
    msgspec.convert(report, Figures)


def _reads(fd: Path, trace: Path) -> bool:
    """Whether a process is well inside the trace, beyond the part that format detection reads."""
    try:
        index = fd.parents[1].joinpath("fdinfo", fd.name).read_text().split()[1]
        return fd.readlink() == trace and int(index) > 500_000
    except OSError:
        return False


def test_workers_are_started_where_they_save_time(tmp_path: Path) -> None:
    files = []
    for number in range(3):
        files.append(tmp_path / f"{number}.jsonl")
        with files[-1].open("wb") as file:
            file.truncate(MIN_WORKER_BYTES // 4)  # each byte has to be parsed
    assert [count_useful_workers(8, files[:count]) for count in range(4)] == [1, 1, 2, 3]
    assert count_useful_workers(2, files) == 2


# Workers that die, and stop.


def _die(*args: object) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_dies_before_it_reads_is_reported(tmp_path: Path) -> None:
    job = Job(policies=("core",), files=(write(tmp_path / "t.jsonl", lines("s", [])),))
    with pytest.raises(WorkerError, match=r"^a worker died \(exit code -9\)$"):
        LocalProcesses(2).fold(_die, job, JobInputs.load(job), _ignore_progress)


class _Received:
    """What a worker was sent after it was told to stop."""

    events = 0

    def __init__(self, trees: list[Any]) -> None:
        self.trees = trees

    def merge(self, other: _Received) -> None:
        self.trees += other.trees


def _ask_once_more(pipe: Connection, number: int, count: int) -> None:
    """Work as a worker that has asked for trees before it sees that it is to stop."""
    pipe.recv()  # the job
    pipe.recv()  # what all share
    pipe.send(workers._Progress(1, 1))
    pipe.send(workers._Idle())
    stops = [None]
    while stops[-1] is None:
        stops.append(pipe.recv())
    pipe.send(workers._Result(number, _Received(list(stops[-1])), partial=True))


def test_a_stopped_worker_gets_no_more_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tuple(write(tmp_path / f"{n}.json", lines(f"s{n}", [])) for n in range(40))
    job = Job(policies=("core",), files=files)

    def stop(done: int, events: int, note: str = "") -> None:
        if events:
            raise StoppedError

    monkeypatch.setattr(workers, "_run_worker", _ask_once_more)
    received, is_partial = LocalProcesses(2).fold(_die, job, JobInputs.load(job), stop)
    assert received.trees == []
    assert is_partial
