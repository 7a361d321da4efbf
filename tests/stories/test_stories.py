"""Stories: a policy, calls and their results in order, and the decisions to expect.

Each file in `tests/cases/stories/` is a test file (`docs/policy-tests.md`) with an inline policy.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from policyguard import Decision, Session
from policyguard.engines.yaml_tree import MappingNode, Node, to_plain
from policyguard.report.findings.diagnostics import render_text
from policyguard.report.policy_tests.rendering import render_failure
from policyguard.testing.runner import run_test
from policyguard.testing.suite_reader import ReadResult, build_suite, parse_file

CASES = Path(__file__).parent.parent / "cases" / "stories"


def _tree(file: Path) -> Node:
    root, diagnostics = parse_file(file)
    assert root is not None, render_text(diagnostics)
    assert not diagnostics, render_text(diagnostics)
    return root


@cache
def _read(file: Path) -> ReadResult:
    """Return the file with its policy compiled."""
    return build_suite(_tree(file))


def _stories() -> list[Any]:
    found = []
    for file in sorted(CASES.glob("*.yaml")):
        root = _tree(file)
        assert isinstance(root, MappingNode), file
        tests = root.get("tests")
        names = [test["name"] for test in to_plain(tests)] if tests is not None else []
        assert names, file
        stem = file.name.removesuffix(".yaml").removesuffix(".tests")
        found += [pytest.param(file, name, id=f"{stem}: {name}") for name in names]
    assert found
    return found


@pytest.mark.parametrize(("file", "name"), _stories())
def test_story(file: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "check", _preview_first(Session.check))
    suite, diagnostics = _read(file)
    assert suite is not None, render_text(diagnostics)
    (test,) = (test for test in suite.tests if test.name == name)
    failures = run_test(suite, test).failures
    if failures:
        pytest.fail("\n".join(map(render_failure, failures)), pytrace=False)


def _preview_first(check: Any) -> Any:
    """Return a `Session.check` that expects `preview` to have decided alike."""

    def checked(session: Session, tool: str, args: Any, **rest: Any) -> Decision:
        previewed = session.preview(tool, args, **rest)
        decision: Decision = check(session, tool, args, **rest)
        assert (previewed.effect, previewed.message) == (decision.effect, decision.message)
        return decision

    return checked
