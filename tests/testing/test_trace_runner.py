"""Tests of a trace: every call is admitted, except those that the test names."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.testing.suites import CASES, ROOT, failures

# c1 c2 (c1 of session b) c3 c4: the third and fourth `read` of session a are one too many.
REFUSED = [4, 5]
CALL = '{"event": "admitted", "session": "a", "call": "c", "tool": "t"'


def found(folder: Path, **test: Any) -> list[tuple[str, str, str]]:
    shutil.copy(CASES / "stuck.jsonl", folder)
    return [
        (failure.step, mismatch.expected, mismatch.found)
        for failure in failures(folder, **{"trace": "stuck.jsonl", **test})
        for mismatch in failure.mismatches
    ]


@pytest.mark.parametrize(
    "test",
    [
        {"refused": REFUSED},
        {"refused": ["4-5"]},
        {"refused": [4], "expect": [{"call": 5}]},
        {
            "expect": [
                {"call": 4, "effect": "block", "by": "repeat", "says": "has not changed"},
                {"call": 5},
            ]
        },
        {"expect": [{"call": "c3", "in": "a"}, {"call": "c4"}]},
        {"expect": [{"call": 3, "in": "a"}, {"call": 4, "in": "a"}]},
        {"refused": REFUSED, "expect": [{"call": 1, "in": "b", "effect": "allow"}]},
    ],
)
def test_fulfilled_expectations_pass(tmp_path: Path, test: dict[str, Any]) -> None:
    assert found(tmp_path, **test) == []


@pytest.mark.parametrize(
    ("test", "steps", "first"),
    [
        ({}, [4, 5], ("allow or advise", "block")),
        ({"refused": ["1-5"]}, [1, 2, 3], ("ask, block or halt", "allow")),
        ({"refused": REFUSED, "expect": [{"call": 3}]}, [3], ("ask, block or halt", "allow")),
        ({"refused": [5], "expect": [{"call": 4, "effect": "halt"}]}, [4], ("halt", "block")),
        (
            {"refused": [5], "expect": [{"call": 4, "by": "amount"}]},
            [4],
            ("by `amount`", "limits/default/repeat"),
        ),
        ({"refused": [*REFUSED, 9]}, [None], ("a call 9", "5 calls in all")),
        (
            {"refused": REFUSED, "expect": [{"call": "c9", "in": "b"}]},
            [None],
            ("a call c9 of session `b`", "5 calls in all"),
        ),
    ],
)
def test_unmet_expectations_fail(
    tmp_path: Path, test: dict[str, Any], steps: list[int | None], first: tuple[str, str]
) -> None:
    wrong = found(tmp_path, **test)
    wanted = ["the trace" if step is None else f"call {step} (" for step in steps]
    assert [step[: len(start)] for (step, *_), start in zip(wrong, wanted, strict=True)] == wanted
    assert wrong[0][1:] == first


def test_the_session_completes_the_recording(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_text(
        '{"event": "admitted", "session": "a", "call": "c1", "tool": "tiered", "args": {}}\n'
    )
    assert found(tmp_path, trace="run.jsonl") == []
    session = {"tags": {"tier": 2}}
    assert found(tmp_path, trace="run.jsonl", session=session, refused=[1]) == []
    ((_, _, text),) = found(tmp_path, trace="run.jsonl", session={"tags": {"tier": "x"}})
    assert "tag `tier` must be int" in text


def test_the_time_of_a_failure_is_the_recordings_own(tmp_path: Path) -> None:
    at = 1_773_480_000_000_000_000
    first, second = (f'{CALL}, "args": {{}}, "at": {at + n * 1_000_000_000}}}\n' for n in (0, 90))
    (tmp_path / "run.jsonl").write_text(first + second)
    (failure,) = failures(tmp_path, trace="run.jsonl", refused=[2])
    assert failure.state["elapsed"] == "90s"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("hello\n", "not JSON"),
        ('{"event": "started", "session": "a"}\n', "none"),
        (CALL + "}\n", "they are redacted"),
        (CALL + ', "args": {}}\n{"event": "x"}\n', "line 2: "),
    ],
)
def test_a_recording_that_tests_nothing_fails(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "run.jsonl").write_text(text)
    wrong = found(tmp_path, trace="run.jsonl")
    assert [one[2].startswith(reason) for one in wrong] == [True]


def test_a_recording_may_have_any_location_and_format(tmp_path: Path) -> None:
    shutil.copy(ROOT / "docs" / "demo" / "trace.jsonl", tmp_path / "demo.jsonl")
    wrong = failures(tmp_path, trace="demo.jsonl")
    assert len(wrong) > 3
