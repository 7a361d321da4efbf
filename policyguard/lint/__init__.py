"""Is a policy right? What loading it finds, over files and folders."""

from policyguard.lint.run import LintResult, NothingToLintError, lint_paths

__all__ = ["LintResult", "NothingToLintError", "lint_paths"]
