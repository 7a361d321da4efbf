"""Recordings, policies and names are anybody's: what a command prints of them does nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from policyguard.cli import main
from policyguard.store.protocol import Anchor, Caps
from policyguard.store.sqlite.store import SqliteStore

BAD = "\x1b]0;pwn\x07\x1b[31m\u009b31m\u202e\u2066\u2028\n::error::##[error]x\r\x7f\U000e0041\u200b"
SECOND = 1_000_000_000
BEGIN = 1_755_500_000 * SECOND
CAPS = Caps(constraints=10, grants=10, evidence=10, anchors=10)
POLICY = """
policyguard: 1
name: p
owner: "##[error]x"
description: |
  several lines
  ::error::x
rules:
  no: {tools: ["t*"], when: "call.args.path.size() > 3", message: "m {call.args.path} {call.tool}"}
"""
COMMANDS = (
    "simulate FILE --policy POLICY --labels LABELS --baseline core",
    "simulate FILE --policy POLICY --labels LABELS --baseline core --format json",
    "simulate FILE --policy POLICY --labels LABELS --baseline core --format junit",
    "simulate FILE --policy POLICY --labels LABELS --baseline core --format markdown",
    "suggest FILE --policy POLICY --labels LABELS --max-harm 0.1",
    "suggest FILE --policy POLICY --labels LABELS --max-harm 0.1 --format json",
    "suggest FILE --policy POLICY --labels LABELS --max-harm 0.1 --format yaml",
    "traces stats FILE",
    "traces stats FILE --format json",
    "traces convert FILE -o -",
    "journal show FILE",
    "journal anchors --store STORE",
    "verify FILE",
    "verify FILE --format json",
    "lint FILE",
    "lint FILE --format json",
    "test FILE",
    "test TESTS",
    "test TESTS --format json",
    "policy show FILE",
    "policy show POLICY",
    "lint POLICY",
    "policy diff FILE core",
)


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The files that the commands read, by what stands for them."""
    monkeypatch.chdir(tmp_path)
    trace = Path("::error::\x1b[31m\u202e.jsonl")
    trace.write_text("\n".join(map(json.dumps, _events())) + f"\n{{broken{BAD}\n")
    labels = [{"session": f"nobody{BAD}", "success": True}, {"session": BAD, "success": True}]
    Path("labels.jsonl").write_text("\n".join(map(json.dumps, labels)))
    Path("policy.yaml").write_text(POLICY)
    bad = BAD.replace("\U000e0041", "")  # YAML has no pairs of escapes for one character
    tests = [{"name": bad, "steps": [{"call": {f"t{bad}": {"path": bad}}, "expect": "allow"}]}]
    Path("x.tests.yaml").write_text(json.dumps({"policy": "policy.yaml", "tests": tests}))
    store = SqliteStore("state/store.db", caps=CAPS)
    store.anchors.put(Anchor(BAD, BAD, 1, BAD, 1))
    store.close()
    return {
        "FILE": str(trace),
        "LABELS": "labels.jsonl",
        "POLICY": "policy.yaml",
        "TESTS": "x.tests.yaml",
        "STORE": "state/store.db",
    }


def _events() -> Iterator[dict[str, Any]]:
    for session in (BAD, "s2"):
        own = {"session": session, "at": BEGIN}
        about = dict.fromkeys(("agent", "user", "project", "cwd"), BAD)
        yield {"event": "started", **own, **about}
        for call in range(4):
            of = {**own, "call": f"c{call}{BAD}"}
            args = {"path": BAD, BAD: BAD}
            yield {"event": "admitted", **of, "tool": f"t{BAD}", "args": args}
            yield {"event": "completed", **of, "ok": False, "text": BAD, "error": f"No {BAD}"}
        yield {"event": "closed", **own, "success": True}


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_that_is_printed_does_anything(names: dict[str, str], command: str) -> None:
    words = [names.get(word, word) for word in command.split()]
    result = CliRunner().invoke(main, words, catch_exceptions=False)
    assert result.output
    for line in result.output.split("\n"):
        assert line.isprintable()
        # What the log of GitHub Actions takes for a command.
        assert not line.lstrip().startswith("::")
        assert "##[" not in line


@pytest.mark.parametrize(
    "command",
    ["lint", "test", "simulate", "suggest", "traces stats", "journal verify", "constraints learn"],
)
def test_an_empty_path_is_not_the_current_folder(command: str) -> None:
    result = CliRunner().invoke(main, [*command.split(), ""])
    assert result.exit_code == 2
    assert "the path is empty" in result.output
