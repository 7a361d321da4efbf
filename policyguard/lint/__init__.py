"""Static analysis of policies: load errors, and mistakes in policies that load."""

from policyguard.lint.catalog import UnknownCodeError
from policyguard.lint.discovery import NothingToLintError
from policyguard.lint.fixes import FixResult, fix
from policyguard.lint.ignores import IgnoredFinding
from policyguard.lint.linter import LintResult, lint_paths

__all__ = [
    "FixResult",
    "IgnoredFinding",
    "LintResult",
    "NothingToLintError",
    "UnknownCodeError",
    "fix",
    "lint_paths",
]
