"""Which files of a job one process reads, and which several share."""

from __future__ import annotations

import gzip
import json
import zipfile
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from policyguard.simulate.jobs.job import FoldWorker, Job, JobInputs, merge
from policyguard.simulate.jobs.line_shard import LineShard
from policyguard.simulate.jobs.parts import split
from policyguard.simulate.jobs.reading_units import find_reading_units
from policyguard.simulate.jobs.workers import Batches, LocalProcesses
from policyguard.simulate.simulation import build_report, simulate, start_replay
from policyguard.traces import Reader
from policyguard.traces.session_trees import SessionTree, find_session_trees
from tests.simulate.recording import lines, read, write

OWN = '{"event": "turn_started", "session": "s"}\n'


def _run(run: object, calls: int = 1) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for number in range(calls):
        call = {"id": f"c{number}", "name": "find", "arguments": {"city": "Bern"}}
        messages.append({"role": "assistant", "tool_calls": [call]})
        messages.append(
            {"role": "tool", "id": f"c{number}", "content": "[]", "requestor": "assistant"}
        )
    return {"id": run, "task_id": "7", "messages": messages}


def _results(path: Path, *runs: object, calls: int = 1) -> Path:
    path.write_text(json.dumps({"simulations": [_run(run, calls) for run in runs]}))
    return path


def _units(files: Sequence[Path]) -> list[tuple[tuple[int, ...], bool]]:
    return [
        (tuple(index for tree in unit.trees for index in tree.indices), unit.is_shared)
        for unit in find_reading_units(files, find_session_trees(files))
    ]


def test_only_files_in_the_own_format_are_shared(tmp_path: Path) -> None:
    own, packed, later = (tmp_path / name for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl"))
    own.write_text(OWN)
    packed.write_bytes(gzip.compress(OWN.encode()))
    later.write_text(f'{{"note": "not an event"}}\n{OWN}')
    binary = tmp_path / "d.jsonl"
    binary.write_bytes(OWN.encode() + b'{"event": "turn_started", "session": "\0"}\n')
    chat = tmp_path / "e.json"
    chat.write_text(json.dumps([{"role": "user", "content": "hi"}]))
    files = [own, packed, later, binary, chat, tmp_path / "missing"]
    assert [is_shared for _, is_shared in _units(files)] == [True, True, False, False, False, False]


def test_an_archive_of_files_in_the_own_format_is_shared(tmp_path: Path) -> None:
    own, mixed = tmp_path / "own.zip", tmp_path / "mixed.zip"
    for archive, more in ((own, OWN), (mixed, "[]")):
        with zipfile.ZipFile(archive, "w") as opened:
            opened.writestr("a.jsonl", OWN)
            opened.writestr("b.jsonl", more)
    assert _units([own, mixed]) == [((0,), True), ((1,), False)]


def test_documents_are_not_parsed_to_tell_their_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = tmp_path / "chat.json"
    chat.write_text(json.dumps([{"role": "user", "content": "simulations", "task_id": 1}]))
    results = _results(tmp_path / "tau2.json", "r1")
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"task_id": 1}\n{"task_id": 2}\n')

    def refuse(reader: Reader, path: Path) -> None:
        raise AssertionError(path)

    monkeypatch.setattr(Reader, "iter_files", refuse)
    assert [indices for indices, _ in _units([chat, results, lines])] == [(0,), (1,), (2,)]


def test_files_with_the_same_run_are_read_together(tmp_path: Path) -> None:
    files = [
        _results(tmp_path / "0.json", "r1", "r2"),
        _results(tmp_path / "1.json", "r3"),
        _results(tmp_path / "2.json", "r4", 5),
        _results(tmp_path / "3.json", "r3", "r2"),
        tmp_path / "4.json",
    ]
    files[4].write_text(json.dumps(_run("5")))
    assert [indices for indices, _ in _units(files)] == [(0, 1, 3), (2, 4)]


@pytest.mark.parametrize("hidden", ["archive", "not a number"])
def test_a_file_whose_runs_are_unknown_is_read_with_all_of_them(
    tmp_path: Path, hidden: str
) -> None:
    files = [_results(tmp_path / f"{run}.json", run) for run in ("r1", "r2")]
    unknown = tmp_path / "unknown"
    if hidden == "archive":
        with zipfile.ZipFile(unknown, "w") as archive:
            archive.writestr("r3.json", files[0].read_bytes().replace(b"r1", b"r3"))
            archive.writestr("r4.json", files[0].read_bytes().replace(b"r1", b"r4"))
    else:
        unknown.write_bytes(files[0].read_bytes().replace(b'"Bern"', b"NaN"))
    assert [indices for indices, _ in _units([*files, unknown])] == [(0, 1, 2)]


def test_a_run_is_recognized_whose_keys_are_escaped(tmp_path: Path) -> None:
    plain, escaped = _results(tmp_path / "0.json", "r1"), tmp_path / "1.json"
    other = _results(tmp_path / "2.json", "r2")
    text = plain.read_text().replace('"simulations"', '"\\u0073imulations"')
    escaped.write_text(text.replace('"task_id"', '"tas\\u006b_id"'))
    assert [indices for indices, _ in _units([plain, escaped, other])] == [(0, 1), (2,)]


def test_runs_without_an_id_are_independent(tmp_path: Path) -> None:
    files = [_results(tmp_path / f"{name}.json", None, "") for name in "ab"]
    assert [indices for indices, _ in _units(files)] == [(0,), (1,)]


def test_the_parts_of_a_cluster_keep_repeated_runs_together(tmp_path: Path) -> None:
    files = [_results(tmp_path / f"{number}.json", f"r{number % 4}") for number in range(8)]
    parts = split(files, find_session_trees(files), 2)
    assert [[index for tree in part.trees for index in tree.indices] for part in parts] == [
        [number, number + 4] for number in range(4)
    ]


@pytest.mark.parametrize("beside", ["another format", "a damaged first line"])
def test_sessions_of_a_file_that_is_not_shared_are_not_lost(tmp_path: Path, beside: str) -> None:
    own = "".join(f"{line}\n" for n in range(9) for line in lines(f"s{n}", [read("/a")]))
    archive, damaged = tmp_path / "a.zip", tmp_path / "b.jsonl"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("own.jsonl", own)
        opened.writestr("chat.json", json.dumps([{"role": "user", "content": "hi"}]))
    damaged.write_text(f"damaged\n{own}")
    job = Job(policies=("core",), files=(archive if beside == "another format" else damaged,))
    alone, shared = (
        simulate(job, JobInputs.load(job), lambda *_: None, LocalProcesses(workers))
        for workers in (1, 2)
    )
    assert alone == shared
    assert alone.traces.calls == 9


def test_a_repeated_run_counts_once_whatever_the_workers(tmp_path: Path) -> None:
    files = [
        _results(tmp_path / f"{number}.json", f"r{number % 4}", calls=2 + number)
        for number in range(8)
    ]
    job = Job(policies=("core",), files=tuple(files))
    alone, shared = (
        simulate(job, JobInputs.load(job), lambda *_: None, LocalProcesses(workers))
        for workers in (1, 3)
    )
    assert alone == shared
    assert alone.traces.calls == sum(2 + number for number in range(4))


def _file(path: Path, size: int, *, shared: bool = True) -> Path:
    """Write a file of so many bytes, in the own format or another."""
    text = OWN if shared else '{"note": 1}\n'
    path.write_text(text + " " * (size - len(text)))
    return path


def _batches(files: Sequence[Path], workers: int = 2) -> Batches:
    return Batches(files, find_session_trees(files), workers)


def _indices(trees: Sequence[SessionTree]) -> list[int]:
    return [index for tree in trees for index in tree.indices]


def _take_all(batches: Batches) -> list[list[int]]:
    return list(map(_indices, iter(batches.take, [])))


def test_small_files_are_read_by_one_worker_and_large_ones_shared(tmp_path: Path) -> None:
    files = [_file(tmp_path / f"{number}.jsonl", 50) for number in range(16)]
    batches = _batches(files)
    assert not batches.share_large_files(lambda: None)
    assert [*chain(*_take_all(batches))] == list(range(16))
    large = _file(tmp_path / "large.jsonl", 5000)
    other = _file(tmp_path / "other.json", 1500, shared=False)
    batches = _batches([*files, large, other])
    assert _indices(batches.share_large_files(lambda: None)) == [16]
    assert [*chain(*_take_all(batches))] == [17, *range(16)]


@pytest.mark.parametrize(
    ("sizes", "shared"),
    [
        ((5000, 5000), []),
        ((5000, 4700), []),
        ((5000, 4000), [0, 1]),
        ((5000, 4000, 900), []),
        ((5000, 5000, 5000), [0, 1, 2]),
        ((9000, 3000, 3000, 3000), []),
        ((9000, 9000, *[20] * 50), []),
        ((9000, 7000, *[20] * 100), []),
    ],
)
def test_large_files_are_shared_only_where_whole_ones_leave_a_worker_idle(
    tmp_path: Path, sizes: tuple[int, ...], shared: list[int]
) -> None:
    files = [_file(tmp_path / f"{number:03}.jsonl", size) for number, size in enumerate(sizes)]
    batches = _batches(files)
    assert _indices(batches.share_large_files(lambda: None)) == shared
    left = sorted(chain(*_take_all(batches)))
    assert left == [index for index in range(len(sizes)) if index not in shared]


def test_to_look_at_large_files_can_be_stopped(tmp_path: Path) -> None:
    def stop() -> None:
        raise InterruptedError

    batches = _batches([_file(tmp_path / "large.jsonl", 5000)])
    with pytest.raises(InterruptedError):
        batches.share_large_files(stop)


def test_the_large_ones_that_one_worker_reads_come_first(tmp_path: Path) -> None:
    sizes = (50, 9000, 50, 9500, 50)
    batches = _batches(
        [_file(tmp_path / str(number), size, shared=False) for number, size in enumerate(sizes)]
    )
    batches.share_large_files(lambda: None)
    assert [*chain(*_take_all(batches))] == [3, 1, 0, 2, 4]


def test_what_is_not_large_is_looked_at_while_others_are_read(tmp_path: Path) -> None:
    files = [_file(tmp_path / f"{number:02}.json", 60, shared=False) for number in range(40)]
    batches = _batches(files)
    batches.share_large_files(lambda: None)
    assert not batches.are_known
    assert _indices(batches.take()) == list(range(10))
    files[30].unlink()  # not seen yet: its reader reports it
    while not batches.are_known:
        batches.look_ahead()
    assert [*chain(*_take_all(batches))] == list(range(10, 40))


@given(st.lists(st.integers(15, 1000), max_size=40), st.integers(1, 5), st.data())
def test_batches_have_each_unit_once_and_shrink(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], workers: int, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("sizes")
    files = [
        _file(folder / f"{number:02}", size, shared=False) for number, size in enumerate(sizes)
    ]
    batches = _batches(files, workers)
    batches.share_large_files(lambda: None)
    taken = []
    while batch := _indices(batches.take()):
        taken.append(batch)
        if data.draw(st.booleans()):
            batches.look_ahead()
    assert sorted(index for batch in taken for index in batch) == list(range(len(sizes)))
    left = sum(sizes)
    for number, batch in enumerate(taken, 1):
        fair = left // (2 * workers)
        assert sum(sizes[index] for index in batch) >= fair or number == len(taken)
        assert sum(sizes[index] for index in batch[:-1]) < max(fair, 1)  # the last one fills it
        left -= sum(sizes[index] for index in batch)


def test_the_report_has_one_order_whatever_worker_was_first(tmp_path: Path) -> None:
    files = []
    for number, refused in enumerate((True, False)):
        differed = {"event": "candidate", "session": f"s{number}", "call": "c0", "refused": refused}
        session = [*lines(f"s{number}", [read("/a")], closed=False), json.dumps(differed)]
        files.append(write(tmp_path / f"{number}.jsonl", session))
    reports = []
    for order in (files, files[::-1]):
        job = Job(policies=("core",), files=tuple(files))
        inputs = JobInputs.load(job)
        parts = []
        for file in order:
            worker = FoldWorker(start_replay, job, inputs, LineShard(), lambda *_: None)
            index = files.index(file)
            parts.append(worker.run([find_session_trees(files)[index]], lambda _: False)[0])
        figures = build_report(job, inputs, merge(*parts), partial=False)
        assert len(figures.traces.candidates) == 2
        reports.append(msgspec.json.encode(figures.traces.candidates))
    assert reports[0] == reports[1]
