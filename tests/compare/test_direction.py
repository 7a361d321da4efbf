"""Tighter and looser hold for every call: random policies, one change, random calls under both.

The two are told of the same calls as long as they answer alike. Where they first do not, the one
that is said to be tighter must be the one that answers more strongly.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from policyguard import Decision, Guard
from policyguard.compare.diff import diff_policies
from policyguard.compiler import CompiledPolicy, check_policy
from policyguard.model.effect import Effect
from tests.examples import examples

SECOND = 10**9
HEAD = {
    "policyguard": 1,
    "name": "x",
    "params": {"some": 1},
    "classify": {"targets": ["path"], "classes": [{"class": "read", "tools": ["a*"]}]},
    "signatures": [{"id": "boom", "pattern": "boom", "blame": "agent"}],
}
LEVELS = (("default",), ("classes", "read"), ("tools", "a*"), ("tools", "ab*"), ("tools", "b"))
COMMON: dict[str, list[Any]] = {
    "per": ["turn", "session"],
    "effect": ["ask", "block", "halt", "advise"],
    "advise_at": [2],
    "ask_at": [2, 3],
    "halt_at": [2, 4],
    "refuse": ["tool"],
    "until": ["progress", "turn", "session"],
    "mode": ["observe"],
}
KINDS: dict[str, dict[str, list[Any]]] = {
    "repeat": {
        "max": [1, 2, 3],
        "window": [3, 5, "all"],
        "same": ["call", "call_and_result", "call_and_error", "error", "target"],
        "key": ["string(call.args.n)"],
    },
    "cycle": {"max": [1, 2], "longest": [2, 3]},
    "failures": {"max": [1, 2, 3], "same": ["error"]},
    "refusals": {"max": [1, 2]},
    "outage": {"max": [1, 2], "within": ["3s", "20s"], "cooldown": ["2s", "10s"]},
    "polling": {"cooldown": ["2s", "3s"], "unchanged": [1, 3]},
}
NEEDED = {"max", "within", "cooldown", "calls", "tools", "when", "schedule", "unchanged"}
BUDGET: dict[str, list[Any]] = {
    "calls": [2, 3, 5],
    "per": ["turn", "session", "agent", "user", "project", "global", ["session", "call.tool"]],
    "within": ["3s", "10s"],
    "agents": [["boss"], ["boss", "worker"]],
    "tools": [["ab"], ["a*"], ["ab", "b"], {"outside": ["b"]}],
    "when": ["call.args.n > 0", "outcome.ok"],
    "extend": [2],
    "effect": ["ask", "block", "halt"],
    "halt_at": [3, 6],
    "mode": ["observe"],
}
SPENT = {
    **{key: BUDGET[key] for key in ("per", "within", "tools", "effect")},
    "sum": ["call.args.n"],
}
RULE: dict[str, list[Any]] = {
    "tools": [["ab"], ["a*", "ab"], ["ab", "b"]],
    "when": ["call.args.n > 0", "call.args.missing"],
    "unless": ["call.args.n == 2"],
    "effect": ["advise", "ask", "block", "halt"],
    "on_error": ["allow", "block"],
    "mode": ["observe"],
}
LEARN: dict[str, list[Any]] = {
    "corroborate": [1, 2, 3],
    "ban": ["call", "target", "tool", "class"],
    "blame": [["agent", "unknown"]],
    "scope": ["session", "agent", "project", "global"],
    "reset_on": ["none"],
    "most": [1, 2],
    "except": [["read"], []],
    "weaken": [
        {"half_life": "5s", "probation": 0.5},
        {"half_life": "9s", "probation": 0.5},
        {"lives": "5s"},
        {"lives": "20s"},
        {"on_success": "keep"},
    ],
}
RADIUS: dict[str, list[Any]] = {
    "schedule": [["unlimited", 2, 1], ["unlimited", 1]],
    "shrink_after": [1, 2, 3],
    "widen_after": [1, 3],
}


def entry(chance: random.Random, fields: dict[str, list[Any]], few: float = 0.25) -> dict[str, Any]:
    """What is needed, and a few others."""
    return {
        key: chance.choice(values)
        for key, values in fields.items()
        if key in NEEDED or chance.random() < few
    }


def random_entries(chance: random.Random) -> dict[tuple[str, ...], Any]:
    """Some entries, by the way to them."""
    made: dict[tuple[str, ...], Any] = {}
    for kind in chance.sample(sorted(KINDS), 2):
        for level in chance.sample(LEVELS, chance.randint(0, 3)):
            made["limits", *level, kind] = limit(chance, kind)
    if chance.random() < 0.4:
        made["budgets", "one"] = entry(chance, BUDGET)
    if chance.random() < 0.2:
        made["budgets", "sum"] = {
            "max": chance.randint(1, 5),
            **entry(chance, SPENT),
            "sum": "call.args.n",
        }
    if chance.random() < 0.3:
        made["rules", "one"] = entry(chance, RULE)
    if chance.random() < 0.4:
        made["learn",] = entry(chance, LEARN)
    if chance.random() < 0.3:
        made["radius",] = {"shrink_after": 2, **entry(chance, RADIUS)}
    return made


def limit(chance: random.Random, kind: str) -> Any:
    """A limit, or its absence said."""
    return "none" if chance.random() < 0.1 else entry(chance, {**KINDS[kind], **COMMON}, 0.12)


def banning(entries: dict[tuple[str, ...], Any]) -> bool:
    """Whether a limit has steps and shuts off too: a step then takes the place of what is off."""
    return any(
        {"refuse", "until"} & value.keys() and {"ask_at", "halt_at", "advise_at"} & value.keys()
        for value in entries.values()
        if isinstance(value, dict)
    )


def changed(chance: random.Random, old: dict[tuple[str, ...], Any]) -> dict[tuple[str, ...], Any]:
    """One entry comes or goes, or says something else in one place."""
    new = dict(old)
    fields = {"budgets": BUDGET, "rules": RULE, "learn": LEARN, "radius": RADIUS}
    if not old or chance.random() < 0.3:
        fresh = random_entries(chance)
        path = chance.choice(sorted({*old, *fresh, ("learn",)}))
        if path in old:
            del new[path]
        else:
            new[path] = fresh.get(path, {})
        return new
    path = chance.choice(sorted(old))
    known = {**KINDS[path[-1]], **COMMON} if path[0] == "limits" else fields[path[0]]
    if old[path] == "none":
        new[path] = limit(chance, path[-1])
        return new
    key = chance.choice(sorted(known))
    value = dict(old[path])
    if value.pop(key, None) is None or key in NEEDED or chance.random() < 0.7:
        value[key] = chance.choice(known[key])
    new[path] = value
    return new


def written(entries: dict[tuple[str, ...], Any]) -> str:
    """The policy of these entries."""
    document: dict[str, Any] = dict(HEAD)
    for path, value in entries.items():
        below = document
        for step in path[:-1]:
            below[step] = dict(below.get(step, {}))
            below = below[step]
        below[path[-1]] = value
    return json.dumps(document)


def compiled(text: str, file: Path) -> CompiledPolicy | None:
    file.write_text(text)
    return check_policy(file, environ={})[0]


def calls(chance: random.Random) -> Iterator[dict[str, Any]]:
    """What a few agents do that repeat themselves, and what comes of it."""
    few = [
        {"tool": tool, "args": {"n": n, **more}}
        for tool in chance.sample(["ab", "abc", "ax", "b"], 2)
        for n, more in ((0, {}), (1, {"path": "p"}), (2, {"path": ["p", "q", "r"]}))
    ]
    texts = chance.choice([["same"], ["same", "other"]])
    wrong = chance.choice([0.1, 0.6, 0.9])
    for _ in range(chance.randint(5, 30)):
        outcome: dict[str, Any] = {"result": chance.choice(texts)}
        if chance.random() < wrong:
            outcome = {"error": chance.choice(["boom", "boom", "oops"])}
            outcome["blame"] = chance.choice(["harness", "agent", "agent", None])
        yield {
            "session": chance.choice(["m", "m", "c", "o"]),
            **chance.choice(few[: chance.choice([1, 2, 6])]),
            "outcome": outcome,
            "wait": chance.choice([0, 1, 1, 6]),
            "turn": chance.random() < 0.05,
            "later": chance.random() < 0.1,
        }


class Side:
    """One of the two policies at work."""

    def __init__(self, made: CompiledPolicy) -> None:
        guard = Guard(made, clock=lambda: 0)
        main = guard.session("m", agent="boss", project="P", user="u")
        child = guard.session("c", agent="worker", parent=main, project="Q", user="v")
        other = guard.session("o", agent="boss", project="Q", user="u")
        self.sessions = {"m": main, "c": child, "o": other}
        self.open: list[tuple[str, Decision, dict[str, Any]]] = []

    def ask(self, call: dict[str, Any], at: int) -> Decision:
        if call["turn"]:
            self.sessions[call["session"]].turn()
        return self.sessions[call["session"]].check(call["tool"], call["args"], at=at)

    def record(self, call: dict[str, Any], decision: Decision, at: int) -> None:
        self.open.append((call["session"], decision, call["outcome"]))
        if not call["later"]:
            for session, one, outcome in self.open:
                if one.allowed:
                    self.sessions[session].record(one, at=at, **outcome)
            self.open.clear()


def first_apart(old: CompiledPolicy, new: CompiledPolicy, chance: random.Random) -> str:
    """Which way the first call goes that the two answer otherwise; empty where there is none."""
    before, after = Side(old), Side(new)
    at = 0
    for call in calls(chance):
        at += call["wait"] * SECOND
        was, now = before.ask(call, at), after.ask(call, at)
        heights = [max(one.effect, Effect.ADVISE) for one in (was, now)]
        if heights[0] != heights[1]:
            return "tighter" if heights[1] > heights[0] else "looser"
        before.record(call, was, at)
        after.record(call, now, at)
    return ""


@settings(
    max_examples=examples(200, 10),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.integers(min_value=0, max_value=2**32))
@example(38426)  # an outage of several tools that refuses the call, or the tool
def test_no_call_contradicts_the_direction(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - no secret
    before = random_entries(chance)
    after = changed(chance, before)
    old, new = (compiled(written(one), tmp_path / "policy.yaml") for one in (before, after))
    if old is None or new is None or banning(before) or banning(after):
        return
    directions = {one.direction for one in diff_policies(old, new)}
    if len(directions) != 1 or "" in directions:
        return
    for _ in range(20):
        assert first_apart(old, new, chance) in {"", *directions}, (before, after)


def test_asking_instead_of_blocking_failures_has_no_direction(tmp_path: Path) -> None:
    """A limit that blocks admits probes; one that asks does not, and refuses a call they admit."""
    entries = [
        {("limits", "default", "failures"): {"max": 1, "effect": effect}}
        for effect in ("block", "ask", "halt")
    ]
    block, ask, halt = (compiled(written(one), tmp_path / "policy.yaml") for one in entries)
    assert block is not None
    assert ask is not None
    assert halt is not None
    assert [one.direction for one in diff_policies(block, ask)] == [""]
    assert [one.direction for one in diff_policies(block, halt)] == ["tighter"]


@settings(
    max_examples=examples(200, 10),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.integers(min_value=0, max_value=2**32))
def test_no_call_contradicts_the_direction_of_an_item(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - no secret
    kind = chance.choice(["repeat", "cycle", "failures"])
    fields = {**KINDS[kind], **COMMON}
    before = [entry(chance, fields, 0.12) for _ in range(chance.randint(2, 3))]
    after = [*before, entry(chance, fields, 0.12)]
    chance.shuffle(after)
    pair = [{("limits", "default", kind): listed} for listed in (before, after)]
    old, new = (compiled(written(one), tmp_path / "policy.yaml") for one in pair)
    if old is None or new is None or any(banning({("limits",): one}) for one in after):
        return
    found = diff_policies(old, new)
    assert len(found) <= 1, (before, after)  # equal items are one
    for change in found:
        for _ in range(20):
            assert not change.direction or first_apart(old, new, chance) in {"", change.direction}
