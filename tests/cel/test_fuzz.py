"""Any source and any data raise only the documented errors."""

from __future__ import annotations

import math
import random
import sys
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard import cel
from tests.cel.expressions import VARIABLES, Expressions, data
from tests.cel.reference_engines import TYPED, UNTYPED
from tests.cel.sample_declarations import SAMPLE_DECLARATIONS
from tests.examples import examples

FRAGMENTS = (
    *("call", "session", ".", "tool", "args", "urls", "x", "(", ")", "[", "]", "{", "}", ",", ":"),
    *("?", "&&", "||", "!", "-", "+", "*", "/", "%", "==", "!=", "<", "<=", "in", "true", "null"),
    *("'a'", '"', "'", "1", "0x", "1u", "1.5", "1e9", "has(", ".all(e,", ".map(e, e)", ".size()"),
    *(
        ".matches('('",
        ".during('x')",
        "timestamp(",
        "duration('1h')",
        "`a-b`",
        "//",
        "\n",
        " ",
        "\\",
    ),
    *("\ud800", "\0", "é", "b'\\xff'", "r'\\'", "'''", "if", "_", "__class__", "None"),
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**64), 2**64)
    | st.floats()
    | st.text(max_size=10)
    | st.sampled_from(["\ud800", "\0", "https://a.org", "/a/../b", "a@b.org", "1h", 10**400])
    | st.binary(max_size=4)
)
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.sampled_from(["a", "b", "tool", "n"]), inner, max_size=4)
    ),
    max_leaves=12,
)
random_activations = st.fixed_dictionaries(dict.fromkeys(VARIABLES, anything))


def evaluate(program: cel.Program, values: dict[str, Any]) -> Any:
    """Return the value, or the kind of a CEL error; any other exception fails the test."""
    try:
        return program.raw(**values)
    except cel.CelEvaluationError as error:
        return f"{error.kind}: {error}"


def check_problems(source: str, error: cel.CelError) -> None:
    lines = source.split("\n")
    assert any(problem.severity == "error" for problem in error.problems)
    for problem in error.problems:
        assert 1 <= problem.line <= problem.end_line <= len(lines)
        assert 1 <= problem.column <= len(lines[problem.line - 1]) + 1
        assert (problem.line, problem.column) < (problem.end_line, problem.end_column)


@given(st.text(max_size=60))
def test_any_text(source: str) -> None:
    with suppress(cel.CelError):
        cel.compile(source, SAMPLE_DECLARATIONS)


@settings(max_examples=examples(400, 8))
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=25).map("".join))
def test_any_mixture_of_fragments(source: str) -> None:
    for check in (True, False):
        try:
            cel.compile(source, SAMPLE_DECLARATIONS, check=check, expect=cel.BOOL)
        except cel.CelError as error:
            check_problems(source, error)


@settings(max_examples=examples(300, 8))
@given(st.integers(0, 2**32), st.integers(0, 500), st.sampled_from(FRAGMENTS))
def test_any_edited_expression(seed: int, offset: int, fragment: str) -> None:
    source = Expressions(seed).next()
    offset %= len(source)
    for edited in (
        source[:offset] + fragment + source[offset:],
        source[:offset] + fragment + source[offset + 3 :],
        source[:offset],
    ):
        try:
            cel.compile(edited, TYPED)
        except cel.CelError as error:
            check_problems(edited, error)


@settings(max_examples=examples(400, 8))
@given(st.integers(0, 2**32), random_activations)
def test_any_expression_with_any_data(seed: int, values: dict[str, Any]) -> None:
    program = cel.compile(Expressions(seed).next(), UNTYPED, check=False)
    evaluate(program, values)


METHODS = (
    *("x.host()", "x.host_in(y)", "x.private()", "x.inside(y)", "x.like(y)", "x.email_domain()"),
    *("x.getHours(y)", "x.getMilliseconds()", "duration(x)", "timestamp(x)", "string(x)", "int(x)"),
    *("uint(x)", "double(x)", "bytes(x)", "bool(x)", "type(x)", "x.split(y)", "x.join(y)"),
    *(
        "x.replace(y, x)",
        "x.substring(y)",
        "x.indexOf(y)",
        "x.charAt(y)",
        "x.trim()",
        "x.reverse()",
    ),
    *("x in y", "x == y", "x < y", "x + y", "x - y", "x * y", "x / y", "x % y", "-x", "!x", "x[y]"),
    *("x.a", "has(x.a)", "size(x)", "x.matches('a+')", "x ? y : x", "x && y", "x || y", "{x: y}"),
    *("x.all(e, e == y)", "x.map(e, e + y)", "x.transformMap(k, v, v)", "x.exists(i, e, i == y)"),
    *("x.during('09:00-17:00 UTC')", "x == 1", "x < 1.5", "x in ['a', 'b']", "x in [1, 2]"),
)


@settings(max_examples=examples(600, 8))
@given(st.sampled_from(METHODS), anything, anything)
def test_any_function_with_any_data(source: str, x: Any, y: Any) -> None:
    declarations = cel.Declarations({"x": cel.DYN, "y": cel.DYN})
    evaluate(cel.compile(source, declarations), {"x": x, "y": y})


@settings(max_examples=examples(400, 8))
@given(st.integers(0, 2**32))
def test_both_generated_functions_agree(seed: int) -> None:
    """The function that absorbs errors returns what the fast one returns."""
    program = cel.compile(Expressions(seed).next(), UNTYPED, check=False)
    absorbing = program.function.__globals__.get("evaluate_absorbing")
    if absorbing is None:
        return
    values = data(random.Random(seed))  # noqa: S311  # it must repeat itself, not be secret
    other = msgspec.structs.replace(program, function=absorbing)
    first, second = evaluate(program, values), evaluate(other, values)
    assert repr(first) == repr(second)


@pytest.mark.parametrize("value", [10**400, -(10**400), 2**64, math.nan, math.inf])
def test_numbers_beyond_64_bits_compare_or_raise(value: Any) -> None:
    declarations = cel.Declarations({"x": cel.DYN})
    for source in ("x > 10", "x == 1", "x < 1.5", "x in [1, 2]", "x + 1 > 2", "string(x) == ''"):
        evaluate(cel.compile(source, declarations), {"x": value})


def test_evaluation_needs_little_stack() -> None:
    """A few frames, whatever the data."""
    program = cel.compile("x == y", cel.Declarations({"x": cel.DYN, "y": cel.DYN}))
    deep: Any = []
    for _ in range(10_000):
        deep = [deep]

    def descend(frames: int) -> Any:
        return descend(frames - 1) if frames else program(x=deep, y=deep)

    assert descend(sys.getrecursionlimit() - 250) is True
