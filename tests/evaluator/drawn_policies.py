"""Draws policies of random parts, so that each option meets calls without and with the others."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from policyguard.compiler import CompiledPolicy, compile_policy
from policyguard.model.diagnostic import PolicyError

Pick = Callable[..., Any]
"""Returns one of its arguments, by chance."""
Entry = dict[str, Any]

_CONDITIONS = (
    "call.args.n > 1",
    "call.args.path == 'a'",
    "call.args.path in ['a', 'c']",
    "session.calls > 4",
    "session.failures > 1",
    "session.count('read') > 2",
    "session.turn > 1",
    "session.running > 1",
    "session.depth > 0",
    "session.elapsed > duration('20s')",
    "session.cost > 1.0",
    "session.tokens > 50",
    "session.progress == 'plateau'",
    "call.class == 'edit'",
    "call.previous.path == call.args.path",
    "call.targets.size() > 1",
    "call.args.rate > 1.0",
    "tags.tier == 'vip'",
    "call.args.id == 1",
    "call.args.paths.size() > 2",
)
_OF_OUTCOMES = (
    "outcome.ok",
    "!outcome.ok",
    "outcome.text.contains('done')",
    "outcome.state == 'pending'",
    "outcome.changed",
    "outcome.signature == 'lost'",
    "has(outcome.duration) && outcome.duration > duration('1s')",
    "outcome.data[0] == 'a'",
    "has(outcome.score) && outcome.score > 1.0",
)
_TOOLS = (["read"], ["edit"], ["send"], ["read", "poll"], ["*"], {"outside": ["read", "test"]})
_EFFECTS = ("block",) * 7 + ("ask", "ask", "advise", "halt")


def draw_valid_policy(folder: Path, seed: int, without: str = "\n") -> CompiledPolicy:
    """Return the first valid one of those that are drawn, in which a text does not occur."""
    generator = random.Random(seed)  # noqa: S311 - no secret
    file = folder / "policy.yaml"
    while True:
        drawn = draw_policy(lambda *choices: choices[int(generator.random() * len(choices))])
        text = json.dumps(drawn)  # which is YAML
        if without in text:
            continue
        file.write_text(text)
        try:
            return compile_policy(file)
        except PolicyError:
            continue


def draw_policy(pick: Pick) -> Entry:
    """Return a policy for the calls of a `Play`; some are invalid."""
    policy: Entry = {
        "policyguard": 1,
        "name": "drawn",
        "batch": pick("each", "each", "all_or_none"),
        "tags": {"tier": {"type": "string", "default": "free"}},
        "classify": _draw_classes(pick),
        "signatures": [
            _signature("lost", pick("agent", "unknown")),
            _signature("down", pick("harness", "harness", "agent")),
        ],
        "limits": {"default": _draw_limits(pick, pick(1, 1, 2, 3))},
    }
    if pick(True, False, False):
        policy["blame"] = [{"id": "mine", "when": pick(*_OF_OUTCOMES), "blame": "agent"}]
    if pick(True, False, False):
        policy["bounds"] = {pick("in_flight", "unreported", "window_entries"): pick(2, 5)}
    if pick(True, False):
        policy["outcomes"] = pick({}, {"failed_when": "outcome.text.startsWith('Error')"}) | {
            "envelope": [{"state": pick("pending", "failure"), "pattern": "^wait"}],
            "meta": {"non_advancing": ["stuck"], "harness": ["infra"]},
        }
    if pick(True, False, False):
        policy["limits"]["tools"] = {pick("read", "edit", "poll"): _draw_limits(pick, 1)}
    if pick(True, False, False):
        policy["limits"]["classes"] = {pick("look", "edit"): _draw_limits(pick, 1)}
    if pick(True, False, False):
        drawn = ("calls", "money", "tokens")[: pick(1, 2, 3)]
        policy["budgets"] = {name: _draw_budget(pick) for name in drawn}
    if pick(True, False, False):
        policy["learn"] = _draw_learning(pick)
    if pick(True, False, False, False, False):
        policy["radius"] = _draw_radius(pick)
    if pick(True, False, False):
        policy["progress"] = _draw_progress(pick)
    if pick(True, False, False, False):
        policy |= _draw_marks(pick)
    if pick(True, False, False):
        drawn = {f"r{n}": _draw_rule(pick) for n in range(pick(1, 2))}
        policy["rules"] = policy.get("rules", {}) | drawn
    if pick(True, False, False, False):
        policy["result_rules"] = {f"o{n}": _draw_result_rule(pick) for n in range(pick(1, 2))}
    if pick(True, False, False, False):
        excepted = pick("limits/default/*", "budgets/*", "rules/*", "limits/default/repeat")
        policy["exceptions"] = {
            "vip": {
                "rules": [excepted],
                "when": pick("tags.tier == 'vip'", *_CONDITIONS),
                "until": "2099-01-01",
                "reason": "agreed",
            }
        }
    return policy


def _signature(name: str, blame: str) -> Entry:
    return {
        "id": name,
        "pattern": name,
        "blame": blame,
        "examples": {"match": [name], "no_match": ["x"]},
    }


def _draw_classes(pick: Pick) -> Entry:
    classes = [
        {"class": "edit", "tools": ["edit"]},
        {"class": "deploy", "tools": ["deploy"]},
        {"class": "look", "tools": ["read", "poll"]},
    ]
    drawn: Entry = {"classes": classes, "targets": ["path", "paths"]}
    drawn["state_changing"] = pick(["edit", "deploy"], ["edit"], "call.tool == 'edit'", [])
    if pick(True, False):
        drawn["fingerprint"] = pick(
            {"ignore": ["id"]}, {"tolerance": {"rate": 0.1}}, {"ignore": ["n", "id"]}
        )
    if pick(True, False):
        results: Entry = {"mask": pick(["durations"], ["durations", "counters"])}
        results |= pick({}, {"order": "ignored"}) | pick({}, {"nothing": ["no match"]})
        drawn["likeness"] = {"results": results} | pick({}, {"fold": ["path"]})
    return drawn


def _draw_limits(pick: Pick, count: int) -> Entry:
    kinds = ("repeat", "cycle", "stale", "no_progress", "failures", "refusals", "outage", "polling")
    drawn: Entry = {}
    for _ in range(count):
        kind = pick(*kinds, "repeat", "failures")
        drawn[kind] = _draw_limit(pick, kind)
    if pick(True, False, False, False):
        drawn["timeout"] = pick("5s", "2s")
    return drawn


def _draw_limit(pick: Pick, kind: str) -> Entry:
    most = pick(1, 2, 3)
    drawn: Entry = {"max": most}
    if kind == "repeat":
        drawn |= _draw_sameness(pick, most)
    elif kind == "cycle":
        drawn |= {"shortest": pick(1, 2), "longest": pick(2, 3)}
    elif kind == "stale":
        drawn |= {"window": pick(3, 6, 20)}
    elif kind == "failures":
        drawn |= pick({}, {"same": pick("error", "result", "call")})
        drawn |= pick({}, {}, {"by": "tool"})
        drawn |= pick({}, {}, {"count": "tree"})
        drawn |= pick({}, {}, {"despite_changes": True})
        drawn |= pick({}, {}, {"signature": "lost"})
    elif kind == "outage":
        drawn |= {"within": pick("10s", "60s"), "cooldown": pick("4s", "15s")}
    elif kind == "polling":
        drawn = pick({"cooldown": "2s"}, {"unchanged": 2}, {"cooldown": "10s", "unchanged": 1})
    return drawn | _draw_consequences(pick, most)


def _draw_sameness(pick: Pick, most: int) -> Entry:
    same = ("call", "call_and_result", "call_and_error", "call_and_success", "error", "target")
    drawn: Entry = {"window": pick(most + 1, 6, 12, "all")}
    drawn |= pick({"same": pick(*same)}, {"same": "result"}, {"key": "call.args.path"})
    drawn |= pick({}, {}, {"by": "tool"})
    drawn |= pick({}, {}, {"count": "tree"})
    drawn |= pick({}, {"despite_changes": True}, {"despite_changes": True, "without_news": 2})
    return drawn


def _draw_consequences(pick: Pick, most: int) -> Entry:
    drawn: Entry = {"effect": pick(*_EFFECTS)}
    drawn |= pick({}, {}, {"advise_at": most})
    drawn |= pick({}, {}, {}, {"ask_at": most + 1})
    drawn |= pick({}, {}, {"halt_at": most + 3})
    drawn |= pick({}, {}, {"refuse": "tool"})
    drawn |= pick({}, {}, {"until": pick("progress", "success", "turn", "session")})
    drawn |= pick({}, {}, {"per": "turn"})
    drawn |= pick({}, {}, {}, {}, {"mode": "observe"})
    return drawn


def _draw_budget(pick: Pick) -> Entry:
    kind = pick(
        "calls", "tokens", "cost", "time", "concurrent", "sum", "distinct", "model_calls", "calls"
    )
    drawn: Entry = {
        "calls": {"calls": 4},
        "tokens": {"tokens": 90, "reserve": 20},
        "cost": {"cost": 1.5, "reserve": 0.3},
        "time": {"time": "90s"},
        "concurrent": {"concurrent": 2},
        "sum": {"sum": pick("call.args.n", "outcome.text.size()"), "max": 5},
        "distinct": {"distinct": pick("call.args.path", "call.targets"), "max": 2},
        "model_calls": {"model_calls": 3},
    }[kind]
    if kind != "model_calls":
        drawn |= pick({}, {"tools": pick(*_TOOLS)})
        drawn |= pick({}, {}, {}, {"agents": [pick("a", "b")]})
        drawn |= pick({}, {}, {"when": pick(*_CONDITIONS)})
    scopes = ("turn", "session", "agent", "user", "project", "global", "batch")
    scope = pick(*scopes[:2]) if kind == "distinct" else pick(*scopes)
    keys = ("call.args.path", "call.args.path", "call.args.paths[0]", "call.tool")
    drawn |= {"per": pick(scope, [scope, pick(*keys)]) if kind in ("calls", "sum") else scope}
    if kind not in ("time", "concurrent"):
        drawn |= pick({}, {}, {"within": "45s"})
    low, high = ("40s", "60s") if kind == "time" else (1, 3)
    drawn |= pick({}, {}, {"advise_at": low}, {"advise_at": low, "halt_at": high})
    drawn |= pick({}, {}, {"effect": pick("ask", "halt")}, {"effect": "ask", "extend": high})
    return drawn


def _draw_learning(pick: Pick) -> Entry:
    drawn: Entry = {"corroborate": pick(1, 2, 3), "scope": pick("session", "agent", "project")}
    drawn |= pick({}, {"ban": pick("call", "target", "tool", "class")}, {"key": "call.args.path"})
    drawn |= pick({}, {}, {"reset_on": "none"})
    drawn |= pick({}, {}, {"blame": ["agent", "unknown"]})
    drawn |= pick({}, {}, {"most": 2})
    drawn |= pick({}, {}, {"scope_key": "call.tool"})
    weaken: Entry = pick({}, {"half_life": "20s", "probation": 0.5}, {"lives": "60s"})
    weaken = weaken | pick({}, {}, {"on_success": pick("forget", "keep")})
    return drawn | ({"weaken": weaken} if weaken else {})


def _draw_radius(pick: Pick) -> Any:
    drawn = {
        "schedule": pick([3, 1], [2, 1], ["unlimited", 2, 1]),
        "shrink_after": pick(1, 2),
        "widen_after": pick(1, 3),
    }
    return pick(drawn, [drawn | {"when": pick(*_CONDITIONS)}])


def _draw_progress(pick: Pick) -> Entry:
    return {
        "plateau_after": pick(1, 2, 3),
        "direction": pick("minimize", "maximize"),
        "min_delta": pick(0.001, 0.5),
        "space": pick(3, 6),
        "exhausted_after": pick(1, 2),
        "constrained_below": pick(0.1, 0.6),
    }


def _draw_marks(pick: Pick) -> Entry:
    plain: Entry = {"set": _draw_change(pick, _CONDITIONS + _OF_OUTCOMES)}
    plain |= pick({}, {"clear": _draw_change(pick, _CONDITIONS)})
    keyed: Entry = {"key": pick("call.args.path", "call.targets"), "set": {"tools": ["read"]}}
    keyed |= pick({}, {"clear": pick({"tools": ["edit"]}, {"tools": ["x"], "key": "call.targets"})})
    keyed |= pick({}, {}, {"keep": 1})
    for mark in (plain, keyed):
        mark["per"] = pick("turn", "session", "agent", "project")
        mark |= pick({}, {}, {"within": "20s"})
        mark |= pick({}, {"on_error": "set"})
    rules: Entry = {
        "needs": {"tools": pick(*_TOOLS), "unless": "mark.tested", "effect": pick(*_EFFECTS)},
        "unseen": {"tools": ["edit", "send"], "unless": "call.args.path in mark.seen"},
        "many": {"tools": ["send"], "when": "mark.seen.size() > 1", "effect": "advise"},
    }
    return {"marks": {"tested": plain, "seen": keyed}, "rules": rules}


def _draw_change(pick: Pick, conditions: tuple[str, ...]) -> Entry:
    drawn: Entry = {"tools": pick(*_TOOLS)}
    drawn |= pick({}, {pick("when", "unless"): pick(*conditions)})
    return drawn


def _draw_rule(pick: Pick) -> Entry:
    drawn: Entry = {"tools": pick(*_TOOLS)}
    drawn |= pick({}, {"when": pick(*_CONDITIONS)}, {"unless": pick(*_CONDITIONS)})
    drawn |= pick({}, {}, {}, {"agents": [pick("a", "b")]})
    drawn |= pick({}, {}, {}, {"on_error": pick("allow", "ask", "block")})
    drawn |= pick({}, {}, {}, {"mode": "observe"})
    if pick(True, False, False):
        cases = [
            {"when": pick(*_CONDITIONS), "effect": pick("allow", *_EFFECTS)}
            for _ in range(pick(1, 2))
        ]
        return drawn | {"cases": cases} | pick({}, {"otherwise": pick("allow", "block")})
    drawn["effect"] = effect = pick(*_EFFECTS)
    if effect == "ask":
        approval: Entry = {"count": pick(1, 1, 2)}
        approval |= pick({}, {"from": ["lead"]})
        approval |= pick({}, {"within": "30s", "otherwise": pick("block", "allow")})
        approval |= pick({}, {"remember": pick([], ["call"], ["tool", "target"])})
        drawn["approval"] = approval
    message = "no {call.args.path} ({session.calls})"
    return drawn | pick({}, {"message": message}, {"instead": "read it"})


def _draw_result_rule(pick: Pick) -> Entry:
    effect = pick("advise", "redact", "truncate", "withhold", "halt")
    drawn: Entry = {"tools": pick(*_TOOLS), "effect": effect}
    drawn |= pick({}, {pick("when", "unless"): pick(*_OF_OUTCOMES)})
    if effect == "redact":
        drawn["finds"] = [pick("done", "[0-9]+", "lost")]
    if effect == "truncate":
        drawn["keep"] = pick(3, 6)
    return drawn | pick({}, {"message": "of {call.tool}"})
