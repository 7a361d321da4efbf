"""A suggestion is the same whatever executes its replays."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from policyguard.simulate.clusters.cluster import connect
from policyguard.simulate.jobs.job import (
    FoldWorker,
    Job,
    JobInputs,
    ProgressCallback,
    StartFold,
    merge,
)
from policyguard.simulate.jobs.line_shard import LineShard
from policyguard.simulate.jobs.workers import LocalProcesses
from policyguard.simulate.suggest import Request, suggest
from policyguard.traces.session_trees import SessionTree, find_session_trees
from tests.simulate.recording import failed, lines, policy, read, write

RULES = """
budgets: {all: {calls: 12, per: session}}
limits: {default: {repeat: {max: 6, same: call}}}
rules: {no-b: {tools: [read], when: 'call.args.path == "/b"', message: no}}
"""


class Shards:
    """An executor that folds shards one after the other, each as if in another process.

    All share each file but the last two, a session tree.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self.folds = 0

    def fold(
        self, start: StartFold[Any], job: Job, inputs: JobInputs, on_progress: ProgressCallback
    ) -> tuple[Any, bool]:
        self.folds += 1
        trees = find_session_trees(job.files)
        results = [
            FoldWorker(
                pickle.loads(pickle.dumps(start)),  # noqa: S301 - ours
                pickle.loads(pickle.dumps(job)),  # noqa: S301 - ours
                None,
                LineShard(number, self._count),
                on_progress,
            ).run([tree for tree in trees if _is_of(job, tree, number)])[0]
            for number in reversed(range(self._count))
        ]
        return merge(*(pickle.loads(pickle.dumps(result)) for result in results)), False  # noqa: S301


def _is_of(job: Job, tree: SessionTree, number: int) -> bool:
    """Whether a worker has a tree: the last two files are those of worker 1 alone."""
    return tree.indices[0] < len(job.files) - 2 or number == 1


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    sessions = [
        lines(
            f"s{n}",
            [
                read("/b" if n % 7 == 0 else "/a"),
                *[failed("run", f"quux glorped {n}", n=n % 3)] * (n % 9),
                *[read("/c")] * (n % 4),
            ],
            success=n % 3 != 0,
        )
        for n in range(60)
    ]
    files = [write(tmp_path / "many.jsonl", *sessions)]
    for number in range(4):
        family = [
            lines("p", [read("/a")] * number, success=True, closed=False),
            lines("c", [read("/b")] * 3, parent="p", success=False),
        ]
        files.append(write(tmp_path / f"family{number}.jsonl", *family))
    files.append(write(tmp_path / "parent.jsonl", lines("pp", [read("/a")] * 9, success=True)))
    files.append(write(tmp_path / "zchild.jsonl", lines("cc", [read("/b")], parent="pp")))
    labels = tmp_path / "labels.jsonl"
    labels.write_text(
        '{"session":"s3","success":true}\n{"file":"zchild.jsonl","success":false}\n'
        '{"file":"many.jsonl","success":false}\n'
    )
    return Request(
        policies=(str(policy(tmp_path / "p.yaml", RULES)),),
        files=tuple(files),
        labels=labels,
        max_harm=0.4,
    )


def test_shards_suggest_the_same(request_: Request) -> None:
    expected = suggest(request_)
    assert expected.signatures
    assert expected.sweep
    assert expected.explored.failed > 5
    shards = Shards(3)
    assert suggest(request_, executor=shards) == expected
    assert shards.folds > 3


def test_what_counts_across_sessions_takes_one_process(request_: Request, tmp_path: Path) -> None:
    shared = str(policy(tmp_path / "q.yaml", "budgets: {all: {calls: 90, per: agent}}"))
    shards = Shards(2)
    suggest(
        Request(policies=(shared,), files=request_.files, labels=None, max_harm=0.4),
        executor=shards,
    )
    assert shards.folds == 0


@pytest.mark.slow
def test_processes_suggest_the_same(request_: Request) -> None:
    assert suggest(request_, executor=LocalProcesses(2)) == suggest(request_)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_engines_suggest_the_same(request_: Request, engine: str) -> None:
    pytest.importorskip(engine, reason=f"{engine} is not installed")
    with connect(engine, "", 2) as executor:
        assert suggest(request_, executor=executor) == suggest(request_)
