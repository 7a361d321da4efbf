"""The same expressions in other implementations: every disagreement is explained, or ours to fix.

An explanation is a `Defect`: what the other implementation does, what the specification says, and
when it applies. It is judged by what the two say and by the source, never by a list of sources.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pytest

from policyguard import cel
from tests.cel.expressions import Expressions, data
from tests.cel.reference_engines import TYPED, UNTYPED, CelPy, EngineResult, Oracle, evaluate

SHORT, LONG = range(1_000), range(1_000, 21_000)


@dataclass(frozen=True)
class Disagreement:
    source: str
    ours: EngineResult
    theirs: EngineResult

    def __str__(self) -> str:
        return f"{self.source}\n    ours:   {self.ours}\n    theirs: {self.theirs}"


@dataclass(frozen=True)
class Defect:
    what: str
    specification: str
    applies: Callable[[Disagreement], bool]


def has(pattern: str) -> Callable[[Disagreement], bool]:
    compiled = re.compile(pattern)
    return lambda found: compiled.search(found.source) is not None


def theirs_fails(words: str, pattern: str = "") -> Callable[[Disagreement], bool]:
    return lambda found: words in found.theirs.error and has(pattern)(found)


def in_any_order(opinion: EngineResult) -> object:
    """A list as what it holds; anything else is like nothing but itself."""
    match opinion.value:
        case ("list", list(items)):
            return sorted(map(repr, items))
    return opinion


ORACLE_DEFECTS = (
    Defect(
        "it writes fractions of a second with 3, 6 or 9 digits",
        "langdef.md does not say how many; cel-go writes as many as are needed, and so do we",
        has(r"string\(.*(duration|timestamp)\("),
    ),
    Defect(
        "a substring may not end where the string ends",
        "string_ext/substring: 'ta©o©αT'.substring(7, 7) is '', so the end may be the size",
        theirs_fails("<end> is greater than <string>.size()", r"substring\(\d, "),
    ),
    Defect(
        "it goes over maps in an order of its own",
        "langdef.md: the order of a map's keys is not specified",
        lambda found: in_any_order(found.ours) == in_any_order(found.theirs),
    ),
    Defect(
        "int(true) is 1",
        "langdef.md lists no int(bool)",
        lambda found: "`int` is not defined for bool" in found.ours.error,
    ),
)
CELPY_DEFECTS = (
    Defect(
        "the sum of two strings has no `contains`",
        "langdef.md: string + string is a string",
        has(r"\)\.contains\("),
    ),
    Defect(
        "division of doubles by zero gives an infinity of any sign, and never NaN",
        "langdef.md: doubles follow IEEE 754",
        has("/"),
    ),
    Defect(
        "int(timestamp) before 1970 is cut towards zero",
        "conversions: seconds since the epoch; cel-go and cel-cpp give the second it lies in",
        has(r"int\(.*timestamp\("),
    ),
    Defect(
        "the smallest integer modulo -1 is 0",
        "cel-go and cel-cpp: overflow, as its quotient",
        lambda found: found.ours.error.startswith("overflow") and "%" in found.source,
    ),
    Defect(
        "an error inside a list or an argument crashes it",
        "langdef.md: it is the value of the expression",
        lambda found: found.theirs.value is not None and found.theirs.value[0] == "crash",
    ),
)


def explain(found: Iterable[Disagreement], defects: Iterable[Defect]) -> Counter[str]:
    """How often each defect explains a disagreement; what none explains fails the test."""
    counts: Counter[str] = Counter()
    unexplained = []
    for disagreement in found:
        defect = next((defect for defect in defects if defect.applies(disagreement)), None)
        if defect is None:
            unexplained.append(disagreement)
        else:
            counts[defect.what] += 1
    assert not unexplained, "\n".join(map(str, unexplained[:20]))
    return counts


def seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311  # it must repeat itself, not be secret


def against_oracle(seeds: Iterable[int]) -> tuple[list[Disagreement], Counter[str]]:
    oracle = Oracle()
    found = []
    counts: Counter[str] = Counter()
    for seed in seeds:
        source = Expressions(seed, macros2=False).next()
        values = data(seeded(seed))
        ours = evaluate(cel.compile(source, UNTYPED, check=False), values)
        theirs = oracle.evaluate(source, values)
        counts["errors" if theirs.value is None else "values"] += 1
        if not ours.is_same_as(theirs):
            found.append(Disagreement(source, ours, theirs))
    return found, counts


def against_celpy(seeds: Iterable[int]) -> tuple[list[Disagreement], Counter[str]]:
    celpy = CelPy()
    found = []
    counts: Counter[str] = Counter()
    for seed in seeds:
        source = Expressions(seed, macros2=False, extensions=False, plain=True).next()
        values = data(seeded(seed))
        ours = evaluate(cel.compile(source, UNTYPED, check=False), values)
        theirs = celpy.evaluate(source, values)
        counts["errors" if theirs.value is None else "values"] += 1
        if not ours.is_same_as(theirs):
            found.append(Disagreement(source, ours, theirs))
    return found, counts


def checkers(seeds: Iterable[int]) -> Counter[tuple[bool, bool]]:
    """Whatever the oracle's checker accepts we accept, but for operations on null."""
    oracle = Oracle()
    counts: Counter[tuple[bool, bool]] = Counter()
    for seed in seeds:
        source = Expressions(seed, macros2=False).next()
        theirs = oracle.accepts(source)
        program = checked(source)
        counts[theirs, isinstance(program, cel.Program)] += 1
        if isinstance(program, cel.CelError):
            # The oracle takes null for a timestamp or a duration wherever one is asked for. At run
            # time that always fails.
            about_null = all("null" in problem.message for problem in program.problems)
            assert about_null or not theirs, f"{source}\n    {program}"
            continue
        values = data(seeded(seed))
        typed = evaluate(program, values)
        untyped = evaluate(cel.compile(source, UNTYPED, check=False), values)
        assert typed.is_same_as(untyped), f"{source}: {typed} typed, {untyped} untyped"
    return counts


def checked(source: str) -> cel.Program | cel.CelError:
    try:
        return cel.compile(source, TYPED)
    except cel.CelError as error:
        return error


def test_values_are_those_of_the_oracle() -> None:
    found, counts = against_oracle(SHORT)
    explain(found, ORACLE_DEFECTS)
    assert len(found) < len(SHORT) / 50
    assert min(counts.values()) > len(SHORT) / 10, "too few errors, or too few values"


def test_values_are_those_of_cel_python() -> None:
    seeds = SHORT[:300]
    found, counts = against_celpy(seeds)
    explain(found, CELPY_DEFECTS)
    assert len(found) < len(seeds) / 20
    assert min(counts.values()) > len(seeds) / 50


def test_what_the_oracle_accepts_is_accepted() -> None:
    counts = checkers(SHORT)
    assert counts[True, True] > len(SHORT) / 2
    assert counts[False, False] > len(SHORT) / 20
    assert counts[True, False] < len(SHORT) / 100


@pytest.mark.slow
def test_values_are_those_of_the_oracle_on_many_expressions() -> None:
    found, _ = against_oracle(LONG)
    explained = explain(found, ORACLE_DEFECTS)
    assert explained.total() < len(LONG) / 50


@pytest.mark.slow
def test_values_are_those_of_cel_python_on_many_expressions() -> None:
    found, _ = against_celpy(LONG)
    explained = explain(found, CELPY_DEFECTS)
    assert explained.total() < len(LONG) / 50


@pytest.mark.slow
def test_what_the_oracle_accepts_is_accepted_on_many() -> None:
    counts = checkers(LONG)
    assert counts[True, True] > len(LONG) / 2
    assert counts[True, False] < len(LONG) / 100


def test_a_disagreement_that_nothing_explains_fails() -> None:
    strange = Disagreement("1 + 1", EngineResult(("int", "2")), EngineResult(("int", "3")))
    with pytest.raises(AssertionError, match=r"1 \+ 1"):
        explain([strange], (*ORACLE_DEFECTS, *CELPY_DEFECTS))
