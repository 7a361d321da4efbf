"""Many conditions in one function: it returns every one that is not false."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyguard import cel
from policyguard.cel.program import compile_prefilter
from policyguard.cel.runtime.cost_limits import COST_LIMITS
from tests.cel.expressions import VARIABLES, Expressions, data
from tests.cel.test_fuzz import random_activations
from tests.examples import examples

DECLARATIONS = cel.Declarations(
    {**dict.fromkeys(VARIABLES, cel.DYN), "call": cel.DYN},
    attributes={
        **{name: f"nested.{name}" if number % 2 else name for number, name in enumerate(VARIABLES)},
        "call": "call",
        "call.args": "nested.args",
    },
)


def make_activation(values: dict[str, Any], **args: Any) -> SimpleNamespace:
    call = {"tool": "t", "args": args}
    return SimpleNamespace(**values, call=call, nested=SimpleNamespace(**values, args=args))


def evaluate(program: cel.Program, activation: SimpleNamespace) -> Any:
    try:
        return program.function(activation)
    except cel.CelEvaluationError as error:
        return error


def run_prefilter(programs: list[cel.Program], activation: SimpleNamespace) -> tuple[int, ...]:
    prefilter = compile_prefilter(
        [(program.source, program.tree) for program in programs], DECLARATIONS
    )
    return prefilter(activation)


@settings(max_examples=examples(300, 8))
@given(st.lists(st.integers(0, 2**32), min_size=1, max_size=8), random_activations, st.randoms())
def test_skipped_conditions_are_false(
    seeds: list[int], random_values: dict[str, Any], random: Random
) -> None:
    programs = []
    for seed in seeds:
        with suppress(cel.CelError):
            programs.append(cel.compile(Expressions(seed).next(), DECLARATIONS, expect=cel.BOOL))
    for values in (random_values, data(random)):
        activation = make_activation(values)
        selected = run_prefilter(programs, activation)
        assert sorted(set(selected)) == list(selected)
        for number, program in enumerate(programs):
            if number not in selected:
                assert evaluate(program, activation) is False, program.source
            elif "evaluate_absorbing" not in program.code:
                assert evaluate(program, activation) is not False, program.source


ARGS = {"n": 3, "long": list(range(COST_LIMITS.max_iterations)), "text": "abc"}


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        (["call.args.n == 3", "call.args.n == 4", "true", "false"], (0, 2)),
        (["call.args.n == 4", "call.args.text == 'x'"], ()),
        (["call.args.m == 4", "call.args.n == 4"], (0,)),
        (["call.args.m == 4 && false", "false && call.args.m == 4"], (0,)),
        (["call.args.n", "call.args.n == 4"], (0,)),
        (["call.args.text.exists(x, x == 'a')", "false"], (0,)),
        # Each condition has its own iteration limit …
        (["call.args.long.exists(x, x < 0)", "call.args.long.exists(x, x < 0)"], ()),
        # … and no more.
        (["(call.args.long + [1]).exists(x, x < 0) && false", "false"], (0,)),
        # A name in one condition does not affect the next.
        (["call.args.long.filter(x, x < 0) == [1]", "call.args.text in ['x', 'y']"], ()),
        (["[0].exists(names, names > 1)", "call.args.text in ['x', 'y']", "call.tool == 'u'"], ()),
        (["[0].exists(kept, kept > 1)", "[0].exists(activation, activation > 1)", "true"], (2,)),
    ],
)
def test_which_conditions_are_kept(conditions: list[str], expected: tuple[int, ...]) -> None:
    programs = [cel.compile(source, DECLARATIONS, expect=cel.BOOL) for source in conditions]
    assert run_prefilter(programs, make_activation({}, **ARGS)) == expected


def test_a_tree_that_does_not_compile() -> None:
    program = cel.compile("1 + nowhere", {}, check=False)
    with pytest.raises(cel.CelError, match="nowhere"):
        compile_prefilter([(program.source, program.tree)], DECLARATIONS)
