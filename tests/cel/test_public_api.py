"""The public names of `policyguard.cel`: exported, documented, and used as documented."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from policyguard import cel

DOCUMENT = (Path(__file__).parents[2] / "docs" / "cel.md").read_text("utf-8")
API = DOCUMENT.partition("## Python API")[2].partition("\n## ")[0]
EXAMPLE = API.partition("```python\n")[2].partition("```")[0]


def test_every_public_name_is_documented() -> None:
    assert set(re.findall(r"\w+", API)) >= set(cel.__all__)
    assert all(hasattr(cel, name) for name in cel.__all__)


def test_the_example_of_the_module() -> None:
    result = doctest.testmod(cel)
    assert result.attempted == 4
    assert result.failed == 0


def test_the_example_of_the_documentation(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(EXAMPLE, names)  # noqa: S102  # the document is ours
    values = re.findall(r"^(program\S.*?)  # (.+)$", EXAMPLE, re.MULTILINE)
    assert len(values) == 3
    for expression, expected in values:
        assert eval(f"({expression}) == ({expected})", names)  # noqa: S307
    printed = capsys.readouterr().out
    for expected in re.findall(r"^ +print\(.*?\)  # (.+)$", EXAMPLE, re.MULTILINE):
        assert expected in printed


def test_compile_and_call() -> None:
    """`compile(source, declarations, *, check=True)`; other parameters are optional keywords."""
    source, declarations, check, *others = inspect.signature(cel.compile).parameters.values()
    assert (source.name, declarations.name) == ("source", "declarations")
    assert (check.name, check.kind, check.default) == ("check", check.KEYWORD_ONLY, True)
    assert all(other.kind is other.KEYWORD_ONLY and other.default is None for other in others)
    program = cel.compile("x.a > y", {"x": {"a?": "int"}, "y": "dyn"})
    assert isinstance(program, cel.Program)
    assert program(x={"a": 2}, y=1) is True


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("source", ["", "x >", "x.`a", "'", "x" * 10_000])
def test_a_bad_source_is_a_cel_error(source: str, check: bool) -> None:
    with pytest.raises(cel.CelError) as caught:
        cel.compile(source, {"x": "int"}, check=check)
    assert all(isinstance(problem, cel.Problem) for problem in caught.value.problems)


def test_an_undeclared_name_is_a_cel_error_only_with_check() -> None:
    with pytest.raises(cel.CelError):
        cel.compile("y > 1", {"x": "int"})
    program = cel.compile("y > 1", {"x": "int"}, check=False)
    with pytest.raises(cel.CelEvaluationError):
        program()


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("x.missing > 1", "no-such-key"),
        ("x + 1 > 1", "no-such-overload"),
        ("1 / (size(x) - size(x)) > 1", "division-by-zero"),
        ("x.all(k, [1].exists(e, e > 1 || k > 1))", "no-such-overload"),
    ],
)
def test_a_failure_at_run_time_is_a_cel_evaluation_error(source: str, kind: str) -> None:
    with pytest.raises(cel.CelEvaluationError) as caught:
        cel.compile(source, {"x": "dyn"})(x={"a": 1})
    assert caught.value.kind == kind
