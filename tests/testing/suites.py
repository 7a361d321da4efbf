"""Helpers: a test file in a few lines, and its report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from policyguard.report.findings.diagnostics import render_text
from policyguard.report.policy_tests.results import Failure, TestReport
from policyguard.testing.runner import run_files

CASES = Path(__file__).parent / "cases"
ROOT = Path(__file__).parents[2]

POLICY: dict[str, Any] = {
    "tags": {"tier": {"type": "int", "default": 0}},
    "classify": {"shell": {"arguments": ["cmd"]}},
    "signatures": [{"id": "down", "pattern": "503", "blame": "harness"}],
    "limits": {
        "default": {"repeat": {"max": 2, "window": 10}},
        "tools": {
            "slow": {"timeout": "5s"},
            "failing": {"failures": {"max": 1, "refuse": "tool"}},
        },
    },
    "budgets": {
        "mails": {"tools": ["mail"], "calls": 1, "within": "10m"},
        "money": {"cost": 1, "tools": ["pay"]},
        "shared": {"tools": ["shared"], "calls": 1, "per": "project"},
        "asked": {"tools": ["risky"], "calls": 0, "effect": "ask"},
        "extended": {"tools": ["extended"], "calls": 0, "extend": 2},
    },
    "rules": {
        "amount": {"tools": ["pay"], "when": "call.args.amount > 10", "message": "too much"},
        "shell": {"tools": ["bash"], "when": "call.command == 'rm'"},
        "tier": {"tools": ["tiered"], "when": "tags.tier > 1", "effect": "halt"},
        "watch": {"tools": ["seen"], "when": "true", "mode": "observe"},
        "who": {
            "tools": ["who"],
            "unless": "session.agent == 'lead' && session.user == 'ann' && session.cwd == '/x'"
            " && session.roles == ['boss'] && tags.tier == 2",
        },
        "signed": {
            "tools": ["signed"],
            "when": "true",
            "effect": "ask",
            "approval": {"from": ["lead"]},
        },
        "note": {"tools": ["noted"], "when": "true", "effect": "advise"},
    },
}


def write(folder: Path, tests: list[dict[str, Any]], policy: Any = None, **rest: Any) -> Path:
    """A test file in `folder`."""
    file = folder / "x.tests.yaml"
    document = {"policy": POLICY if policy is None else policy, **rest, "tests": tests}
    file.write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
    return file


def run(file: Path, **rest: Any) -> TestReport:
    """The report on a file that is not broken."""
    report = run_files([file], **rest)
    (result,) = report.files
    assert not result.errors, render_text(result.errors)
    return report


def failures(folder: Path, *steps: dict[str, Any], **test: Any) -> list[Failure]:
    """What fails in one test with these steps."""
    made = {"name": "it", **test, **({"steps": list(steps)} if steps else {})}
    (result,) = run(write(folder, [made])).files[0].tests
    return list(result.failures)
