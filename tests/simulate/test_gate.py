"""`--fail-on`: CEL over the report."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from policyguard.report.findings.diagnostics import render_text
from policyguard.report.replay.figures import (
    BaselineFigures,
    DirectionFigures,
    Figures,
    Harm,
    PolicyFigures,
    RuleFigures,
    Share,
)
from policyguard.simulate.gate import Gate, GateError

POLICY = PolicyFigures("p", "0" * 64, "enforce")


def _figures() -> Figures:
    return Figures(
        policy=POLICY,
        harm=Harm(succeeded=30, refused=1, rate=1 / 30, ci95=(0.006, 0.167)),
        rules=[RuleFigures("rules/a", "block", hits=3, sessions=2, rate=0.5, ci95=(0.1, 0.9))],
        baseline=BaselineFigures(
            POLICY, newly_refused=DirectionFigures(sessions=Share(2, 4), calls=7)
        ),
    )


@pytest.mark.parametrize(
    ("expression", "held"),
    [
        ("harm.rate > 0.01", True),
        ("harm.rate > 0.05", False),
        ("harm.ci95[0] > 0.005", True),
        ("harm.refused > 0 && harm.succeeded >= 30", True),
        ("rules.exists(r, r.id == 'rules/a' && r.rate > 0.4)", True),
        ("rules.exists(r, r.effect == 'halt')", False),
        ("effects.block + effects.halt > 0", False),
        ("traces.errors.inferred > 0", False),
        ("baseline.newly_refused.sessions.count > 1", True),
        ("baseline.newly_refused.calls > 7", False),
        ("partial", False),
        ("!('tau2' in traces.formats)", True),
    ],
)
def test_conditions_are_evaluated(expression: str, held: bool) -> None:
    figures = _figures()
    assert Gate([expression], has_baseline=True).evaluate(figures) is held
    (gate,) = figures.gates
    assert (gate.expression, gate.triggered, gate.error) == (expression, held, None)


@pytest.mark.parametrize(
    ("expressions", "held"),
    [
        ([], False),
        (["partial", "harm.refused > 9"], False),
        (["partial", "harm.refused > 0"], True),
        (["harm.refused > 0", "partial"], True),
        (["partial", "catch.rate > 0.5"], True),
    ],
)
def test_one_condition_is_enough(expressions: list[str], held: bool) -> None:
    assert Gate(expressions, has_baseline=True).evaluate(_figures()) is held


def test_the_report_shows_the_values_read() -> None:
    figures = _figures()
    assert Gate(["harm.rate > 0.01 || rules.size() > 9"], has_baseline=True).evaluate(figures)
    assert figures.gates[0].values == {"harm.rate": "0.03333", "rules": "1 entries"}


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("catch.rate > 0.5", "`catch.rate` is unknown"),
        ("sessions[0].refused > 0", "index 0 is out of range for a list of 0"),
        ("1 / harm.unknown > 0", "division by zero"),
    ],
)
def test_an_undecidable_condition_counts_as_true(expression: str, says: str) -> None:
    figures = _figures()
    assert Gate([expression], has_baseline=True).evaluate(figures)
    (gate,) = figures.gates
    assert gate.triggered is None
    assert says in (gate.error or "")


@pytest.mark.parametrize(
    ("expression", "shows"),
    [
        ("harm.rat > 0.01", ["`Harm` has no field `rat`", "     ^^^", "did you mean `rate`?"]),
        ("harn.rate > 0.01", ["unknown variable `harn`", "^^^^", "did you mean `harm`?"]),
        (
            "rules.exists(r, r.idd == '')",
            ["`RuleFigures` has no field `idd`", "did you mean `id`?"],
        ),
        ("effects.blok > 0", ["`EffectFigures` has no field `blok`", "did you mean `block`?"]),
        ("sessions.exists(s, s.baseline.change == 'newly')", ["unknown value `newly`"]),
        ("harm.rate", ["must be bool, but is double"]),
        ("harm.rate == 'much'", ["never equal"]),
        ("harm.rate > ", ["syntax"]),
        ("elapsed_s > 3.0", ["unknown variable `elapsed_s`"]),
    ],
)
def test_a_mistake_is_an_error_with_its_position(expression: str, shows: list[str]) -> None:
    with pytest.raises(GateError) as wrong:
        Gate([expression], has_baseline=True)
    report = render_text(wrong.value.diagnostics)
    for text in ("error[cel/", "--> --fail-on:1:", *shows):
        assert text in report


def test_all_mistakes_are_reported_together() -> None:
    with pytest.raises(GateError) as wrong:
        Gate(["harm.rat > 0", "true", "catch.rat > 0"], has_baseline=True)
    assert len(wrong.value.diagnostics) == 2


def test_the_baseline_can_be_read_only_where_there_is_one() -> None:
    with pytest.raises(GateError) as wrong:
        Gate(["baseline.earlier > 0"], has_baseline=False)
    (found,) = wrong.value.diagnostics
    assert "`baseline`" in found.message
    assert found.help == "pass the policy to compare with: --baseline FILE_OR_PACK"


def test_every_field_of_the_report_can_be_read() -> None:
    """The declarations are made from the report's own types: none of them is left out."""
    for field in msgspec.structs.fields(Figures):
        if field.encode_name not in ("gates", "created_at", "elapsed_s"):
            Gate([f"{field.encode_name} == {field.encode_name}"], has_baseline=True)


def test_the_expressions_in_the_docs_can_be_used() -> None:
    page = (Path(__file__).parents[2] / "docs" / "simulating.md").read_text()
    expressions = re.findall(r"^\| `([^`]+[<>=][^`]+)` \|", page, re.MULTILINE)
    expressions += re.findall(r"--fail-on '([^']+)'", page)
    assert len(expressions) >= 10
    Gate(expressions, has_baseline=True)
