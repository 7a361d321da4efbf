"""The interface of a lint rule: a module with a docstring and a `check` function.

The docstring is the rule's page, the module's name its code: `rules/bare_number.py` reports
`lint/bare-number`.
"""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc
from typing import NamedTuple, Protocol

from policyguard.lint.context import LintContext
from policyguard.model.diagnostic import Edit, Severity, Span


class Finding(NamedTuple):
    """A problem that a rule found in a policy.

    `help` says what to write instead. `edits` apply an unambiguous fix.
    """

    span: Span
    message: str
    help: str | None = None
    edits: tuple[Edit, ...] = ()
    severity: Severity = "warning"


class LintRule(Protocol):
    """A module in `rules/`."""

    __name__: str
    __doc__: str | None

    def check(self, context: LintContext, /) -> Iterator[Finding]:
        """Yield the problems in a policy."""
        ...


def rule_code(rule: LintRule) -> str:
    """Return the code of a rule's findings, such as `lint/bare-number`."""
    return "lint/" + rule.__name__.rpartition(".")[2].replace("_", "-")


def rule_page(rule: LintRule) -> str:
    """Return the text that `policyguard explain` prints."""
    return cleandoc(rule.__doc__ or "")
