"""`policyguard grants`: look at what is remembered, and revoke it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from policyguard import Guard
from policyguard.cli import main

POLICY = """
policyguard: 1
name: p
rules: {careful: {tools: ["*"], effect: ask}}
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "policy.yaml").write_text(POLICY)
    path = tmp_path / "state" / "store.db"
    with Guard.load(tmp_path / "policy.yaml", store=path) as guard:
        session = guard.session("s", project="shop")
        for tool, by in (("build", "ann"), ("\x1b[2Jx", "eve \x1b[2J")):
            decision = session.check(tool, {"n": 1})
            session.approve(decision, by=by, remember="tool", expires=3600, scope="project")
    return path


def _run(store: Path, *args: str) -> Result:
    return CliRunner().invoke(
        main, ["grants", "--store", str(store), *args], catch_exceptions=False
    )


def _id(store: Path) -> str:
    listed = json.loads(_run(store, "list", "--format", "json").stdout)
    return str(next(one["id"] for one in listed if one["pattern"]["tool"] == "build"))


def test_list_and_show(store: Path) -> None:
    listed = _run(store, "list").stdout
    assert "any call of build" in listed
    assert "project shop" in listed
    assert "\x1b" not in listed
    shown = _run(store, "show", _id(store)).stdout
    assert "ask of rules/careful" in shown
    assert "by        ann" in shown
    assert "on call s/c1" in shown
    plain = json.loads(_run(store, "show", _id(store), "--format", "json").stdout)
    assert (plain["covers"], plain["state"]) == ("any call of build", "active")


def test_revoke(store: Path, tmp_path: Path) -> None:
    id_ = _id(store)
    assert "is revoked" in _run(store, "revoke", id_, "--by", "bo").stdout
    assert "build" not in _run(store, "list").stdout
    assert "revoked" in _run(store, "list", "--all").stdout
    assert "revoked by bo" in _run(store, "show", id_).stdout
    with Guard.load(tmp_path / "policy.yaml", store=store) as guard:
        assert not guard.session("t", project="shop").preview("build", {"n": 2}).allowed


def test_what_has_expired_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    path = tmp_path / "state" / "store.db"
    with Guard.load(tmp_path / "policy.yaml", store=path, clock=lambda: 10**18) as guard:
        session = guard.session("s")
        session.approve(session.check("build", {}), by="ann", remember="call", expires=60)
    assert _run(path, "list").stdout == "no grants\n"
    assert "expired" in _run(path, "list", "--all").stdout


@pytest.mark.parametrize("command", ["show", "revoke"])
def test_an_unknown_id_is_misuse(store: Path, tmp_path: Path, command: str) -> None:
    result = _run(store, command, "g0")
    assert result.exit_code == 2
    assert "no grant has the id `g0`" in result.output
    missing = tmp_path / "none.db"
    assert _run(missing, command, "g0").exit_code == 2
    assert not missing.exists()
