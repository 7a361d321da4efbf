"""Functions for policies on hostile texts: a value of their type, or an error that counts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard import cel
from policyguard.cel.functions.function import Function
from policyguard.compiler import compile_policy
from policyguard.compiler.build.cel_env import CelEnvironment
from tests.examples import examples

FRAGMENTS = (
    *("http", "https", "file", ":", "//", "/", "\\", "@", "?", "#", "%", "%2e", "%252f", "..", "."),
    *(
        "127.0.0.1",
        "0x7f",
        "017700000001",
        "2130706433",
        "[::1]",
        "[",
        "]",
        "::",
        "localhost",
        "xn--",
    ),
    *(
        "a",
        "b.org",
        "*",
        "**",
        "~",
        "~root",
        "$HOME",
        "${",
        "$(",
        "`",
        "'",
        '"',
        ";",
        "|",
        "&&",
        ">",
    ),
    *(
        "rm",
        " -rf ",
        "sh -c ",
        "powershell ",
        "SELECT ",
        "DELETE FROM ",
        "--",
        "/*",
        "*/",
        "{{",
        "<<E",
    ),
    *(
        " ",
        "\t",
        "\n",
        "\r",
        "\x00",
        "\x1b",
        "\u200b",
        "\u00a0",
        "\u202e",
        "\ud800",
        "ß",
        "。",
        "１",
        "🙂",
    ),
    *(",", "<", "x@y.org", "mailto:", ":0", ":99999", ":-1", "a" * 300),
)
TEXTS = st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join) | st.text(max_size=20)
EXPRESSIONS = {
    "x.host()": str,
    "x.host_in(['b.org', '*.b.org'])": bool,
    "x.port()": int,
    "x.scheme()": str,
    "x.private()": bool,
    "x.email_domain()": str,
    "x.inside('/srv')": bool,
    "x.inside(y)": bool,
    "x.like('/srv/**')": bool,
    "x.like(y)": bool,
    "x.trim()": str,
    "x.lowerAscii()": str,
    "x.split(',')": list,
    "x.split(y)": list,
    "x.runs('rm -r')": bool,
    "x.only_runs(['ls'])": bool,
    "x.paths('rm -r')": list,
    "x.opaque()": bool,
    "x.read_only()": bool,
    "x.sql()": list,
    "x.sql('mysql')": list,
}
TOTAL = frozenset(
    ("x.trim()", "x.lowerAscii()", "x.split(',')", "x.runs('rm -r')", "x.only_runs(['ls'])")
) | {"x.opaque()", "x.read_only()", "x.paths('rm -r')"}
"""Those that have a value for every text."""


def _functions() -> tuple[Function, ...]:
    compiled = compile_policy("core")
    return tuple(CelEnvironment(compiled.policy, None).declarations("before_call").functions)


FUNCTIONS = _functions()


@pytest.mark.parametrize("expression", EXPRESSIONS)
@settings(max_examples=examples(120, 8))
@given(x=TEXTS, y=TEXTS)
def test_a_value_or_an_error(expression: str, x: str, y: str) -> None:
    names = {"x": cel.STRING, "y": cel.STRING}
    program = _compile(expression, names)
    try:
        value: Any = program(x=x, y=y) if "y" in program.parameters else program(x=x)
    except cel.CelEvaluationError:
        assert expression not in TOTAL
    else:
        assert type(value) is EXPRESSIONS[expression]


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("value", [None, True, 1, 1.5, b"x", ["a"], {"a": "b"}])
def test_other_types_are_errors(expression: str, value: Any) -> None:
    program = _compile(expression, {"x": cel.DYN, "y": cel.DYN})
    with pytest.raises(cel.CelEvaluationError):
        program(**dict.fromkeys(program.parameters, value))


_PROGRAMS: dict[tuple[str, bool], cel.Program] = {}


def _compile(expression: str, names: dict[str, cel.Type]) -> cel.Program:
    key = expression, cel.DYN in names.values()
    if key not in _PROGRAMS:
        declarations = cel.Declarations(names, FUNCTIONS)
        _PROGRAMS[key] = cel.compile(expression, declarations)
    return _PROGRAMS[key]
