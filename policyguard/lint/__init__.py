"""Is a policy right? What loading it finds, and what is legal and still wrong."""

from policyguard.lint.codes import UnknownCodeError
from policyguard.lint.find import NothingToLintError
from policyguard.lint.fixes import FixResult, fix
from policyguard.lint.ignores import Ignored
from policyguard.lint.run import LintResult, lint_paths

__all__ = [
    "FixResult",
    "Ignored",
    "LintResult",
    "NothingToLintError",
    "UnknownCodeError",
    "fix",
    "lint_paths",
]
