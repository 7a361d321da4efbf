"""A `learn` that can never teach anything is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard import Guard
from policyguard.compiler import check_policy

LOST = "signatures: [{id: lost, pattern: lost, blame: agent, learn: {LEARN}}]\nlearn: {}\n"
TARGETS = "classify: {targets: [path]}\n"
CLASSES = "classify: {classes: [{class: read, words: [read]}]}\n"
READS = "classify: {targets: [path], classes: [{class: read, words: [read]}]}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("learn: {blame: [harness]}\n", ["reference/no-effect 3:16"]),
        ("learn: {blame: [agent, harness]}\n", ["reference/no-effect 3:16"]),
        ("learn: {blame: [agent, unknown]}\n", []),
        (LOST.replace("LEARN", "blame: [harness]"), ["reference/no-effect 3:69"]),
        ("learn: {ban: target}\n", ["reference/no-targets 3:14"]),
        (LOST.replace("LEARN", "ban: target"), ["reference/no-targets 3:67"]),
        (TARGETS + "learn: {ban: target}\n", []),
        ("learn: {key: call.tool}\n", []),
        ("learn: {ban: target, key: call.tool}\n", ["schema/conflict 3:1"]),
        (LOST.replace("LEARN", "ban: tool, key: call.tool"), ["schema/conflict 3:54"]),
        (LOST.replace("LEARN", "key: call.tool"), []),
        ("learn: {ban: class}\n", ["reference/no-effect 3:14"]),
        (CLASSES + "learn: {ban: class}\n", []),
        ("learn: {weaken: {probation: 0.5, lives: 1d}}\n", ["reference/no-effect 3:18"]),
        ("learn: {weaken: {probation: 0.5, half_life: 1d}}\n", []),
        (LOST.replace("LEARN", "weaken: {probation: 0.5}"), ["reference/no-effect 3:71"]),
        ("learn: {weaken: {probation: 0.5, half_life: 1}}\n", ["scalar/duration 3:45"]),
        (READS + "learn: {except: [read]}\n", ["reference/no-effect 4:9"]),
        (READS + "learn: {ban: tool, except: [read]}\n", ["reference/no-effect 4:20"]),
        (READS + "learn: {key: call.tool, except: [read]}\n", ["reference/no-effect 4:25"]),
        (READS + "learn: {ban: target, except: [read]}\n", []),
        (READS + "learn: {except: []}\n", []),
        (READS + LOST.replace("LEARN", "except: [read]"), ["reference/no-effect 4:62"]),
        (READS + LOST.replace("LEARN", "ban: target, except: [read]"), []),
        (READS + LOST.replace("{}\n", "{except: [read]}\n").replace("LEARN", "ban: target"), []),
        (READS + LOST.replace("{}\n", "{ban: target}\n").replace("LEARN", "except: [read]"), []),
        # Broken values are reported once.
        ("classify: {targets: 5}\nlearn: {ban: target}\n", ["schema/type 3:21"]),
        (READS + "learn: {ban: targte, except: [read]}\n", ["schema/value 4:14"]),
        ("extends: [lost]\nlearn: {ban: target}\n", ["load/not-found 3:11"]),
    ],
)
def test_diagnostics(text: str, expected: list[str], tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(f"policyguard: 1\nname: x\n{text}")
    found = [f"{one.code} {one.span.line}:{one.span.column}" for one in check_policy(file)[1]]
    assert found == expected


def test_signature_can_disable_learning(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(f"policyguard: 1\nname: x\n{LOST.replace('LEARN', 'blame: []')}")
    session = Guard.load(file).session("s")
    for _ in range(4):
        session.record(session.check("a", {}), error="lost")
    assert session.check("a", {}).allowed


@pytest.mark.parametrize(
    ("base", "own", "learned"),
    [
        ("{}", "corroborate: 2", False),
        ("{count_by: call.tool}", "corroborate: 2", True),
        ("{count_by: call.tool}", "corroborate: 2, ban: call", True),
        ("{key: call.tool}", "corroborate: 2", True),
        ("{key: call.tool}", "corroborate: 2, ban: call", False),
        ("{}", "corroborate: 2, count_by: call.tool", True),
    ],
)
def test_only_what_bans_and_counts_single_calls_compares_errors(
    base: str, own: str, learned: bool, tmp_path: Path
) -> None:
    file = tmp_path / "policy.yaml"
    text = LOST.replace("LEARN", own).replace("learn: {}", f"learn: {base}")
    file.write_text(f"policyguard: 1\nname: x\n{text}")
    session = Guard.load(file).session("s")
    for error in ("lost here", "lost elsewhere"):
        session.record(session.check("a", {}), error=error)
    assert session.check("a", {}).allowed is not learned
