"""When lint reports an exception: by the day it reads, and by what the policy says."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from policyguard.compiler import compile_policy
from policyguard.lint import lint_paths
from policyguard.lint.rule import LintContext
from policyguard.lint.rules.entries import expired_exception

POLICY = """\
policyguard: 1
name: waivers
rules: {no-push: {tools: [push], effect: block}}
exceptions:
  short: {rules: [no-push], until: 2026-06-30, reason: r}
  long: {rules: [no-push], until: 2026-06-30, reason: r, warn_before: 60d}
"""


def findings(tmp_path, at):
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY, "utf-8")
    compiled = compile_policy(file)
    now = int(datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp() * 1e9)
    context = LintContext(compiled, frozenset({str(file)}), now)
    return [(found.severity, found.message) for found in expired_exception.check(context)]


@pytest.mark.parametrize(
    ("at", "severities"),
    [
        ("2026-04-30", []),
        ("2026-05-15", ["warning"]),
        ("2026-06-17", ["warning", "warning"]),
        ("2026-06-30T23:59:59", ["warning", "warning"]),
        ("2026-07-01", ["error", "error"]),
    ],
)
def test_severity_follows_the_day(tmp_path, at, severities):
    assert [severity for severity, _ in findings(tmp_path, at)] == severities


def test_the_message_says_how_long_is_left(tmp_path):
    assert "expires in 10d" in findings(tmp_path, "2026-06-20T05:00:00")[0][1]
    assert "expires in less than a day" in findings(tmp_path, "2026-06-30T05:00:00")[0][1]


def test_a_cached_report_does_not_outlive_the_day(tmp_path, monkeypatch):
    """A file that has not changed is read again: its exceptions may have expired meanwhile."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policyguard.yaml").write_text(POLICY.replace("2026-06-30", "2099-06-30"), "utf-8")
    assert not lint_paths([], select=["lint/expired-exception"]).diagnostics
    later = int(datetime(2099, 7, 1, tzinfo=UTC).timestamp() * 1e9)
    monkeypatch.setattr("policyguard.lint.rule.time.time_ns", lambda: later)
    assert len(lint_paths([], select=["lint/expired-exception"]).diagnostics) == 2
