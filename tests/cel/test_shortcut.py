"""Conditions that are decided without compiling them, as the compiled ones decide."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard.cel import compile as compile_cel
from policyguard.cel.errors import CelEvaluationError
from policyguard.cel.shortcut import Shortcut, decide, find_shortcut
from policyguard.engines.regex import Regex
from tests.examples import examples

TESTS = {"startsWith": str.startswith, "matches": lambda text, regex: Regex(regex).search(text)}
DECLARED = {"a": "string", "b": "bool", "m": "map(string, dyn)"}
MAP = {"x": "x", "yes": True, "n": 1}

VALUES = [None, 1, True, "x", ["x"], {"x": "x"}]


def evaluate(source: str, **values: Any) -> bool | None:
    def read(name: str) -> Any:
        variable, _, field = name.partition(".")
        return values[variable][field] if field else values[variable]

    return decide(find_shortcut(compile_cel(source, DECLARED).tree), read, TESTS)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("b", True),
        ("!b", False),
        ("has(m.x)", True),
        ("has(m.z) || m.x == 'x'", True),
        ("m.x in ['y', 'z']", False),
        ("a.startsWith('ab') && a.matches('c$')", True),
        ("a.startsWith('z') && m.n > 2", False),
        ("b ? !b : m.n > 2", False),
        ("m.n == 'x'", None),  # only texts are compared
        ("m.n > 2 || b", None),  # the rest is not looked at
        ("b && m.n > 0", None),
        ("m.z == 'x'", None),  # an error, which may be absorbed
        ("a == ''", False),
        ("a.endsWith('c')", None),  # not given
        ("m.exists(k, k == a)", None),
        (".b", None),
        ("m.yes", True),
        ("m", None),
    ],
)
def test_shortcuts(source: str, expected: bool | None) -> None:
    assert evaluate(source, a="abc", b=True, m=MAP) is expected


leaves = st.sampled_from(
    [
        "b",
        "m.yes",
        "has(m.x)",
        "has(m.z)",
        "m.x == a",
        "m.x == 'x'",
        "m.z in ['x', '']",
        "a.startsWith('x')",
        "m.x.matches('x')",
        "m.n > 0",
        "[1].exists(a, a == m.n)",
    ]
)
conditions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds("({} && {})".format, inner, inner),
        st.builds("({} || {})".format, inner, inner),
        st.builds("({} ? {} : {})".format, inner, inner, inner),
        st.builds("!({})".format, inner),
    ),
    max_leaves=6,
)


@settings(max_examples=examples(1000, 60))
@given(
    conditions,
    st.sampled_from(["", "x", "xy"]),
    st.booleans(),
    st.dictionaries(st.sampled_from(["x", "yes", "n", "z"]), st.sampled_from(VALUES)),
)
def test_shortcut_agrees_with_the_compiled_expression(
    source: str, a: str, b: bool, m: dict[str, Any]
) -> None:
    decided = evaluate(source, a=a, b=b, m=m)
    if decided is None:
        return
    try:
        value = compile_cel(source, DECLARED)(a=a, b=b, m=m)
    except CelEvaluationError as error:
        value = error
    assert value is decided


@pytest.mark.parametrize(
    "shortcut",
    [
        [],
        ["&&", None],
        ["is", 1],
        ["has", "a", "__class__"],
        ["in", "__class__", "x"],
        ["call", "eval", "a"],
        ["call", "startsWith", "a", 1],
        ["call", "startsWith", "a"],
        ["call", "matches", "a", "("],
        ["!", ["!"]],
        ["?", None, 1, 2],
    ],
)
def test_forged_shortcut_decides_nothing(shortcut: Shortcut) -> None:
    values = {"a": "abc"}
    assert decide(shortcut, values.__getitem__, TESTS) is None
