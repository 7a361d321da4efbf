"""A session and its sub-agents are replayed together, in whichever files they are."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard import Guard
from policyguard.report.replay.figures import Figures
from policyguard.report.replay.phrases import caveats
from policyguard.simulate.jobs.job import Job, JobInputs
from policyguard.simulate.jobs.workers import LocalProcesses
from policyguard.simulate.simulation import simulate
from policyguard.traces import expand, interleaving
from tests.examples import examples
from tests.simulate.recording import START, lines, policy, read, write

FIVE = "budgets: {all: {calls: 5}}"


def _figures(
    folder: Path,
    text: str = FIVE,
    *,
    workers: int = 1,
    labels: str = "",
    sample: float | None = None,
) -> Figures:
    """A replay of all files of `folder/t`."""
    if labels:
        (folder / "labels.jsonl").write_text(labels)
    job = Job(
        policies=(str(policy(folder / "p.yaml", text)),),
        files=tuple(expand([folder / "t"])),
        labels=folder / "labels.jsonl" if labels else None,
        sample=sample,
    )
    return simulate(job, JobInputs.load(job), lambda *_: None, LocalProcesses(workers))


def _refused(figures: Figures) -> dict[str, int]:
    return {run.id: run.refused for run in figures.sessions}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "t").mkdir()
    return tmp_path


@pytest.mark.parametrize(("workers", "tag"), [(1, ""), (2, ""), (1, "long" * 30_000)])
def test_a_replay_of_journals_repeats_the_live_decisions(
    tmp_path: Path, workers: int, tag: str
) -> None:
    """A journal has a file for each session, and a child's may come before its parent's."""
    text = f"{FIVE}\njournal: {{args: keep, results: keep}}\nbounds: {{argument_bytes: 1000000}}\n"
    text += "tags: {t: {type: string, default: ''}}\n"
    guard = Guard.load(policy(tmp_path / "live.yaml", text), store=tmp_path / "t" / "state.db")
    main = guard.session("main", tags={"t": tag})
    child = guard.session("child", parent=main)
    live = {"main": 0, "child": 0}
    for session, calls in ((main, 4), (child, 4), (main, 1)):
        for number in range(calls):
            decision = session.check("read", {"path": f"/{number}"})
            live[session.id] += not decision.allowed
            if decision.allowed:
                session.record(decision, result="text")
    main.end()
    child.end()
    guard.close()
    assert live == {"main": 1, "child": 3}
    figures = _figures(tmp_path, workers=workers)
    assert _refused(figures) == live
    assert figures.traces.orphans == 0


def _spoken(kind: str, at: int, content: Any, **message: Any) -> str:
    content_message = {"role": kind, "content": content, **message}
    time = f"2026-03-01T10:00:{at:02d}Z"
    return json.dumps(
        {"type": kind, "timestamp": time, "sessionId": "x", "message": content_message}
    )


def _transcript(times: list[int]) -> Iterator[str]:
    yield _spoken("user", times[0], "go on")
    for at in times:
        call = {"type": "tool_use", "id": f"c{at}", "name": "Read", "input": {"path": f"/{at}"}}
        yield _spoken("assistant", at, [call], id=f"m{at}")
        result = {"type": "tool_result", "tool_use_id": f"c{at}", "content": "text"}
        yield _spoken("user", at, [result])


@pytest.mark.parametrize("packed", [False, True])
def test_a_sub_agent_of_claude_code_charges_its_main_session(folder: Path, packed: bool) -> None:
    main = write(folder / "t" / "main.jsonl", _transcript([1, 2, 8, 9]))
    if packed:
        main.with_name("main.jsonl.gz").write_bytes(gzip.compress(main.read_bytes()))
        main.unlink()
    subagents = folder / "t" / "main" / "subagents"
    subagents.mkdir(parents=True)
    write(subagents / "agent-1.jsonl", _transcript([3, 4]))
    write(subagents / "agent-2.jsonl", _transcript([5]))
    figures = _figures(folder)
    refusals = {run.id: run.first_refusal for run in figures.sessions}
    assert refusals == {"main.jsonl": 2, "agent-1.jsonl": None, "agent-2.jsonl": None}
    assert figures.traces.files == 3


@pytest.mark.parametrize("workers", [1, 2])
def test_a_missing_parent_is_reported(folder: Path, workers: int) -> None:
    write(folder / "t" / "a.jsonl", lines("child", [read("/a")] * 6, parent="main"))
    write(folder / "t" / "b.jsonl", lines("other", [read("/a")] * 6))
    figures = _figures(folder, workers=workers)
    assert _refused(figures) == {"child": 1, "other": 1}
    assert figures.traces.orphans == 1
    assert any(text.startswith("1 sub-agent without a parent") for text in caveats(figures))


@pytest.mark.parametrize("timed", [(True, False), (False, True), (False, False)])
def test_where_a_time_is_missing_a_child_follows_its_parent_s_start(
    folder: Path, timed: tuple[bool, bool]
) -> None:
    write(folder / "t" / "a.jsonl", lines("c", [read("/a")] * 3, parent="main", timed=timed[0]))
    write(folder / "t" / "b.jsonl", lines("main", [read("/a")] * 3, timed=timed[1]))
    assert _refused(_figures(folder)) == {"c": 0, "main": 1}


def test_ambiguous_parents_are_not_guessed(folder: Path) -> None:
    for name in ("one", "two"):
        (folder / "t" / name).mkdir()
        write(folder / "t" / name / "m.jsonl", lines("main", [read("/a")] * 3))
    child = list(lines("child", [read("/a")] * 3, parent="main"))
    write(folder / "t" / "c.jsonl", child)
    assert _figures(folder).traces.orphans == 1
    write(folder / "t" / "one" / "c.jsonl", child)  # here its own folder has one
    figures = _figures(folder)
    assert (figures.traces.orphans, figures.refused.count) == (1, 1)
    (folder / "t" / "one" / "m.jsonl").unlink()  # now there is only one of all
    assert _figures(folder).traces.orphans == 0


@pytest.mark.parametrize("names", ["aa", "ab ba", "ab bc ca", "ab ba ca dc"])
def test_files_with_circular_parents_are_read_alone(folder: Path, names: str) -> None:
    for own, parent in names.split():
        write(folder / "t" / f"{own}.jsonl", lines(own, [read("/a")], parent=parent))
    figures = _figures(folder)
    assert figures.traces.calls == figures.traces.orphans == len(names.split())


def test_sessions_with_one_id_in_two_files_of_a_tree_stay_two(folder: Path) -> None:
    write(
        folder / "t" / "main.jsonl",
        lines("main", [read("/a")], closed=False),
        lines("x", [read("/a")] * 5, closed=False),
    )
    write(
        folder / "t" / "sub.jsonl",
        lines("sub", [read("/a")], parent="main", closed=False),
        lines("x", [read("/a")] * 5),
    )
    assert _refused(_figures(folder)) == {"main": 0, "sub": 0, "x": 0, "x#1": 0}


def test_more_files_than_may_be_open_are_all_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interleaving, "MAX_OPEN_FILES", 3)
    write(folder / "t" / "main.jsonl", lines("main", [read("/a")] * 3))
    for number in range(9):
        write(folder / "t" / f"{number}.jsonl", lines(f"c{number}", [read("/a")], parent="main"))
    figures = _figures(folder, "budgets: {all: {calls: 11}}")
    assert (figures.traces.calls, figures.effects.block, figures.traces.skipped) == (12, 1, 0)


def test_a_file_label_matches_its_only_session(folder: Path) -> None:
    write(folder / "t" / "a.jsonl", lines("child", [read("/a")], parent="main"))
    write(folder / "t" / "m.jsonl", lines("main", [read("/a")]), lines("more", [read("/a")]))
    labels = '{"file": "a.jsonl", "success": true}\n{"file": "m.jsonl", "success": true}\n'
    figures = _figures(folder, labels=labels)
    assert {run.id: run.success for run in figures.sessions} == {
        "child": True, "main": None, "more": None,
    }  # fmt: skip


def test_unreadable_items_are_named_once_with_their_position(folder: Path) -> None:
    write(folder / "t" / "a.jsonl", lines("child", [read("/a")], parent="main"), ["broken"])
    write(folder / "t" / "m.jsonl", lines("main", [read("/a")]))
    (skip,) = _figures(folder).traces.skips
    assert (skip.file, skip.line) == (str(folder / "t" / "a.jsonl"), 5 + 1)


MARKS = """
marks: {wrote: {set: {tools: [write]}, clear: {tools: [rebase]}, per: agent, on_error: set}}
rules: {merge: {tools: [merge], when: mark.wrote}}
"""


def _session(session: str, *steps: tuple[int, str], closed: bool = False) -> Iterator[str]:
    """The lines of an agent's session: calls of tools, each at a second and over at once."""
    start = {"at": START + steps[0][0] * 10**9}
    yield json.dumps({"event": "started", "session": session, **start, "agent": "a"})
    for number, (second, tool) in enumerate(steps):
        call = {"session": session, "at": START + second * 10**9, "call": f"c{number}"}
        yield json.dumps({"event": "admitted", **call, "tool": tool, "args": {}})
        yield json.dumps({"event": "completed", **call, "ok": True})
    if closed:
        yield json.dumps({"event": "closed", "session": session})


def test_sessions_that_share_a_mark_are_replayed_in_order_of_time(folder: Path) -> None:
    write(folder / "t" / "a.jsonl", _session("x", (2, "merge"), (4, "merge"), (6, "merge")))
    write(folder / "t" / "b.jsonl", _session("y", (1, "write"), (3, "rebase"), (5, "write")))
    write(folder / "t" / "c.jsonl", lines("z", [{"tool": "merge", "args": {}}], agent="b"))
    figures = _figures(folder, MARKS, workers=2)
    assert _refused(figures) == {"x": 2, "y": 0, "z": 0}
    assert figures.traces.events == 7 + 7 + 5


def test_a_session_ends_with_its_file(folder: Path) -> None:
    """One with the same id in a later file is another, with the same name in labels."""
    write(folder / "t" / "a.jsonl", _session("s", (3, "merge"), closed=True))
    write(folder / "t" / "b.jsonl", _session("s", (1, "write"), (2, "merge")))
    labels = '{"session": "s", "file": "a.jsonl", "success": true}\n'
    labels += '{"session": "s", "file": "b.jsonl", "success": false}\n'
    figures = _figures(folder, MARKS, labels=labels)
    assert [(run.id, run.refused, run.success) for run in figures.sessions] == [
        ("s", 1, True),
        ("s", 1, False),
    ]
    assert figures.traces.events == 4 + 5
    sampled = _figures(folder, MARKS, labels=labels, sample=1.0)
    assert [(run.id, run.refused) for run in sampled.sessions] == [("s", 1), ("s", 1)]


def test_a_file_without_times_follows_the_one_before_it(folder: Path) -> None:
    write(folder / "t" / "a.jsonl", _session("x", (5, "merge")))
    merge = [{"tool": "merge", "args": {}}]
    write(folder / "t" / "b.jsonl", lines("y", merge, timed=False, agent="a"))
    write(folder / "t" / "c.jsonl", _session("z", (1, "merge")))
    write(folder / "t" / "d.jsonl", lines("v", merge, timed=False, agent="a"))
    write(folder / "t" / "e.jsonl", _session("w", (2, "write")))
    assert _refused(_figures(folder, MARKS)) == {"x": 1, "y": 1, "z": 0, "v": 0, "w": 0}


TIMES = st.lists(st.integers(0, 50), min_size=1, max_size=6)
TEXT = "budgets: {all: {calls: 6}, turns: {calls: 4, per: turn}}\nlearn: {scope: session}\n"
SHARED = TEXT.replace("}}", "}, project: {calls: 9, per: project}}")


@settings(max_examples=examples(60), deadline=None)
@given(
    sessions=st.lists(st.tuples(st.integers(0, 5), TIMES), min_size=1, max_size=6),
    files=st.permutations(range(6)),
    text=st.sampled_from([TEXT, SHARED]),
)
def test_it_is_the_same_in_one_file_as_in_many(
    tmp_path_factory: pytest.TempPathFactory,
    sessions: list[tuple[int, list[int]]],
    files: list[int],
    text: str,
) -> None:
    """Each session names an earlier one, or (here: itself) none; none ends before all have."""
    folder = tmp_path_factory.mktemp("families")
    recorded: list[list[dict[str, Any]]] = []
    for number, (parent, times) in enumerate(sessions):
        started = {"parent": f"s{parent % (number + 1)}"} if parent % (number + 1) < number else {}
        events: list[dict[str, Any]] = [
            {"event": "started", "project": "p", **started},
            *({"event": "admitted", "call": f"c{n}", "tool": "read", "args": {"n": n}}
              for n in range(len(times))),
        ]  # fmt: skip
        # Times are in order, those of two sessions never equal, and the first those of the starts.
        at = [number, *(100 + 10 * time + number for time in sorted(times))]
        recorded.append(
            [
                {**event, "session": f"s{number}", "at": START + time}
                for event, time in zip(events, at, strict=True)
            ]
        )
    found = []
    for name, parts in (
        ("one", [[event for session in recorded for event in session]]),
        ("many", recorded),
    ):
        subfolder = folder / name / "t"
        subfolder.mkdir(parents=True)
        for file, events in zip(files, parts, strict=False):
            ordered = sorted(events, key=lambda event: event["at"])
            write(subfolder / f"{file}.jsonl", map(json.dumps, ordered))
        runs = _figures(folder / name, text).sessions
        found.append({run.id: (run.refused, run.first_refusal, run.first_rule) for run in runs})
    assert found[0] == found[1]
