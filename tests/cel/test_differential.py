"""Other implementations on the same expressions: every difference is explained, or a bug here.

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
from tests.examples import examples

SHORT, LONG = range(examples(1_000, 2)), range(1_000, 21_000)


@dataclass(frozen=True)
class Difference:
    source: str
    ours: EngineResult
    theirs: EngineResult

    def __str__(self) -> str:
        return f"{self.source}\n    ours:   {self.ours}\n    theirs: {self.theirs}"


@dataclass(frozen=True)
class Defect:
    what: str
    specification: str
    applies: Callable[[Difference], bool]


def has(pattern: str) -> Callable[[Difference], bool]:
    compiled = re.compile(pattern)
    return lambda found: compiled.search(found.source) is not None


def fails_with(words: str, pattern: str = "") -> Callable[[Difference], bool]:
    return lambda found: words in found.theirs.error and has(pattern)(found)


def ignoring_order(opinion: EngineResult) -> object:
    """Return the sorted elements of a list, and anything else unchanged."""
    match opinion.value:
        case ("list", list(items)):
            return sorted(map(repr, items))
    return opinion


ORACLE_DEFECTS = (
    Defect(
        "it writes fractions of a second with 3, 6 or 9 digits",
        "unspecified; cel-go writes as many as needed, as we do",
        has(r"string\(.*(duration|timestamp)\("),
    ),
    Defect(
        "a substring cannot end at the end of the string",
        "string_ext/substring: 'ta©o©αT'.substring(7, 7) is '', so the end may be the size",
        fails_with("<end> is greater than <string>.size()", r"substring\(\d, "),
    ),
    Defect(
        "it iterates over maps in its own order",
        "langdef.md: the order of a map's keys is not specified",
        lambda found: ignoring_order(found.ours) == ignoring_order(found.theirs),
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
        "int(timestamp) before 1970 is truncated towards zero",
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


def explain(found: Iterable[Difference], defects: Iterable[Defect]) -> Counter[str]:
    """Count the differences that each defect explains; fail for an unexplained one."""
    counts: Counter[str] = Counter()
    unexplained = []
    for difference in found:
        defect = next((defect for defect in defects if defect.applies(difference)), None)
        if defect is None:
            unexplained.append(difference)
        else:
            counts[defect.what] += 1
    assert not unexplained, "\n".join(map(str, unexplained[:20]))
    return counts


def seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311  # it must repeat itself, not be secret


def against_oracle(seeds: Iterable[int]) -> tuple[list[Difference], Counter[str]]:
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
            found.append(Difference(source, ours, theirs))
    return found, counts


def against_celpy(seeds: Iterable[int]) -> tuple[list[Difference], Counter[str]]:
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
            found.append(Difference(source, ours, theirs))
    return found, counts


def checkers(seeds: Iterable[int]) -> Counter[tuple[bool, bool]]:
    """Compare the checkers: ours accepts what the oracle's does, except operations on null."""
    oracle = Oracle()
    counts: Counter[tuple[bool, bool]] = Counter()
    for seed in seeds:
        source = Expressions(seed, macros2=False).next()
        theirs = oracle.accepts(source)
        program = checked(source)
        counts[theirs, isinstance(program, cel.Program)] += 1
        if isinstance(program, cel.CelError):
            # The oracle accepts null as a timestamp or a duration, which always fails at run time.
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


def test_results_match_the_oracle() -> None:
    found, counts = against_oracle(SHORT)
    explain(found, ORACLE_DEFECTS)
    assert len(found) < len(SHORT) / 50
    assert min(counts.values()) > len(SHORT) / 10, "too few errors, or too few values"


def test_results_match_cel_python() -> None:
    seeds = SHORT[: examples(300, 2)]
    found, counts = against_celpy(seeds)
    explain(found, CELPY_DEFECTS)
    assert len(found) < len(seeds) / 20
    assert min(counts.values()) > len(seeds) / 50


@pytest.mark.slow
def test_expressions_valid_for_the_oracle_are_valid() -> None:
    counts = checkers(SHORT)
    assert counts[True, True] > len(SHORT) / 2
    assert counts[False, False] > len(SHORT) / 20
    assert counts[True, False] < len(SHORT) / 100


@pytest.mark.slow
def test_many_results_match_the_oracle() -> None:
    found, _ = against_oracle(LONG)
    explained = explain(found, ORACLE_DEFECTS)
    assert explained.total() < len(LONG) / 50


@pytest.mark.slow
def test_many_results_match_cel_python() -> None:
    found, _ = against_celpy(LONG)
    explained = explain(found, CELPY_DEFECTS)
    assert explained.total() < len(LONG) / 50


@pytest.mark.slow
def test_many_expressions_valid_for_the_oracle_are_valid() -> None:
    counts = checkers(LONG)
    assert counts[True, True] > len(LONG) / 2
    assert counts[True, False] < len(LONG) / 100


def test_an_unexplained_difference_fails() -> None:
    unexplained = Difference("1 + 1", EngineResult(("int", "2")), EngineResult(("int", "3")))
    with pytest.raises(AssertionError, match=r"1 \+ 1"):
        explain([unexplained], (*ORACLE_DEFECTS, *CELPY_DEFECTS))
