"""A radius without effect is an error, and so is an unknown value of `session.progress`."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard.compiler import check_policy, compile_policy
from policyguard.compiler.load import language_version


def codes(folder: Path, text: str) -> list[str]:
    file = folder / "policy.yaml"
    file.write_text(f"policyguard: 1\nname: x\n{text}")
    return [f"{one.code} {one.span.line}:{one.span.column}" for one in check_policy(file)[1]]


TARGETS = "classify: {targets: [path]}\n"
RULE = "rules: {a: {when: \"session.progress == 'WORD'\"}}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TARGETS + "radius: {shrink_after: 2}\n", []),
        (TARGETS + "radius: {}\nlearn: {}\n", []),
        (
            TARGETS + "radius: [{shrink_after: 2}, {shrink_after: 1}]\n",
            ["reference/no-effect 4:29"],
        ),
        (
            TARGETS + "radius: [{when: 'true', shrink_after: 3}, {shrink_after: 2},"
            " {shrink_after: 1}]\n",
            ["reference/no-effect 4:62"],
        ),
        (TARGETS + "radius: [{shrink_after: 2, when: 'true'}, {shrink_after: 1}]\n", []),
        (
            TARGETS + "radius:\n  - {shrink_after: 2}\n  - {shrink_after: 1, when: 'true'}\n",
            ["reference/no-effect 6:5"],
        ),
        ("radius: {shrink_after: 2}\n", ["reference/no-targets 3:1"]),
        (TARGETS + "radius: {}\n", ["reference/never-shrinks 4:9"]),
        (
            TARGETS + "radius:\n  - {shrink_after: 2, when: 'true'}\n  - {widen_after: 1}\n",
            ["reference/never-shrinks 6:5"],
        ),
        (
            TARGETS + "radius:\n  - {shrink_after: 2, when: 'call.tol == 1'}\n",
            ["cel/unknown-field 5:35"],
        ),
        (TARGETS + "radius:\n  - {shrink_after: 2, when: 'call.tool'}\n", ["cel/not-bool 5:30"]),
        # Broken values are reported once.
        ("classify: {targets: 5}\nradius: {shrink_after: 2}\n", ["schema/type 3:21"]),
        (TARGETS + "learn: {corroborate: many}\nradius: {}\n", ["scalar/count 4:22"]),
        ("extends: [lost]\nradius: {}\n", ["load/not-found 3:11"]),
        (RULE.replace("WORD", "plateau"), []),
        (RULE.replace("WORD", "exhausted"), []),
        (RULE.replace("WORD", "plateua"), ["cel/unknown-name 3:40"]),
    ],
)
def test_diagnostics(text: str, expected: list[str], tmp_path: Path) -> None:
    assert codes(tmp_path, text) == expected


@pytest.mark.parametrize(
    ("text", "shrink_after", "blame"),
    [
        ("radius: {shrink_after: 2}\n", 2, {"agent"}),
        ("radius: {shrink_after: 2}\nlearn: {corroborate: 5}\n", 2, {"agent"}),
        ("radius: {}\nlearn: {corroborate: 5, blame: [agent, unknown]}\n", 5, {"agent", "unknown"}),
    ],
)
def test_radius_counts_failures_like_learning(
    text: str, shrink_after: int, blame: set[str], tmp_path: Path
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(f"policyguard: 1\nname: x\n{TARGETS}{text}")
    (entry,) = compile_policy(file).radius
    assert (entry.id, entry.schedule.steps) == ("radius", (None, 5, 3, 2, 1))
    assert (entry.schedule.shrink_after, entry.schedule.blame) == (shrink_after, blame)


def test_progress_is_unsupported_before_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(language_version, "SUPPORTED_STEP", 1)
    assert codes(tmp_path, RULE.replace("WORD", "plateau")) == ["cel/unsupported 3:28"]
