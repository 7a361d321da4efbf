"""Every key of a step works, and fails if the policy behaves differently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from policyguard import Guard, Session
from policyguard.model.decision import Decision, EvalError
from policyguard.model.effect import Effect
from tests.testing.suites import failures

READ = {"call": {"read": {"path": "a"}}}
MAIL = {"call": {"mail": {}}}
PAY = {"call": {"pay": {"amount": 1}}}
RISKY = {"call": {"risky": {}}}


def found(folder: Path, *steps: dict[str, Any], **test: Any) -> list[tuple[str, str, str]]:
    """What goes otherwise, as (what, expected, found)."""
    return [
        (mismatch.aspect, mismatch.expected, mismatch.found)
        for failure in failures(folder, *steps, **test)
        for mismatch in failure.mismatches
    ]


PASSING: dict[str, list[dict[str, Any]]] = {
    "allow": [READ | {"expect": "allow"}],
    "advice is admission": [{"call": {"noted": {}}, "by": "note"}],
    "block": [MAIL, MAIL | {"expect": "block", "by": "mails"}],
    "the whole id": [MAIL, MAIL | {"expect": "block", "by": "budgets/mails"}],
    "says": [{"call": {"pay": {"amount": 11}}, "expect": "block", "says": "too much"}],
    "a command": [{"call": {"bash": "ls"}}, {"call": {"bash": "rm"}, "expect": "block"}],
    "times": [READ | {"times": 2}, READ | {"expect": "block", "times": 3}],
    "wait": [MAIL, {"wait": "9m"} | MAIL | {"expect": "block"}, {"wait": "1m"}, MAIL],
    "grant": [{**MAIL, "times": 1}, {"grant": ["mails", 1]}, MAIL, MAIL | {"expect": "block"}],
    "grant by the whole id": [MAIL, {"grant": ["budgets/mails", 1]}, MAIL],
    "approve": [RISKY | {"expect": "ask"}, {"approve": True}, RISKY, RISKY | {"expect": "ask"}],
    "cost": [PAY | {"result": {"cost": 1}}, PAY | {"expect": "block", "by": "money"}],
    "estimate": [PAY | {"estimate": {"cost": 2}, "expect": "block"}],
    "release": [MAIL | {"release": True}, MAIL],
    "running": [READ | {"running": True, "times": 2, "state": {"running": 2}}],
    "would": [{"call": {"seen": {}}, "would": "watch", "expect": "allow"}],
    "tags": [
        {"call": {"tiered": {}}},
        {
            "call": {"tiered": {}},
            "tags": {"tier": 2},
            "by": "tier",
            "expect": "halt",
            "state": {"halted": True},
        },
    ],
    "turn": [
        {"call": {"tiered": {}}, "tags": {"tier": 2}, "expect": "halt"},
        {"turn": True, "state": {"turn": 1, "halted": False}},
        READ,
    ],
    "failure": [
        READ
        | {
            "result": {"ok": False, "text": "503"},
            "outcome": {"ok": False, "signature": "down", "blame": "harness", "state": "failure"},
            "state": {"calls": 1, "failures": 1},
        }
    ],
    "an error alone is a failure": [READ | {"result": {"error": "503"}, "outcome": {"ok": False}}],
    "exit code": [READ | {"result": {"exit_code": 1}, "outcome": {"ok": False, "signature": ""}}],
    "status": [READ | {"result": {"status": 404}, "outcome": {"ok": False}}],
    "blame": [READ | {"result": {"ok": False, "blame": "agent"}, "outcome": {"blame": "agent"}}],
    "success": [READ | {"outcome": {"ok": True, "blame": "", "state": "success"}}],
    "durations": [
        READ | {"result": {"duration": "2s", "retry_after": 1.5}, "state": {"elapsed": "0s"}}
    ],
    "elapsed": [READ, {"wait": "90s", "state": {"elapsed": "90s"}}],
    "sums of cost": [
        READ | {"result": {"cost": 0.1}},
        {"call": {"x": {}}, "result": {"cost": 0.2}, "state": {"cost": 0.3}},
    ],
    "spend": [{"spend": {"tokens": 5, "cost": 0.5}, "state": {"tokens": 5, "cost": 0.5}}],
    "batch, hints, server": [READ | {"batch": "b", "hints": {"read_only": True}, "server": "s"}],
    "meta and score": [READ | {"result": {"meta": {"a": 1}, "score": 2.5, "tokens": 3}}],
    "not finite": [
        READ | {"result": {"score": float("nan")}},
        {"call": {"x": {"n": float("inf")}}, "expect": "block", "by": "bounds/arguments"},
    ],
    "progress": [READ | {"progress": "progressing"}],
    "what is called by a name returns later": [
        READ | {"as": "one", "state": {"running": 1}},
        {"returns": "one", "result": {"error": "503"}, "outcome": {"signature": "down"}},
        {"state": {"running": 0, "failures": 1}},
    ],
    "what returns is what was called first": [
        MAIL | {"as": "x"},
        READ | {"as": "x"},
        {"returns": "x", "result": {"text": "a"}, "text": "a"},
        READ | {"result": {"text": "b"}},
        {"returns": "x", "wait": "90s", "result": {"text": "c"}, "state": {"elapsed": "90s"}},
    ],
    "text": [READ | {"result": {"text": "a"}, "text": "a", "advice": ""}],
    "advice is no part of the text": [
        {"call": {"noted": {}}, "result": {"text": "a"}, "text": "a", "advice": "applies to this"}
    ],
    "advice for a whole batch": [
        READ | {"batch": "b", "as": "one"},
        {"call": {"noted": {}}, "batch": "b", "as": "two"},
        {"returns": "one", "advice": "applies to this"},
        {"returns": "two", "advice": "applies to this"},
    ],
    "what an MCP server sends": [
        READ
        | {
            "result": {"mcp": {"content": [{"type": "text", "text": "503"}], "isError": True}},
            "outcome": {"state": "failure", "signature": "down"},
            "text": "503",
        }
    ],
    "structured": [
        MAIL,
        MAIL
        | {
            "expect": "block",
            "structured": {"status": "blocked", "rule": "budgets/mails", "remaining": 0}
            | {"retry_after": 600, "limit": 1.0, "budgets": {"budgets/mails": 0}},
        },
    ],
    "structured, nothing to say": [READ | {"structured": {"status": "allowed", "rule": None}}],
    "timeout": [{"call": {"slow": {}}, "timeout": "5s"}, READ | {"timeout": "none"}],
    "grant what it is extended by": [
        {"call": {"extended": {}}, "expect": "block"},
        {"grant": ["extended"]},
        {"call": {"extended": {}}, "times": 2},
        {"call": {"extended": {}}, "expect": "block"},
    ],
    "approval by somebody": [
        {"call": {"signed": {}}, "expect": "ask"},
        {"approve": {"by": "ann", "labels": ["lead"]}},
        {"call": {"signed": {}}},
    ],
    "disabled": [
        {"call": {"failing": {}}, "result": {"error": "x"}, "state": {"disabled": ["failing"]}},
        READ | {"state": {"disabled": ["failing"]}},
    ],
}

FAILING: dict[str, tuple[list[dict[str, Any]], tuple[str, str, str]]] = {
    "text": (
        [READ | {"result": {"text": "a"}, "text": "b"}],
        ("text", "text `b`", "text `a`"),
    ),
    "advice": (
        [READ | {"advice": "stop"}],
        ("advice", "advice with `stop`", "advice none"),
    ),
    "what returns is otherwise": (
        [READ | {"as": "x"}, {"returns": "x", "outcome": {"ok": False}}],
        ("ok", "ok false", "ok true"),
    ),
    "structured": (
        [READ | {"structured": {"status": "blocked"}}],
        ("structured", "status `blocked`", "status `allowed`"),
    ),
    "a budget that is not there": (
        [MAIL, MAIL | {"expect": "block", "structured": {"budgets": {"budgets/money": 1}}}],
        ("structured", 'budgets {"budgets/money": 1}', 'budgets {"budgets/mails": 0.0}'),
    ),
    "timeout": (
        [{"call": {"slow": {}}, "timeout": "4s"}],
        ("timeout", "timeout 4s", "timeout 5s"),
    ),
    "no timeout": (
        [READ | {"timeout": "4s"}],
        ("timeout", "timeout 4s", "timeout none"),
    ),
    "approved by the wrong one": (
        [
            {"call": {"signed": {}}, "expect": "ask"},
            {"approve": {"by": "ann"}},
            {"call": {"signed": {}}},
        ],
        ("effect", "allow or advise", "ask"),
    ),
    "disabled": (
        [READ | {"state": {"disabled": ["x"]}}],
        ("disabled", 'disabled ["x"]', "disabled []"),
    ),
    "admitted": ([MAIL, MAIL], ("effect", "allow or advise", "block")),
    "effect": ([MAIL, MAIL | {"expect": "halt"}], ("effect", "halt", "block")),
    "allow": ([{"call": {"noted": {}}, "expect": "allow"}], ("effect", "allow", "advise")),
    "by": (
        [MAIL, MAIL | {"expect": "block", "by": "asked"}],
        ("by", "by `asked`", "budgets/mails"),
    ),
    "part": (
        [MAIL, MAIL | {"expect": "block", "by": "ails"}],
        ("by", "by `ails` (did you mean `mails`?)", "budgets/mails"),
    ),
    "by nothing": ([READ | {"by": "note"}], ("by", "by `note`", "nothing")),
    "learned": ([READ | {"by": "constraints"}], ("by", "by `constraints`", "nothing")),
    "says": (
        [MAIL, MAIL | {"expect": "block", "says": "no!"}],
        ("says", "a message with `no!`", "another message"),
    ),
    "says nothing": ([READ | {"says": "no!"}], ("says", "a message with `no!`", "no message")),
    "would": ([READ | {"would": "watch"}], ("would", "would `watch`", "nothing")),
    "the second time": ([MAIL | {"times": 2}], ("effect", "allow or advise", "block")),
    "outcome": ([READ | {"outcome": {"ok": False}}], ("ok", "ok false", "ok true")),
    "signature": (
        [READ | {"result": {"ok": False}, "outcome": {"signature": "down"}}],
        ("signature", "signature `down`", "signature ``"),
    ),
    "state": ([READ | {"state": {"calls": 2}}], ("calls", "calls 2", "calls 1")),
    "cost": ([READ | {"state": {"cost": 0.1}}], ("cost", "cost 0.1", "cost 0.0")),
    "halted": ([READ | {"state": {"halted": True}}], ("halted", "halted true", "halted false")),
    "elapsed": (
        [READ, {"wait": "90s", "state": {"elapsed": "1m"}}],
        ("elapsed", "elapsed `1m`", "elapsed `90s`"),
    ),
    "progress": (
        [READ | {"progress": "plateau"}],
        ("progress", "progress `plateau`", "progress `progressing`"),
    ),
    "nothing to approve": (
        [{"approve": True}],
        ("approve", "a call answered with ask", "no call yet"),
    ),
    "not asked": (
        [READ, {"approve": True}],
        ("approve", "a call answered with ask", "the last call was answered with allow"),
    ),
    "refused, not asked": (
        [MAIL, MAIL | {"expect": "block"}, {"approve": True}],
        ("approve", "a call answered with ask", "the last call was answered with block"),
    ),
}


@pytest.mark.parametrize("name", PASSING)
def test_fulfilled_expectations_pass(tmp_path: Path, name: str) -> None:
    assert found(tmp_path, *PASSING[name]) == []


@pytest.mark.parametrize("name", FAILING)
def test_unmet_expectations_fail(tmp_path: Path, name: str) -> None:
    steps, mismatch = FAILING[name]
    assert found(tmp_path, *steps) == [mismatch]


def test_the_first_failing_step_ends_the_test(tmp_path: Path) -> None:
    (failure,) = failures(tmp_path, READ, READ | {"expect": "block"}, READ | {"expect": "halt"})
    assert failure.step == '2 of 3: read {"path": "a"}'
    assert failure.state["calls"] == 2
    assert failure.decision is not None
    assert failure.decision.effect == "allow"


def test_a_session_is_as_the_test_describes(tmp_path: Path) -> None:
    who = {"agent": "lead", "user": "ann", "roles": ["boss"], "cwd": "/x", "tags": {"tier": 2}}
    call = {"call": {"who": {}}}
    assert found(tmp_path, call, session=who) == []
    for name in who:
        less = {key: value for key, value in who.items() if key != name}
        assert found(tmp_path, call, session=less) == [("effect", "allow or advise", "block")]


def test_calls_of_tools_that_are_not_offered_are_refused(tmp_path: Path) -> None:
    steps = [
        {"call": {"serch": {}}, "expect": "block", "by": "session/unknown-tool", "says": "search"},
        {"call": {"search": {}}},
    ]
    assert not failures(tmp_path, *steps, session={"tools": ["search"]})


def test_sessions_of_one_project_share_its_budgets(tmp_path: Path) -> None:
    steps = [{"call": {"shared": {}}}, {"in": "two", "call": {"shared": {}}}]
    two = {"project": "p"}
    assert found(tmp_path, *steps, session={"project": "q"}, sessions={"two": two}) == []
    wrong = found(tmp_path, *steps, session={"project": "p"}, sessions={"two": two})
    assert wrong == [("effect", "allow or advise", "block")]


def test_invalid_tags_are_reported(tmp_path: Path) -> None:
    ((what, _, text),) = found(tmp_path, READ, session={"tags": {"tier": "high"}})
    assert what == "session"
    assert "tag `tier` must be int" in text
    ((what, _, text),) = found(tmp_path, {**READ, "tags": {"tier": "high"}})
    assert what == "tags"
    assert "tag `tier` must be int" in text


def test_sessions_beside_the_main_one(tmp_path: Path) -> None:
    steps = [
        {"in": "a", **MAIL},
        {"in": "b", **MAIL, "expect": "block"},
        {"in": "other", **MAIL, "state": {"calls": 1, "depth": 0}},
        {"in": "main", "state": {"children": 2}},
        {"in": "b", "state": {"depth": 2}},
    ]
    sessions = {"a": {"parent": "main"}, "b": {"parent": "a"}, "other": {}}
    ((what, wanted, got),) = found(tmp_path, *steps, sessions=sessions)
    # The lead pays for its helpers: the second mail is one too many for `main`.
    assert (what, wanted, got) == ("children", "children 2", "children 1")


def test_each_test_has_a_guard_of_its_own(tmp_path: Path) -> None:
    assert found(tmp_path, MAIL) == []
    assert found(tmp_path, MAIL) == []


def test_the_clock_starts_where_the_test_says(tmp_path: Path) -> None:
    times: list[int | None] = []
    original = Guard.session

    def session(guard: Guard, *args: Any, **rest: Any) -> Session:
        times.append(guard._steady_clock.read()[0])
        return original(guard, *args, **rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Guard, "session", session)
        assert found(tmp_path, READ) == []
        assert found(tmp_path, READ, session={"at": "2026-03-06T13:00:00.25+01:00"}) == []
    assert times == [1_772_798_400_000_000_000, 1_772_798_400_250_000_000]


def test_an_internal_error_is_no_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(session: Session, tool: str, args: Any, **rest: Any) -> Decision:
        error = EvalError("internal", "KeyError: x")
        return Decision(
            id="c", session="main", tool=tool, effect=Effect.BLOCK, allowed=False, errors=(error,)
        )

    monkeypatch.setattr(Session, "check", check)
    ((what, _, text),) = found(tmp_path, READ | {"expect": "block"})
    assert (what, text) == ("internal", "internal error: KeyError: x")


def test_an_internal_error_ends_one_test_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def turn(session: Session) -> None:
        raise KeyError("x")

    monkeypatch.setattr(Session, "turn", turn)
    ((what, _, text),) = found(tmp_path, {"turn": True})
    assert what == "internal"
    assert "KeyError" in text
