"""The typed policy: defaults from the schema, expanded short forms."""

from __future__ import annotations

import msgspec
import pytest

from policyguard.compiler.load import schema
from policyguard.model.entry import Example, Selector, TextExamples
from policyguard.model.limits import Per
from policyguard.model.policy import Policy
from tests.compiler.setup import read_text

SECOND = 10**9


def policy(text: str) -> Policy:
    result = read_text("policyguard: 1\nname: x\n" + text)
    assert result.diagnostics == []
    return result.policy


def test_empty_policy_has_all_defaults():
    found = policy("")
    assert (found.mode, found.on_internal_error) == ("enforce", "block")
    bounds = schema.document()["properties"]["bounds"]["properties"]
    assert (found.bounds.unreported, found.bounds.cleanup) == (3600 * SECOND, 5 * SECOND)
    counts = bounds.keys() - {"unreported", "cleanup"}
    assert {name: getattr(found.bounds, name) for name in counts} == {
        name: bounds[name]["default"] for name in counts
    }
    assert found.classify.shell.arguments == ("command", "cmd")
    assert (found.journal.args, found.journal.durability) == ("hash", "process")
    assert found.learn is None
    progress = schema.document()["properties"]["progress"]["properties"]
    assert msgspec.to_builtins(found.progress) == {
        name: shape["default"] for name, shape in progress.items()
    }


def test_limits_have_the_defaults_of_their_kind():
    level, poll = policy(
        "limits: {default: {repeat: {max: 3}, cycle: {max: 2}, failures: {max: 1},"
        " }, tools: {x: {polling: {unchanged: 0}}}}"
    ).limits.values()
    assert (level.repeat.window, level.repeat.same) == (10, "call_and_result")
    assert (level.repeat.per, level.repeat.effect, level.repeat.refuse) == (
        "session",
        "block",
        "call",
    )
    assert level.cycle.longest == 5
    assert poll.polling.unchanged == 0
    assert poll.polling.cooldown is None


def test_disabled_kind_differs_from_absent_kind():
    level = policy("limits: {tools: {x: {repeat: none}}}").limits["tools:x"]
    assert (level.repeat, level.cycle) == ("none", None)


def test_selectors_have_one_form():
    (rule,) = policy("rules: {a: {tools: [x, y*], agents: {outside: [z]}}}").rules
    assert rule.tools == Selector(items=("x", "y*"))
    assert rule.agents == Selector(items=("z",), outside=True)
    assert rule.classes is None


@pytest.mark.parametrize(
    ("effect", "on_error", "expected"),
    [
        ("halt", None, "block"),
        ("block", None, "block"),
        ("ask", None, "ask"),
        ("advise", None, "advise"),
        ("halt", "allow", "allow"),
        (None, None, "block"),
        (None, "advise", "advise"),
    ],
)
def test_on_error_defaults_to_the_rule_effect(effect, on_error, expected):
    keys = {"effect": effect, "on_error": on_error}
    given = "".join(f", {key}: {value}" for key, value in keys.items() if value)
    (rule,) = policy(f"rules: {{a: {{tools: [x]{given}}}}}").rules
    assert rule.on_error == expected
    assert rule.effect == (effect or "block")


def test_budgets_are_in_units():
    budgets = {
        budget.id: budget
        for budget in policy(
            """
budgets:
  a: {tokens: 2M, per: [project, call.args.x, call.agent], within: 100ms}
  b: {time: 20m}
  c: {sum: "1.0", max: 500k, per: global}
  d: {cost: 5}
"""
        ).budgets
    }
    assert budgets["a"].tokens == 2_000_000
    assert budgets["a"].per == Per(scope="project", keys=("call.args.x", "call.agent"))
    assert budgets["a"].within == SECOND // 10
    assert budgets["b"].time == 20 * 60 * SECOND
    assert budgets["b"].per == Per(scope="session")
    assert budgets["b"].effect == "block"
    assert (budgets["c"].sum, budgets["c"].max) == ("1.0", 500_000.0)
    assert budgets["d"].cost == 5.0


def test_whole_numbers_may_be_written_as_floats():
    found = policy("limits: {default: {repeat: {max: 1e1, window: 20.0}}}").limits["default"]
    assert (found.repeat.max, found.repeat.window) == (10, 20)
    assert type(found.repeat.max) is int


def test_window_all_stays_text():
    found = policy("limits: {default: {repeat: {max: 1, window: all}}}").limits["default"]
    assert found.repeat.window == "all"


def test_short_forms_are_expanded():
    found = policy(
        """
tags: {a: string, b: {one_of: [x, y]}, c: {type: "list(string)", default: [z], owner: o}}
patterns: {p: abc, q: {match: abc, examples: {match: [abc], no_match: [b]}}}
params: {r: {default: 5, env: R, reason: why}}
"""
    )
    assert (found.tags["a"].type, found.tags["a"].default) == ("string", None)
    assert (found.tags["b"].type, found.tags["b"].one_of) == ("string", ("x", "y"))
    assert (found.tags["c"].default, found.tags["c"].owner) == (("z",), "o")
    assert found.patterns["p"].match == "abc"
    assert found.patterns["q"].examples == TextExamples(match=("abc",), no_match=("b",))
    assert (found.params["r"].value, found.params["r"].env) == (5, "R")
    assert found.params["r"].reason == "why"


def test_examples_have_one_form():
    (rule,) = policy(
        """
tags: {t: {type: int, default: 0}}
rules:
  a:
    tools: [bash]
    examples:
      match:
        - bash: git push
        - bash: {command: ls, depth: {x: [1, null]}}
        - {call: {bash: rm}, tags: {t: 1}, roles: [r], user: u, agent: g, at: 2026-03-06T10:00:00Z}
      no_match:
        - {call: {write: {}}, session: {depth: 1}}
"""
    ).rules
    assert rule.examples.match == (
        Example(tool="bash", command="git push"),
        Example(tool="bash", args={"command": "ls", "depth": {"x": [1, None]}}),
        Example(
            tool="bash",
            command="rm",
            tags={"t": 1},
            roles=("r",),
            user="u",
            agent="g",
            at="2026-03-06T10:00:00Z",
        ),
    )
    assert rule.examples.no_match == (Example(tool="write", args={}, session={"depth": 1}),)


def test_metadata_is_allowed_on_any_entry():
    given = "owner: o, severity: high, docs: d, labels: [l], reason: r"
    found = policy(
        f"""
rules: {{a: {{tools: [x], {given}, mode: observe}}}}
budgets: {{a: {{calls: 1, {given}, mode: observe}}}}
signatures: [{{id: a, pattern: x, {given}}}]
blame: [{{id: a, when: "true", blame: agent, {given}}}]
classify: {{classes: [{{class: a, tools: [x], {given}}}]}}
tags: {{a: {{type: int, {given}}}}}
params: {{a: {{default: 1, {given}}}}}
patterns: {{a: {{match: x, {given}}}}}
limits: {{default: {{repeat: {{max: 1, {given}, mode: observe}}, {given}, mode: observe}}}}
"""
    )
    level = found.limits["default"]
    watched = [found.rules[0], found.budgets[0], level, level.repeat]
    entries = [
        *watched,
        found.signatures[0],
        found.blame[0],
        found.classify.classes[0],
        found.tags["a"],
        found.params["a"],
        found.patterns["a"],
    ]
    for one in entries:
        assert (one.owner, one.severity, one.docs) == ("o", "high", "d")
        assert (one.labels, one.reason) == (("l",), "r")
        assert one.mode == ("observe" if one in watched else None)


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ("calls: 1e308", "expected a whole number, found `1e+308`"),
        ("tokens: 1e19", "expected a whole number, found `1e+19`"),
        ("calls: 9223372036854775808", "`9223372036854775808` does not fit into 64 bits"),
        ("cost: 1e308", "`1e+308` is too large: at most 1000000000000000"),
        ("cost: 5.0, reserve: 1e308", "`1e+308` is too large"),
        ("sum: '1.0', max: 1e300", "`1e+300` is too large"),
        ("sum: '1.0', max: 5.0, extend: 1e300", "`1e+300` is too large"),
        ("cost: $p", "`$p` does not fit here: `1e+308` is too large"),
    ],
)
def test_huge_numbers_are_errors(budget: str, message: str) -> None:
    text = f"policyguard: 1\nname: x\nparams: {{p: 1e308}}\nbudgets: {{b: {{{budget}}}}}\n"
    assert message in read_text(text).diagnostics[0].message


@pytest.mark.parametrize("calls", ["1e15", "1000000000000000.0", "999999999M"])
def test_large_whole_numbers_stay_whole(calls: str) -> None:
    result = read_text(f"policyguard: 1\nname: x\nbudgets: {{b: {{calls: {calls}}}}}\n")
    assert result.diagnostics == []
    assert result.policy is not None
    assert isinstance(result.policy.budgets[0].calls, int)
