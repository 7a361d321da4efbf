"""CEL as google/cel-spec tests it: the policy subset, and the string extension."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cel import textproto
from tests.cel.conformance import SPEC, SUBSET, Case, subset, whole_file

pytestmark = pytest.mark.skipif(
    not SUBSET.exists(), reason=f"no cel-spec at {SPEC}: set CEL_SPEC_DIR to a checkout of it"
)
KNOWN_FAILURES = Path(__file__).with_name("known_failures.txt")
MIN_PASS_RATE = 0.985


def known_failures() -> dict[str, str]:
    lines = KNOWN_FAILURES.read_text("utf-8").splitlines()
    pairs = (line.partition(" ") for line in lines if line and not line.startswith("#"))
    return {name: reason.strip() for name, _, reason in pairs}


def test_the_policy_subset_passes_except_known_failures() -> None:
    cases = list(subset())
    failures = {case.name: f"{case.source}: {why}" for case in cases if (why := case.run())}
    known = known_failures()
    assert len(cases) == 1125
    assert {name: why for name, why in failures.items() if name not in known} == {}
    assert set(known) - set(failures) == set(), "listed as failing, but they pass"
    assert all(known.values()), "each failure is listed with its reason"
    assert 1 - len(failures) / len(cases) >= MIN_PASS_RATE


def test_the_checker_proves_few_errors() -> None:
    """Almost all expected errors occur at run time, not in the checker."""
    expected = [case for case in subset() if case.wants_error and not case.nocheck]
    static = {case.name for case in expected if not case.compiles()}
    assert len(expected) > 70
    # Literal timestamps and durations out of range are compile errors here.
    assert {name.rsplit("/", 1)[0] for name in static} <= {
        "timestamps/timestamp_range",
        "timestamps/duration_range",
    }
    assert len(static) <= 10


def string_extension() -> list[Case]:
    # Not supported: they format values for people.
    left_out = ("format", "format_errors", "quote")
    return [c for c in whole_file("string_ext") if c.name.split("/")[1] not in left_out]


def test_the_string_extension_passes() -> None:
    cases = string_extension()
    failures = {case.name: f"{case.source}: {why}" for case in cases if (why := case.run())}
    assert len(cases) > 90
    assert failures == {}


def test_a_wrong_result_fails() -> None:
    """Each of these is a test with a falsified expectation."""
    case = next(case for case in subset() if case.name == "basic/functions/binop")
    assert case.run() is None
    for value in ("int64_value: 3", "uint64_value: 2", "double_value: 2", "bool_value: true"):
        false = Case(case.name, False, {**case.test, **textproto.parse(f"value {{ {value} }}")})
        assert false.run() is not None
    error = {key: values for key, values in case.test.items() if key != "value"}
    assert Case(case.name, False, {**error, "eval_error": [{}]}).run() is not None


def test_the_text_format_parser() -> None:
    read = textproto.parse(
        r"""
        # a comment
        name: "a\x41\303\251" 'b'
        section { test { expr: "1" value: { double_value: -inf } } test < n: [1, -2] > }
        flag: true, kind: INT64;
        """
    )
    assert read["name"] == [b"aA\xc3\xa9b"]
    assert read["section"][0]["test"] == [
        {"expr": [b"1"], "value": [{"double_value": [float("-inf")]}]},
        {"n": [1, -2]},
    ]
    assert read["flag"] == [True]
    assert read["kind"] == ["INT64"]
