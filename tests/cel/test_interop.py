"""Conversion between plain Python and CEL."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from policyguard.cel import DYN, CelError, CelEvaluationError, Declarations, compile  # noqa: A004
from policyguard.cel.interop import MAX_RESULT_DEPTH
from policyguard.cel.types.key_set import KeySet

MOMENT = datetime(2026, 3, 6, 10, 0, 0, 123456, tzinfo=UTC)


@pytest.mark.parametrize(
    ("source", "declarations", "values", "result"),
    [
        ("x + 1", {"x": "int"}, {"x": 2}, 3),
        ("x + 1u", {"x": "uint"}, {"x": 2}, 3),
        ("xs.map(x, x + 1u)", {"xs": "list(uint)"}, {"xs": [1, 2]}, [2, 3]),
        ("m['a'] == 1u", {"m": "map(string, uint)"}, {"m": {"a": 1}}, True),
        ("m.n.k", {"m": {"n": {"k?": "string"}}}, {"m": {"n": {"k": "v"}}}, "v"),
        ("d.a.b > 1", {"d": "dyn"}, {"d": {"a": {"b": 2}}}, True),
        ("t + d", {"t": "timestamp", "d": "duration"},
         {"t": MOMENT, "d": timedelta(hours=1)}, MOMENT + timedelta(hours=1)),
        ("t.getHours()", {"t": "timestamp"},
         {"t": datetime(2026, 3, 6, 12, tzinfo=timezone(timedelta(hours=2)))}, 10),
        ("t.getHours()", {"t": "timestamp"}, {"t": datetime(2026, 3, 6, 12)}, 12),
        ("[t - t, duration('1s')]", {"t": "timestamp"}, {"t": MOMENT},
         [timedelta(0), timedelta(seconds=1)]),
        ("int(t)", {"t": "timestamp"}, {"t": datetime(1970, 1, 2, tzinfo=UTC)}, 86_400),
        ("timestamp('2026-03-06T10:00:00.123456Z')", {}, {}, MOMENT),
        ("{'n': null, 'b': b'x'}", {}, {}, {"n": None, "b": b"x"}),
        ("type(1u)", {}, {}, "uint"),
        ("x", {"x": "map(string, list(map(int, dyn)))"}, {"x": {"a": [{1: None}]}},
         {"a": [{1: None}]}),
    ],
)  # fmt: skip
def test_arguments_and_results_are_plain_python(
    source: str, declarations: dict[str, Any], values: dict[str, Any], result: Any
) -> None:
    value = compile(source, declarations)(**values)
    assert value == result
    assert type(value) is type(result)


def test_results_have_python_types() -> None:
    value = compile("[1u, {'k': 2u}]", {})()
    assert type(value[0]) is int
    assert type(value[1]["k"]) is int


@pytest.mark.parametrize("name", ["integer", "list(int", "list(int, int)", "map(int)", "lst(int)"])
def test_unknown_type_names(name: str) -> None:
    with pytest.raises(ValueError, match="unknown type"):
        compile("x", {"x": name})


def test_all_problems_have_positions() -> None:
    with pytest.raises(CelError) as error:
        compile("xx + 1 > y.tol", {"x": "int", "y": {"tool": "string"}})
    problems = {problem.code: (problem.line, problem.column) for problem in error.value.problems}
    assert problems == {"undeclared-reference": (1, 1), "unknown-field": (1, 12)}


def test_a_variable_that_is_read_is_required() -> None:
    program = compile("a || b", {"a": "bool", "b": "bool", "c": "bool"})
    assert program(a=True, b=False)
    with pytest.raises(TypeError, match="missing argument `b`"):
        program(a=True)


def test_errors_and_reuse() -> None:
    declarations = Declarations({})
    with pytest.raises(CelEvaluationError):
        compile("1 / 0 == 1", declarations)()


def test_a_result_that_nests_too_deep_is_an_error() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(CelEvaluationError):
        compile("x", {"x": "dyn"})(x=deep)


@pytest.mark.parametrize("wrap", [lambda item: [item], lambda item: {"k": item}])
def test_a_result_nests_as_deep_as_the_message_says(wrap: Callable[[Any], Any]) -> None:
    program = compile("x", {"x": "dyn"})
    deepest: Any = 1
    for _ in range(MAX_RESULT_DEPTH):
        deepest = wrap(deepest)
    assert program(x=deepest) == deepest
    with pytest.raises(CelEvaluationError, match=f"deeper than {MAX_RESULT_DEPTH} levels"):
        program(x=wrap(deepest))


@pytest.mark.parametrize("declared", ["list(uint)", "map(string, uint)", {"n": "uint"}])
@pytest.mark.parametrize("value", [None, 5, "12", "", [True], {"k": True}])
def test_a_value_of_another_shape_than_declared_stays_as_it_is(declared: Any, value: Any) -> None:
    assert compile("x", {"x": declared})(x=value) == value
    assert compile("type(x)", {"x": declared})(x=value) == compile("type(x)", {"x": "dyn"})(x=value)


@pytest.mark.parametrize(
    ("source", "shown"), [("1 \x07", "`\\x07`"), ("1 \u200b", "`\\u200b`"), ("1 é", "`é`")]
)
def test_a_sign_that_cannot_be_seen_is_shown_as_its_number(source: str, shown: str) -> None:
    with pytest.raises(CelError) as error:
        compile(source, {})
    assert shown in str(error.value)


def test_a_set_of_keys_says_what_it_has_and_how_many() -> None:
    keys = KeySet({"a", "b", "c"}.__contains__, lambda: 3)
    declarations = Declarations({"x": DYN, "y": DYN})
    is_in = compile("x in y", declarations)
    assert [is_in(x=x, y=keys) for x in ("a", "d", 1)] == [True, False, False]
    assert compile("[size(y), y.size()]", declarations)(y=keys) == [3, 3]
    for source in ("y[0]", "y.all(e, true)"):
        with pytest.raises(CelEvaluationError):
            compile(source, declarations)(y=keys)
