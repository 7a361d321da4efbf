"""`params`, `lists`, and references to them (`$name`)."""

from __future__ import annotations

import pytest

from policyguard.compiler import check_policy
from policyguard.compiler.merge import substitution
from policyguard.compiler.pipeline import FrontendResult
from tests.compiler.setup import read_text

HEAD = "policyguard: 1\nname: x\n"


def read(text: str, **environ: str) -> FrontendResult:
    return read_text(HEAD + text, environ=environ)


def value(param: str, **environ: str) -> object:
    result = read(f"params: {{p: {param}}}", **environ)
    assert result.diagnostics == []
    return result.policy.params["p"].value


def codes(result: FrontendResult) -> list[str]:
    return [found.code for found in result.diagnostics]


@pytest.mark.parametrize(
    ("param", "environ", "expected"),
    [
        ("5", {}, 5),
        ("500k", {}, 500_000),
        ("2.0", {}, 2.0),
        ("2.5", {}, 2.5),
        ("5m", {}, "5m"),
        ("text", {}, "text"),
        ("true", {}, True),
        ("{default: 5, env: P}", {}, 5),
        ("{default: 5, env: P}", {"P": "7"}, 7),
        ("{default: 5, env: P}", {"P": "2k"}, 2000),
        ("{default: 5, env: P, min: -3}", {"P": "-3"}, -3),
        ("{default: 1.5, env: P}", {"P": "2.25"}, 2.25),
        ("{default: 1.5, env: P}", {"P": "2"}, 2.0),
        ("{default: 1.5, env: P}", {"P": "2k"}, 2000.0),
        ("{default: 20.0, env: P}", {}, 20.0),
        ("{default: 20.0, env: P}", {"P": "20"}, 20.0),
        ("{default: 20.0, env: P}", {"P": "2.5"}, 2.5),
        ("{default: true, env: P}", {"P": "false"}, False),
        ("{default: false, env: P}", {"P": "true"}, True),
        ("{default: false, env: P}", {"P": "false"}, False),
        ("{default: 5m, env: P, max: 1h}", {"P": "60m"}, "60m"),
        ("{default: 60s, env: P, unit: ms}", {}, "60s"),
        ("{default: 60s, env: P, unit: ms}", {"P": "1500"}, "1500ms"),
        ("{default: 60s, env: P, unit: ms}", {"P": "2m"}, "2m"),
        ("{default: red, env: P}", {"P": "blue"}, "blue"),
        ("{default: red, env: P}", {"P": ""}, ""),
        ("{default: 5, env: P, min: 1, max: 2k}", {"P": "2000"}, 2000),
    ],
)
def test_param_has_the_environment_value_or_its_default(param, environ, expected):
    found = value(param, **environ)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("param", "given"),
    [
        ("{default: 5, env: P, max: 9}", "10"),
        ("{default: 5, env: P, min: 1}", "0"),
        ("{default: 5, env: P}", "five"),
        ("{default: 5, env: P}", ""),
        ("{default: 5, env: P}", "5.5"),
        ("{default: 5, env: P}", " 5"),
        ("{default: 5, env: P}", "1_000"),
        ("{default: 5, env: P}", "٣"),
        ("{default: 5, env: P}", "9" * 5000),
        ("{default: 5s, env: P}", "5"),
        ("{default: 5s, env: P, max: 1m}", "61s"),
        ("{default: 5s, env: P, max: 1m, unit: ms}", "60001"),
        ("{default: 5s, env: P, unit: ms}", "1.5"),
        ("{default: 5s, env: P, unit: ms}", "٣"),
        ("{default: 5s, env: P, unit: s}", "9" * 5000),
        ("{default: 5s, env: P}", "9" * 5000 + "s"),
        ("{default: true, env: P}", "yes"),
        ("{default: true, env: P}", "True"),
        ("{default: red, env: P}", "$p"),
    ],
)
def test_invalid_environment_value_is_an_error(param, given):
    result = read(f"params: {{p: {param}}}\nbudgets: {{b: {{calls: $p}}}}", P=given)
    (found,) = result.diagnostics
    assert found.code == "scalar/environment"
    assert found.message.startswith("`P` in the environment is `")
    assert result.policy.params == {}


def test_invalid_environment_value_is_told_the_unit():
    (found,) = read("params: {p: {default: 5s, env: P, unit: ms}}", P="soon").diagnostics
    assert found.help == "a bare number is in `ms`"


def test_no_limit_is_clamped():
    """Values without bounds are not limited."""
    result = read("budgets: {b: {calls: 999999999M, within: 99999d}}\nbounds: {sessions: 999M}")
    assert codes(result) == []
    (budget,) = result.policy.budgets
    assert budget.calls == 999_999_999_000_000
    assert budget.within == 99_999 * 86_400 * 10**9
    assert result.policy.bounds.sessions == 999_000_000


@pytest.mark.parametrize(
    "param",
    [
        "{default: 5, min: 6}",
        "{default: 5, max: 4}",
        "{default: 5, min: 2, max: 1}",
        "{default: 5, max: 1h}",
        "{default: 5s, max: 10}",
        "{default: text, max: 10}",
        "{default: true, min: 0}",
        "{default: 5, unit: ms}",
        "{default: text, unit: s}",
    ],
)
def test_contradicting_bounds_are_errors(param):
    assert codes(read(f"params: {{p: {param}}}")) == ["scalar/param"]


@pytest.mark.parametrize("param", ["$calls", "{default: $calls}", "{default: $no, env: P}"])
def test_param_cannot_refer_to_another(param):
    result = read(f"params: {{calls: 5, p: {param}}}\nbudgets: {{b: {{calls: $p}}}}", P="3")
    (found,) = result.diagnostics
    assert found.code == "scalar/param"
    assert found.help.endswith(" instead of `$p`")
    assert set(result.policy.params) == {"calls"}


def test_names_work_for_values_of_every_kind():
    result = read(
        """
params: {calls: 20, wait: 5m, money: 2.5, window: 7, tokens: 500k, tool: bash}
lists: {tools: [a, $more, $tool], more: [b*, c]}
budgets:
  calls: {calls: $calls, within: $wait, tools: [$tools, d]}
  cost: {cost: $money, tools: {outside: [$more]}}
  tokens: {tokens: $tokens}
limits:
  default: {repeat: {max: 3, window: $window}}
  tools: {x: {polling: {cooldown: $wait}}}
classify: {targets: [$more], classes: [{class: k, tools: [$tools]}]}
rules: {r: {tools: [$tools, $tool], message: cost $calls}}
"""
    )
    assert codes(result) == []
    policy = result.policy
    budgets = {budget.id: budget for budget in policy.budgets}
    assert policy.lists["tools"] == ("a", "b*", "c", "bash")
    assert budgets["calls"].calls == 20
    assert budgets["calls"].within == 300 * 10**9
    assert budgets["calls"].tools.items == ("a", "b*", "c", "bash", "d")
    assert budgets["cost"].cost == 2.5
    assert budgets["cost"].tools.outside
    assert budgets["cost"].tools.items == ("b*", "c")
    assert budgets["tokens"].tokens == 500_000
    assert policy.limits["default"].repeat.window == 7
    assert policy.limits["tools:x"].polling.cooldown == 300 * 10**9
    assert policy.classify.targets == ("b*", "c")
    assert policy.classify.classes[0].tools == ("a", "b*", "c", "bash")
    # Messages do not substitute names.
    assert policy.rules[0].message == "cost $calls"


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("budgets: {b: {calls: $clls}}", "reference/unknown-name", "no param or list named"),
        ("rules: {r: {tools: [$lst]}}", "reference/unknown-name", "no param or list named"),
        ("budgets: {b: {calls: $list}}", "reference/list", "`$list` is a list"),
        ("budgets: {b: {calls: $text}}", "scalar/count", "`$text` does not fit here: `t`"),
        ("budgets: {b: {calls: $half}}", "schema/type", "`$half` does not fit here: expected"),
        ("budgets: {b: {calls: 1, within: $calls}}", "scalar/duration", "a number, but a duration"),
        ("limits: {default: {repeat: {max: 1, window: $zero}}}", "schema/value", "too small"),
        ("rules: {r: {tools: [$calls]}}", "schema/type", "`$calls` does not fit here"),
        ("rules: {r: {tools: [$odd]}}", "scalar/glob", "`$odd` does not fit here"),
    ],
)
def test_name_that_does_not_fit_is_an_error(text, code, message):
    result = read(
        "params: {calls: 5, text: t, half: 2.5, zero: 0}\n"
        "lists: {list: [a], odd: [a, 'b c']}\n" + text
    )
    (found,) = result.diagnostics
    assert found.code == code
    assert message in found.message


def test_close_name_is_suggested():
    result = read("params: {searches: 5}\nbudgets: {b: {calls: $serches}}")
    assert result.diagnostics[0].help == "did you mean `$searches`?"


def test_broken_param_is_not_reported_as_unknown():
    result = read(
        "params: {p: {default: 5, max: 4}}\nlists: {l: {a: b}}\n"
        "budgets: {b: {calls: $p, tools: [$l]}}"
    )
    assert codes(result) == ["schema/unknown-key", "schema/missing-key", "scalar/param"]


def test_list_cycle_is_an_error():
    result = read("lists: {a: [$b, x], b: [$c], c: [$a]}\nrules: {r: {tools: [$a]}}")
    assert codes(result) == ["reference/list-cycle"]


def test_exponential_lists_are_an_error(monkeypatch):
    monkeypatch.setattr(substitution, "MAX_LIST_ITEMS", 5_000)
    lists = ["l0: [a, a, a, a, a, a, a, a, a, a]"]
    lists += [f"l{n}: [{', '.join([f'$l{n - 1}'] * 10)}]" for n in range(1, 30)]
    result = read("lists: {" + ", ".join(lists) + "}")
    assert codes(result) == ["reference/too-many"]


def test_yes_and_no_are_text_with_a_warning():
    result = read("params: {a: no, b: {default: 1_000}, c: 'no', d: text}")
    assert [(found.code, found.severity) for found in result.diagnostics] == [
        ("yaml/boolean-trap", "warning"),
        ("yaml/number-trap", "warning"),
    ]
    assert result.policy.params["a"].value == "no"


@pytest.mark.parametrize(
    "rate", ["20.0", "{default: 20.0, env: RATE}", "{default: 1.5, env: RATE}"]
)
def test_expressions_see_a_fraction_as_a_double(rate, tmp_path):
    file = tmp_path / "policy.yaml"
    when = "call.args.n > params.rate * 1.5"
    file.write_text(f"{HEAD}params: {{rate: {rate}}}\nrules: {{r: {{when: {when}}}}}\n", "utf-8")
    for text in ("20", "20.0", "2k"):
        assert check_policy(file, environ={"RATE": text})[1] == []
