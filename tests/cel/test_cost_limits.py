"""No expression and no data costs more than the limits, and exceeding one is never hidden."""

from __future__ import annotations

from typing import Any

import pytest

from policyguard import cel
from policyguard.cel import COST_LIMITS

DYN = cel.Declarations({"x": cel.DYN, "y": cel.DYN})


def problems(source: str) -> list[tuple[str, str]]:
    with pytest.raises(cel.CelError) as caught:
        cel.compile(source, DYN)
    return [(problem.code, problem.message) for problem in caught.value.problems]


def limit(source: str, x: Any = None, y: Any = None) -> str:
    with pytest.raises(cel.CelLimitError) as caught:
        cel.compile(source, DYN)(x=x, y=y)
    return caught.value.kind


class TestAtCompileTime:
    def test_source(self) -> None:
        cel.compile("'" + "a" * (COST_LIMITS.max_source_length - 2) + "'", DYN)
        assert problems("'" + "a" * (COST_LIMITS.max_source_length - 1) + "'") == [
            ("too-long", "the expression has 8193 characters; 8192 are allowed")
        ]

    @pytest.mark.parametrize(
        ("start", "step", "end"),
        [
            ("x", ".a", ""),
            ("x", " + x", ""),
            ("x", "[0]", ""),
            ("x", ".trim()", ""),
            ("x", ".filter(e, true)", ""),
            ("", "[", "x"),
            ("", "size(", "x"),
            ("", "!-", "x"),
            ("", "x ? 1 : ", "x"),
            ("", "x && (x || ", "x"),
        ],
    )
    def test_depth(self, start: str, step: str, end: str) -> None:
        def nested(times: int) -> str:
            closing = {"[": "]", "(": ")"}
            open_ = [closing[letter] for letter in step * times if letter in closing]
            balanced = step.count("(") + step.count("[") == step.count(")") + step.count("]")
            return start + step * times + end + ("" if balanced else "".join(open_))

        per_step = 2 if step in ("!-", "x && (x || ") else 1
        deepest = (COST_LIMITS.max_depth - 1) // per_step
        cel.compile(nested(deepest), DYN, check=False)
        found = problems(nested(deepest + 1))
        assert ("too-deep", "the expression is nested deeper than 32 levels") in found

    def test_nothing_recurses_with_the_source(self) -> None:
        for source in ("x" + ".a" * 4000, "-!" * 4000 + "x", "[" * 4000 + "]" * 4000):
            assert [code for code, _ in problems(source)].count("too-deep") == 1
        for source in ("x && " * 1600 + "x", "(" * 4000 + "x" + ")" * 4000):
            cel.compile(source, DYN)

    @pytest.mark.parametrize(
        ("before", "after", "per_step"),
        [
            ("x < int(string(", "))", 3),
            ("string(", " in x)", 2),
            ("x.contains(string(", "))", 2),
            ("string(", " + 'a')", 2),
            ("(1.5 < ", ")", 1),
            ("(x in [", "])", 2),
            ("size(x == ", ")", 2),
            ("!has(x[", "].a)", 4),
            ("(x || x && ", ")", 2),
            ("(x ? ", " : x)", 1),
            ("[1].map(e, e)[", "]", 2),
        ],
    )
    def test_code_grows_with_the_source_and_not_faster(
        self, before: str, after: str, per_step: int
    ) -> None:
        def size(steps: int) -> int:
            source = before * steps + "x" + after * steps
            return len(cel.compile(source, DYN, check=False).code)

        deepest = (COST_LIMITS.max_depth - 2) // per_step
        per_level = size(3) - size(2)
        # Indentation adds four characters per line and level.
        assert size(deepest) < size(2) + deepest * per_level * 3

    def test_macro_nesting(self) -> None:
        def nested(times: int) -> str:
            opening = "".join(f"x.all(e{number}, " for number in range(times))
            return opening + "true" + ")" * times

        cel.compile(nested(COST_LIMITS.max_macro_nesting), DYN)
        message = "macros are nested deeper than 4 levels"
        assert problems(nested(COST_LIMITS.max_macro_nesting + 1)) == [("too-deep", message)]

    def test_chained_macros_are_not_nested(self) -> None:
        cel.compile("x" + ".filter(e, e)" * 20, DYN)

    def test_blocks_that_python_cannot_nest(self) -> None:
        """Every level needs its own `try`; CPython allows twenty."""
        cel.compile("!(x && " * 15 + "x" + ")" * 15, DYN)
        body = "!(x && " * 9 + "x" + ")" * 9
        for _ in range(4):
            body = f"x.all(e, !(x && {body}))"
        assert ("too-deep", "operators are nested too deeply") in problems(body)

    def test_blocks_are_counted_up_to_the_limit(self) -> None:
        def nested(times: int) -> str:
            return "x.all(e, " * 2 + "!(x && " * times + "x" + ")" * (times + 2)

        cel.compile(nested(13), DYN)
        assert problems(nested(14)) == [("too-deep", "operators are nested too deeply")]


class TestAtRunTime:
    def test_iterations(self) -> None:
        just = [0] * COST_LIMITS.max_iterations
        assert cel.compile("x.all(e, e == 0)", DYN)(x=just) is True
        assert limit("x.all(e, e == 0)", [*just, 0]) == "limit-iterations"
        assert limit("x.exists(i, e, false)", [*just, 0]) == "limit-iterations"
        assert limit("x.all(k, v, true)", dict.fromkeys(range(COST_LIMITS.max_iterations + 1)))

    def test_iterations_of_all_macros_together(self) -> None:
        half = [0] * 101
        assert limit("x.all(a, x.all(b, true))", half) == "limit-iterations"
        assert cel.compile("x.all(a, x.all(b, true))", DYN)(x=half[:99]) is True
        filler = [0] * (COST_LIMITS.max_iterations // 2 + 1)
        assert limit("x.all(a, true) && x.all(b, true)", filler) == "limit-iterations"

    def test_a_macro_counts_its_list_in_full(self) -> None:
        """So the limit does not depend on the position of the first match."""
        long = [1] + [0] * COST_LIMITS.max_iterations
        assert limit("x.exists(e, e == 1)", long) == "limit-iterations"

    @pytest.mark.parametrize(
        "source",
        [
            "{} || true",
            "true && ({} || true)",
            "{} && false",
            "x.no || {} || true",
            "x.no && {} && false",
            "!({} && false)",
            "({} ? true : true) || true",
            "[1].exists(o, {} || o == 1)",
            "[1, 2].all(o, {} && false)",
            "[1].map(o, {})[0] || true",
            "[{}].size() == 1 || true",
        ],
    )
    def test_no_operator_absorbs_it(self, source: str) -> None:
        loop = "y.all(e, e == 1)"
        values = [1] * (COST_LIMITS.max_iterations + 1)
        assert limit(source.replace("{}", loop), {}, values) == "limit-iterations"

    @pytest.mark.parametrize(
        ("body", "data"),
        [
            ("e in y", ["a"] * 5000),
            pytest.param("[e] in y", [["a"]] * 5000, marks=pytest.mark.slow),
            ("y in [e, y]", [1] * 5000),
            pytest.param("y == y", [[1]] * 5000, marks=pytest.mark.slow),
            ("[y] != [y]", {"a": [1] * 5000}),
            ("size(y + [e]) == 0", [1] * 5000),
            ("size(y + e) == 0", "a" * 320_000),
            ("size(y + 'b') == 0", "a" * 320_000),
            ("y.contains('b')", "a" * 320_000),
            ("contained(y, e)", "a" * 320_000),
            ("y.matches('b')", "a" * 320_000),
            ("y.indexOf(e) == 0", "a" * 320_000),
            ("y.replace('a', e) == e", "a" * 320_000),
            ("size('aaaa'.replace('a', y[0])) == 0", ["b" * 80_000]),
            ("size(y.split(',')) == 0", "," * 5000),
            ("y.join() == e", ["a"] * 5000),
            ("size(bytes(y)) == 0", "a" * 320_000),
            ("[e].exists(f, f in y)", [0] * 5000),
            ("[y].exists(f, e in f)", ["b"] * 5000),
        ],
    )
    def test_reads_inside_macros(self, body: str, data: Any) -> None:
        """A thousand elements, each of which reads five thousand others."""
        contained = cel.Function(
            "contained", None, (cel.STRING, cel.STRING), cel.BOOL, lambda text, part: part in text
        )
        declared = cel.Declarations(
            {"x": cel.DYN, "y": cel.DYN}, functions=(*cel.STANDARD, contained)
        )
        program = cel.compile(f"x.exists(e, {body} && false)", declared)
        assert program(x=["e"], y=data) is False
        with pytest.raises(cel.CelLimitError) as caught:
            program(x=["e"] * 1000, y=data)
        assert caught.value.kind == "limit-read"

    @pytest.mark.parametrize(
        ("body", "data"),
        [
            ("y.startsWith('b')", "a" * 320_000),
            ("y.endsWith('b')", "a" * 320_000),
            ("y.charAt(0) == 'b'", "a" * 320_000),
            ("dyn(y) == 0", "a" * 320_000),
            ("type(y) == int", "a" * 320_000),
            ("size(y) == 0", "a" * 320_000),
            ("y.size() == 0", "a" * 320_000),
            ("size(y) == 0", b"a" * 320_000),
            ("y.size() == 0", dict.fromkeys(range(5000), 1)),
            ("size(y) == 0", [1] * 5000),
        ],
    )
    def test_a_cost_that_does_not_grow_with_the_data_is_not_counted(
        self, body: str, data: Any
    ) -> None:
        assert cel.compile(f"x.exists(e, {body})", DYN)(x=["e"] * 1000, y=data) is False

    def test_reads_of_all_macros_together(self) -> None:
        filler = [0] * (COST_LIMITS.max_read_elements // 1000)
        assert cel.compile("x.exists(e, e in y)", DYN)(x=[1] * 1000, y=filler) is False
        assert limit("x.exists(e, e in y)", [1] * 1000, [*filler, 0]) == "limit-read"
        assert limit("x.exists(e, e in y)", [1] * 1001, filler) == "limit-read"
        half = [1] * 501
        assert limit("x.exists(e, e in y) || x.exists(e, e in y)", half, filler) == "limit-read"
        assert limit("x.exists(e, e in y) || true", [1] * 1001, filler) == "limit-read"

    def test_nothing_is_counted_outside_macros(self) -> None:
        long = "a" * (COST_LIMITS.characters_per_element * COST_LIMITS.max_read_elements + 1000)
        assert cel.compile("y.contains('b') || x.filter(e, true) == x", DYN)(x=[1], y=long)
        assert "eter" not in cel.compile("x in y || y.contains(x) || x + y == y", DYN).code

    def test_strings(self) -> None:
        """Doubling would build 2 ** 28 characters."""
        doubled = "[x]" + ".map(s, s + s)" * 28
        assert limit(doubled, "ab") == "limit-string"
        assert limit(doubled, b"ab") == "limit-string"
        assert limit("x.replace('a', x)", "a" * 2000) == "limit-string"
        assert limit("x.join(x[0])", ["a" * 2000] * 2000) == "limit-string"
        long = "a" * COST_LIMITS.max_string_length
        assert cel.compile("x + '!'", DYN)(x=long) == long + "!", "a literal grows nothing"
        assert limit("x + y", long, "b") == "limit-string"

    def test_lists(self) -> None:
        assert limit("[x]" + ".map(l, l + l)" * 28, [1]) == "limit-elements"
        assert limit("x.split('')", "a" * (COST_LIMITS.max_list_length + 1)) == "limit-elements"
        assert limit("x.split(',')", "," * COST_LIMITS.max_list_length) == "limit-elements"
        assert len(cel.compile("x.split(',', 3)", DYN)(x="," * COST_LIMITS.max_list_length)) == 3

    def test_comparisons(self) -> None:
        """A list of lists of the same list: small in memory, 2 ** 40 elements to compare."""
        small: Any = ["a", "b"]
        for _ in range(40):
            small = [small, small]
        other: Any = ["a", "b"]
        for _ in range(40):
            other = [other, other]
        assert limit("x == y", small, other) == "limit-compared"
        assert limit("x in [y]", small, other) == "limit-compared"
        assert limit("x != y || true", small, other) == "limit-compared"

    def test_cyclic_data(self) -> None:
        circle: Any = [1]
        circle.append(circle)
        other: Any = [1]
        other.append(other)
        mapping: Any = {}
        mapping["a"] = mapping
        same: Any = {}
        same["a"] = same
        assert limit("x == y", circle, other) == "limit-compared"
        assert limit("x == y", mapping, same) == "limit-compared"
        assert limit("x in y", circle, [other]) == "limit-compared"
        assert cel.compile("x[1][1][0] == 1", DYN)(x=circle) is True

    def test_deep_data_does_not_recurse(self) -> None:
        deep: Any = 0
        other: Any = 1
        for _ in range(50_000):
            deep, other = [deep], [other]
        assert cel.compile("x == y", DYN)(x=deep, y=other) is False
        assert cel.compile("x == y", DYN)(x=deep, y=deep) is True

    def test_texts_that_python_converts_slowly(self) -> None:
        for source in ("int(x) == 1", "double(x) == 1.0", "duration(x) == y", "timestamp(x) == y"):
            with pytest.raises(cel.CelEvaluationError):
                cel.compile(source, DYN)(x="9" * 1_000_000, y=1)
        with pytest.raises(cel.CelEvaluationError):
            cel.compile("duration(x) == y", DYN)(x="1h" * 500_000, y=1)


def test_each_limit_is_documented() -> None:
    from pathlib import Path

    text = (Path(__file__).parents[2] / "docs" / "cel.md").read_text("utf-8")
    for value in (
        COST_LIMITS.max_depth,
        COST_LIMITS.max_macro_nesting,
        COST_LIMITS.max_iterations,
        COST_LIMITS.max_compared_elements,
    ):
        assert f"{value:,}" in text
    assert "8 KiB" in text
    assert COST_LIMITS.max_source_length == 8 * 1024
    assert "1 Mi" in text
    assert COST_LIMITS.max_string_length == 1024 * 1024
    assert f"{COST_LIMITS.max_list_length:,}" in text
    assert f"{COST_LIMITS.max_read_elements:,}" in text
    assert f"{COST_LIMITS.characters_per_element} code points" in text
