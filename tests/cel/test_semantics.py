"""The semantics that policies depend on, and those that differ from Python.

The specification's own tests and other implementations cover the whole language; these tests are
for looking things up.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from policyguard import cel
from policyguard.cel import Duration, Timestamp, Uint

NAMES = ("x", "y", "z")
UNTYPED = cel.Declarations(dict.fromkeys(NAMES, cel.DYN))
MISSING = object()


def evaluate(source: str, **values: Any) -> Any:
    return cel.compile(source, UNTYPED).raw(**{name: values.get(name, {}) for name in NAMES})


def error(source: str, **values: Any) -> str:
    """Return the kind of the error that `source` raises."""
    with pytest.raises(cel.CelEvaluationError) as caught:
        evaluate(source, **values)
    assert not isinstance(caught.value, cel.CelLimitError)
    assert str(caught.value)
    return caught.value.kind


class TestEquality:
    @pytest.mark.parametrize(
        ("x", "y"),
        [
            (1, 1.0),
            (Uint(1), 1),
            (0.0, -0.0),
            ([1, [2.0]], [1.0, [2]]),
            ((1, 2), [1, 2]),
            ({"a": 1, "b": 2}, {"b": 2.0, "a": 1}),
            ({1: "a"}, {1.0: "a"}),
            (None, None),
            (b"a", b"a"),
            (Duration(5), Duration(5)),
            (2**63 - 1, 2.0**63),
        ],
    )
    def test_equal(self, x: Any, y: Any) -> None:
        assert evaluate("x == y", x=x, y=y) is True
        assert evaluate("x != y", x=x, y=y) is False
        assert evaluate("x in [y]", x=x, y=y) is True
        assert evaluate("[x] == [y]", x=x, y=y) is True

    @pytest.mark.parametrize(
        ("x", "y"),
        [
            (True, 1),
            (False, 0),
            (True, 1.0),
            ([True], [1]),
            ({"a": True}, {"a": 1}),
            ({True: 1}, {1: 1}),
            (math.nan, math.nan),
            ("1", 1),
            ("a", b"a"),
            (None, False),
            (None, 0),
            ([], {}),
            (["a"], {"a": "a"}),
            ({"a": "a"}, ["a"]),
            ({0: 1}, (1,)),
            ([1], [1, 2]),
            ({"a": 1}, {"b": 1}),
            (Duration(1), Timestamp(1)),
            (Duration(1), 1),
        ],
    )
    def test_different(self, x: Any, y: Any) -> None:
        assert evaluate("x == y", x=x, y=y) is False
        assert evaluate("x != y", x=x, y=y) is True
        assert evaluate("x in [y]", x=x, y=y) is False
        assert evaluate("[x] == [y]", x=x, y=y) is False

    @pytest.mark.parametrize(
        "value", [True, 1, 1.0, Uint(1), "1", None, [1], {"a": 1}, Duration(1), 2**53 + 1]
    )
    def test_literals_in_place(self, value: Any) -> None:
        """Comparisons with literals are inlined: each must agree with the general one."""
        literals = {"true": True, "1": 1, "1.0": 1.0, "1u": Uint(1), "'1'": "1", "null": None}
        literals["9007199254740992.0"] = 2.0**53
        for source, other in literals.items():
            expected = evaluate("x == y", x=value, y=other)
            assert evaluate(f"x == {source}", x=value) is expected
            assert evaluate(f"{source} == x", x=value) is expected
            assert evaluate(f"x != {source}", x=value) is not expected
            assert evaluate(f"x in [{source}]", x=value) is expected
            assert evaluate(f"x in [{source}, {source}]", x=value) is expected
            assert evaluate(f"x in [{source}, 'no value']", x=value) is expected

    def test_nan_is_in_no_list_not_even_its_own(self) -> None:
        values = [math.nan]
        assert evaluate("x[0] in x", x=values) is False
        assert evaluate("x == x", x=values) is False


class TestOrder:
    @pytest.mark.parametrize("value", [True, "1", None, [1], b"1"])
    @pytest.mark.parametrize("operator", ["<", "<=", ">", ">="])
    def test_literals_are_not_compared_with_other_kinds(self, operator: str, value: Any) -> None:
        assert error(f"0 {operator} x", x=value) == error(f"x {operator} 0", x=value)
        assert error(f"size('a') {operator} x", x=value) == error(f"0 {operator} x", x=value)

    @pytest.mark.parametrize("operator", ["<", "<=", ">", ">="])
    def test_a_typed_integer_is_compared_with_a_double_as_an_untyped_one(
        self, operator: str
    ) -> None:
        typed = cel.compile(f"x {operator} 9007199254740992.0", {"x": "int"})
        expected = evaluate(f"x {operator} y", x=2**53 + 1, y=2.0**53)
        assert typed.raw(x=2**53 + 1) is expected


class TestTimes:
    def test_sums_of_times_and_durations(self) -> None:
        later = "timestamp('2026-01-01T00:00:05Z')"
        assert evaluate(f"timestamp('2026-01-01T00:00:00Z') + duration('5s') == {later}") is True
        assert evaluate(f"duration('5s') + timestamp('2026-01-01T00:00:00Z') == {later}") is True
        assert evaluate("duration('5s') + duration('1s') == duration('6s')") is True
        assert evaluate("x + y == z", x=Duration(1), y=Timestamp(2), z=Timestamp(3)) is True


class TestNumbers:
    @pytest.mark.parametrize(
        ("source", "value"),
        [
            ("7 / 2", 3),
            ("-7 / 2", -3),
            ("7 % -2", 1),
            ("7 % -1", 0),
            ("-7 % 2", -1),
            ("7u / 2u", Uint(3)),
            ("1.0 / 0.0", math.inf),
            ("-1.0 / 0.0", -math.inf),
            ("1.0 / -0.0", -math.inf),
            ("2 * 3 + 4", 10),
            ("x * 2.0", 3.0),
            ("-x", -1.5),
            ("int(x)", 1),
            ("int(-1.9)", -1),
            ("int('42')", 42),
            ("uint(3.9)", Uint(3)),
            ("double('1e3')", 1000.0),
            ("double(3u)", 3.0),
            ("string(1.0)", "1"),
            ("string(x)", "1.5"),
            ("string(-0.0)", "-0"),
            ("string(1.0 / 0.0)", "+Inf"),
            ("string(999999.5)", "999999.5"),
            ("string(1000000.0)", "1e+06"),
            ("string(-1234567.5)", "-1.2345675e+06"),
            ("string(0.0001)", "0.0001"),
            ("string(0.000012)", "1.2e-05"),
            ("string(1e300)", "1e+300"),
            ("string(3u)", "3"),
            ("string(true)", "true"),
            ("bool('TRUE')", True),
        ],
    )
    def test_values(self, source: str, value: Any) -> None:
        result = evaluate(source, x=1.5)
        assert result == value
        assert result.__class__ is value.__class__

    def test_nan(self) -> None:
        assert math.isnan(evaluate("0.0 / 0.0"))
        for operator in ("<", "<=", ">", ">=", "=="):
            assert evaluate(f"x {operator} x", x=math.nan) is False
            assert evaluate(f"x {operator} 1.0", x=math.nan) is False

    @pytest.mark.parametrize(
        "source",
        [
            "9223372036854775807 + 1",
            "-9223372036854775808 - 1",
            "-(-9223372036854775808 + 0)",
            "9223372036854775807 * 2",
            "-9223372036854775808 / -1",
            "-9223372036854775808 % -1",
            "18446744073709551615u + 1u",
            "0u - 1u",
            "18446744073709551615u * 2u",
            "int(1e19)",
            "int(x)",
            "int('9223372036854775808')",
            "uint(-1)",
            "uint(-0.5)",
            "uint(1e20)",
        ],
    )
    def test_overflow(self, source: str) -> None:
        assert error(source, x=math.inf) == "overflow"

    @pytest.mark.parametrize("source", ["x / 0", "x % 0", "1u / 0u", "1u % 0u"])
    def test_division_by_zero(self, source: str) -> None:
        assert error(source, x=1) == "division-by-zero"

    @pytest.mark.parametrize(
        "source",
        [
            "x + 1",
            "x - y",
            "x * 1u",
            "x < 'a'",
            "-y",
            "!x",
            "x + dyn(true)",
            "timestamp('2026-01-01T00:00:00Z') - x",
            "timestamp('2026-01-01T00:00:00Z') - y",
            "duration('1s') - dyn(timestamp('2026-01-01T00:00:00Z'))",
        ],
    )
    def test_types_do_not_mix(self, source: str) -> None:
        assert error(source, x=1.0, y="a") == "no-such-overload"

    @pytest.mark.parametrize("text", ["", " 1", "1 ", "1_0", "+-1", "0x1", "١", "1" * 50, "1.0"])
    def test_texts_that_are_not_integers(self, text: str) -> None:
        assert error("int(x)", x=text) == "invalid-argument"
        assert error("uint(x)", x=text) == "invalid-argument"

    @pytest.mark.parametrize("text", ["", " 1.0", "1_0.0", "0x1p3", "١", "1e", ".", "1" * 2000])
    def test_texts_that_are_not_doubles(self, text: str) -> None:
        assert error("double(x)", x=text) == "invalid-argument"

    def test_true_is_not_a_number(self) -> None:
        assert error("x > 0", x=True) == "no-such-overload"
        assert error("x + 1", x=True) == "no-such-overload"
        assert error("y[x]", x=True, y=[1, 2]) == "no-such-overload"

    @pytest.mark.parametrize("x", [5, 5.0, Uint(5)])
    def test_numbers_of_all_types_are_ordered(self, x: Any) -> None:
        for other in ("4", "4.5", "4u"):
            assert evaluate(f"x > {other}", x=x) is True
            assert evaluate(f"{other} >= x", x=x) is False


class TestLogic:
    """`<error> && false` is false, and so on: errors are absorbed from either side."""

    @pytest.mark.parametrize(
        ("source", "value"),
        [
            ("x.no && false", False),
            ("false && x.no", False),
            ("x.no || true", True),
            ("true || x.no", True),
            ("x.no && true && false", False),
            ("(x.no || true) && true", True),
            ("!(x.no && false)", True),
            ("x.no && (x.no && false)", False),
            ("(x.no && x.no) || (x.no || true)", True),
            ("x.no == 1 && x.n == 2", False),
            ("1 / 0 == 1 || x.n == 1", True),
            ("x.s && false", False),
            ("true ? true : x.no", True),
            ("[1, 2].exists(e, x.no || e == 2)", True),
            ("[1, 2].exists(e, e / 0 == 1 || e == 2)", True),
            ("[0, 1].exists(e, 1 / e == 1)", True),
            ("[0, 2].all(e, 1 / e == 1)", False),
            ("['a', 1].exists(e, e.startsWith('b')) || true", True),
            ("x.no.exists(e, true) || true", True),
            ("[1].map(e, e / 0)[0] == 1 || true", True),
            ("false && x.no.map(e, e).size() > 1", False),
            ("x.no.filter(e, true).size() > 1 && false", False),
            ("x.no.exists_one(e, true) && false", False),
            ("(x.n == 1 ? x.no : true) || true", True),
        ],
    )
    def test_absorbed(self, source: str, value: bool) -> None:
        assert evaluate(source, x={"n": 1, "s": "a"}) is value

    @pytest.mark.parametrize(
        ("source", "kind"),
        [
            ("x.no && true", "no-such-key"),
            ("true && x.no", "no-such-key"),
            ("x.no || false", "no-such-key"),
            ("x.no ? true : true", "no-such-key"),
            ("!x.no", "no-such-key"),
            ("x.s && true", "no-such-overload"),
            ("x.s || false", "no-such-overload"),
            ("x.s ? 1 : 2", "no-such-overload"),
            ("[0, 1].exists(e, 1 / e == 2)", "division-by-zero"),
            ("[0, 1].all(e, 1 / e == 1)", "division-by-zero"),
            ("[0, 1].exists_one(e, 1 / e == 1)", "division-by-zero"),
            ("[0, 1].filter(e, 1 / e == 1)", "division-by-zero"),
            ("[0, 1].map(e, 1 / e)", "division-by-zero"),
            ("[1].exists(e, x.s)", "no-such-overload"),
            ("[1].filter(e, x.s)", "no-such-overload"),
        ],
    )
    def test_not_absorbed(self, source: str, kind: str) -> None:
        assert error(source, x={"n": 1, "s": "a"}) == kind

    @pytest.mark.parametrize("first", ["true", "false", "x.no"])
    @pytest.mark.parametrize("second", ["true", "false", "x.no"])
    @pytest.mark.parametrize("operator", ["&&", "||"])
    def test_the_order_of_operands_never_matters(
        self, first: str, second: str, operator: str
    ) -> None:
        def outcome(source: str) -> Any:
            try:
                return evaluate(source)
            except cel.CelEvaluationError:
                return MISSING

        there = outcome(f"{first} {operator} {second}")
        assert outcome(f"{second} {operator} {first}") is there
        assert outcome(f"({first} {operator} {second}) {operator} {second}") is there


class TestMapsAndLists:
    @pytest.mark.parametrize(
        ("source", "value"),
        [
            ("x.a", 1),
            ("x['a']", 1),
            ("x.`b-c`", 2),
            ("x['b-c']", 2),
            ("has(x.a)", True),
            ("has(x.z)", False),
            ("has(x.nothing)", True),
            ("'a' in x", True),
            ("'z' in x", False),
            ("1 in x", False),
            ("{1: 'i'}[1u]", "i"),
            ("{1: 'i'}[1.0]", "i"),
            ("{true: 'b'}[true]", "b"),
            ("dyn(1) in {true: 'b'}", False),
            ("dyn(true) in {1: 'i'}", False),
            ("{'a': 1}.a", 1),
            ("y[0]", "p"),
            ("y[1.0]", "q"),
            ("y[1u]", "q"),
            ("y + ['r']", ["p", "q", "r"]),
            ("size(y) + size(x)", 5),
            ("size('é🐱')", 2),
            ("size(b'\\xff\\xff')", 2),
            ("y.map(e, e + '!')", ["p!", "q!"]),
            ("y.filter(e, e != 'p')", ["q"]),
            ("y.map(e, e != 'p', e + e)", ["qq"]),
            ("y.exists_one(e, e == 'p')", True),
            ("y.existsOne(i, e, i == 1 && e == 'q')", True),
            ("y.all(i, e, i < 2)", True),
            ("y.transformList(i, e, i)", [0, 1]),
            ("x.transformMap(k, v, k)", {"a": "a", "b-c": "b-c", "nothing": "nothing"}),
            ("x.transformMap(k, v, v == 1, v)", {"a": 1}),
            ("x.map(k, k)", ["a", "b-c", "nothing"]),
            ("x.exists(k, v, v == null)", True),
            ("[[1], [2]].map(e, e.map(e, e + 1))", [[2], [3]]),
            ("[1].map(x, x + 1)", [2]),
            ("type(x) == map && type(y) == list", True),
            ("type(1) == int && type(type(1)) == type", True),
        ],
    )
    def test_values(self, source: str, value: Any) -> None:
        result = evaluate(source, x={"a": 1, "b-c": 2, "nothing": None}, y=["p", "q"])
        assert result == value
        assert result.__class__ is value.__class__

    @pytest.mark.parametrize(
        ("source", "kind"),
        [
            ("x.z", "no-such-key"),
            ("x['z']", "no-such-key"),
            ("x[1]", "no-such-key"),
            ("y[2]", "index-out-of-range"),
            ("y[-1]", "index-out-of-range"),
            ("y[0.5]", "no-such-overload"),
            ("y['0']", "no-such-overload"),
            ("y.a", "no-such-overload"),
            ("x.a.b", "no-such-overload"),
            ("x.nothing.b", "no-such-overload"),
            ("dyn('text')[x.a]", "no-such-overload"),
            ("has(y.a)", "no-such-overload"),
            ("has(x.z.a)", "no-such-key"),
            ("1 in x.a", "no-such-overload"),
            ("null in x", "no-such-overload"),
            ("size(x.a)", "no-such-overload"),
            ("x.a.all(e, true)", "no-such-overload"),
            ("{'k': 1, 'k': 2}", "duplicate-key"),
            ("{1: 1, 1u: 2}", "duplicate-key"),
            ("{x.nothing: 1}", "no-such-overload"),
            ("{true: 1, 1: 2}", "unsupported"),
        ],
    )
    def test_errors(self, source: str, kind: str) -> None:
        assert error(f"dyn({source})", x={"a": 1, "nothing": None}, y=["p", "q"]) == kind

    def test_results_are_new_lists(self) -> None:
        values = ["a"]
        assert evaluate("x + []", x=values) is not values
        assert evaluate("x.filter(e, true)", x=values) is not values
        assert values == ["a"]


class TestStrings:
    @pytest.mark.parametrize(
        ("source", "value"),
        [
            ("x.contains('B')", True),
            ("x.startsWith(' a')", True),
            ("x.endsWith('é ')", True),
            ("x.lowerAscii()", " abé "),
            ("x.upperAscii()", " ABé "),
            ("x.trim()", "aBé"),
            ("x.trim().reverse()", "éBa"),
            ("x.charAt(3)", "é"),
            ("x.charAt(5)", ""),
            ("x.indexOf('é')", 3),
            ("x.indexOf('é', 4)", -1),
            ("x.indexOf('')", 0),
            ("x.lastIndexOf(' ')", 4),
            ("x.lastIndexOf(' ', 3)", 0),
            ("x.replace('a', 'bb')", " bbBé "),
            ("'aaa'.replace('a', 'b', 2)", "bba"),
            ("'a,b,c'.split(',')", ["a", "b", "c"]),
            ("'a,b,c'.split(',', 2)", ["a", "b,c"]),
            ("'a,b,c'.split(',', 0)", []),
            ("'é🐱x'.split('')", ["é", "🐱", "x"]),
            ("['a', 'b'].join()", "ab"),
            ("['a', 'b'].join('-')", "a-b"),
            ("[].join('-')", ""),
            ("x.substring(2)", "Bé "),
            ("x.substring(2, 4)", "Bé"),
            ("x.matches('(?i)ab')", True),
            ("matches(x, '^a')", False),
            ("'a\\u00a0'.trim()", "a"),
            ("'a\\u001c'.trim()", "a\x1c"),
            ("'a' < 'b' && 'Z' < 'a' && b'a' < b'b'", True),
            ("string(b'\\xc3\\xa9')", "é"),
            ("bytes('é')", b"\xc3\xa9"),
        ],
    )
    def test_values(self, source: str, value: Any) -> None:
        result = evaluate(source, x=" aBé ")
        assert result == value
        assert result.__class__ is value.__class__

    @pytest.mark.parametrize(
        "source",
        [
            *("x.charAt(6)", "x.charAt(-1)", "x.indexOf('a', 6)", "x.lastIndexOf('a', -1)"),
            *("x.substring(6)", "x.substring(3, 2)", "x.substring(-1)"),
        ],
    )
    def test_positions_out_of_range(self, source: str) -> None:
        assert error(source, x=" aBé ") == "index-out-of-range"

    @pytest.mark.parametrize("x", [1, None, b"a", ["a"], {"a": 1}, True, Timestamp(0)])
    def test_only_strings_have_string_functions(self, x: Any) -> None:
        calls = ["contains('a')", "startsWith('a')", "endsWith('a')", "matches('a')", "trim()"]
        for call in (*calls, "lowerAscii()", "split('a')", "replace('a', 'b')", "host()"):
            assert error(f"x.{call}", x=x) == "no-such-overload"
        for call in ("contains(x)", "startsWith(x)", "endsWith(x)", "split(x)"):
            assert error(f"'a'.{call}", x=x) == "no-such-overload"

    @pytest.mark.parametrize(
        "call",
        [
            *("substring(0, y)", "substring(y)", "lastIndexOf('a', y)", "indexOf('a', y)"),
            *("replace('a', 'b', y)", "split('a', y)", "charAt(y)"),
        ],
    )
    def test_null_is_not_an_omitted_argument(self, call: str) -> None:
        assert error(f"x.{call}", x="abc", y=None) == "no-such-overload"

    def test_lone_surrogates_and_nul_do_not_matter(self) -> None:
        text = "a\ud800\0b"
        assert evaluate("x.matches('b$') && x.contains('b') && size(x) == 4", x=text) is True
        assert evaluate("bytes(x)", x=text) == b"a?\0b"
        assert evaluate("x == y", x=text, y=text) is True


def test_a_macro_variable_shadows_a_variable() -> None:
    assert evaluate("[1, 2].all(x, x < 3) && x == 'outer'", x="outer") is True
    assert evaluate("[1].map(y, [2].map(y, y))[0][0] + y", y=10) == 12
    assert evaluate("[1].all(x, .x == 'outer')", x="outer") is True


def test_error_messages_name_the_problem() -> None:
    def message(source: str, **values: Any) -> str:
        with pytest.raises(cel.CelEvaluationError) as caught:
            evaluate(source, **values)
        return str(caught.value)

    assert message("x.limit > 1", x={}) == "no such key: `limit`"
    assert message("x.startsWith('a')", x=1) == "`startsWith` is not defined for int"
    assert message("x.matches('a')", x=None) == "`matches` is not defined for null"
    assert message("x < 'a'", x=1) == "`<` is not defined for int, string"
    assert message("x.a.b", x={"a": 1}) == "only a map has fields"
    assert message("x && true", x=1) == "a condition must be bool, not int"
