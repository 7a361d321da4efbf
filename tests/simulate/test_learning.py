"""Constraints from recordings hold in the store that they were learned for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from policyguard import Guard
from policyguard.cli import main
from tests.simulate.recording import failed, lines, read, write

POLICY = """
policyguard: 1
name: p
extends: [core]
learn: {corroborate: 2, scope: project}
signatures: [{id: broken, pattern: boom, blame: agent, examples: {match: [boom], no_match: [x]}}]
"""


def run(*arguments: object, text: str = "") -> Result:
    return CliRunner().invoke(main, ["constraints", *map(str, arguments)], input=text)


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    file = tmp_path / "p.yaml"
    file.write_text(POLICY)
    return file


def traces(folder: Path, **started: str) -> Path:
    twice = failed("run", "boom", x=1)
    sessions = [
        lines(f"s{n}", [read("/a"), twice, failed("run", "x", y=n)], **started) for n in (1, 2)
    ]
    again = lines("s1", [failed("run", "boom", x=2)], **started)  # the same id, in another file
    write(folder / "one.jsonl", *sessions)
    write(folder / "two.jsonl", again)
    return folder


def test_what_failed_twice_is_refused_where_it_is_imported(tmp_path: Path, policy: Path) -> None:
    (tmp_path / "t").mkdir()
    recorded = traces(tmp_path / "t")
    store = tmp_path / "state" / "store.db"
    named = ["--policy", policy, "--store", store]
    learned = run("learn", recorded, *named, "--project", "web")
    assert learned.exit_code == 0, learned.output
    assert "1 constraint learned" in learned.stderr
    (line,) = learned.stdout.splitlines()
    assert json.loads(line)["signature"] == "broken"
    assert json.loads(line)["scope"] == "project:web"
    imported = run("import", "-", "--store", store, text=line)
    assert imported.stdout == "1 imported\n"
    with Guard.load(policy, store=store) as guard:
        session = guard.session("s", project="web")
        assert not session.check("run", {"x": 1})
        assert session.check("run", {"x": 2}), "it failed once"
        assert guard.session("o", project="other").check("run", {"x": 1})


def test_projects_are_those_of_the_recording(tmp_path: Path, policy: Path) -> None:
    (tmp_path / "t").mkdir()
    recorded = traces(tmp_path / "t", project="own")
    store = tmp_path / "state" / "store.db"
    learned = run("learn", recorded, "--policy", policy, "--store", store, "--project", "web")
    assert json.loads(learned.stdout)["scope"] == "project:own"


def test_nothing_learned_and_misuse_are_said(tmp_path: Path, policy: Path) -> None:
    (tmp_path / "t").mkdir()
    recorded, store = traces(tmp_path / "t"), tmp_path / "state" / "store.db"
    alone = run("learn", recorded, "--policy", policy, "--store", store)
    assert (alone.exit_code, alone.stdout) == (1, "")
    assert "0 constraints learned" in alone.stderr
    assert run("learn", tmp_path / "none", "--policy", policy, "--store", store).exit_code == 2
    broken = tmp_path / "broken.yaml"
    broken.write_text("policyguard: 1\nname: x\nrules: {a: {when: cal.x}}\n")
    assert run("learn", recorded, "--policy", broken, "--store", store).exit_code == 2


def test_workers_learn_the_same(
    tmp_path: Path, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("policyguard.simulate.jobs.workers.MIN_WORKER_BYTES", 1)
    (tmp_path / "t").mkdir()
    recorded = traces(tmp_path / "t")
    (recorded / "broken.jsonl").write_text("{")
    named = [recorded, "--policy", policy, "--store", tmp_path / "s.db"]
    for project in (["--project", "web"], []):
        one = run("learn", *named, *project)
        two = run("learn", *named, *project, "--workers", "2")
        assert "skipped " in one.stderr
        assert (two.exit_code, two.stdout, two.stderr) == (one.exit_code, one.stdout, one.stderr)
        assert one.exit_code == (0 if project else 1)


def test_a_policy_that_needs_all_sessions_in_order_says_so(tmp_path: Path, policy: Path) -> None:
    (tmp_path / "t").mkdir()
    recorded, ordered = traces(tmp_path / "t"), tmp_path / "q.yaml"
    ordered.write_text("policyguard: 1\nname: q\nrules: {r: {when: session.id == 's'}}\n")
    named = [recorded, "--policy", policy, "--policy", ordered, "--store", tmp_path / "s.db"]
    learned = run("learn", *named, "--project", "web", "--workers", "2")
    assert learned.exit_code == 0, learned.output
    assert "using one worker: `session.id` count across sessions" in learned.stderr
    assert json.loads(learned.stdout)["count"] == 2
    unnamed = run("learn", *named, "--address", "tcp://127.0.0.1:1")
    assert (unnamed.exit_code, "choose its engine" in unnamed.output) == (2, True)
