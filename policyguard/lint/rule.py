"""What a lint rule is: a module whose docstring is its page, and a function that finds.

The module's name is the rule's code: `rules/bare_number.py` finds `lint/bare-number`.
"""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc
from typing import NamedTuple, Protocol

from policyguard.lint.context import LintContext
from policyguard.model.diagnostic import Edit, Severity, Span


class Finding(NamedTuple):
    """What a rule has against a policy, and where; the rule itself gives the code.

    `help` says what to write instead. `edits` write it, and are given only where there is no doubt
    that this is meant.
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

    def check(self, subject: LintContext, /) -> Iterator[Finding]:
        """Everything that the rule has against a policy. Reads, and changes nothing."""
        ...


def rule_code(rule: LintRule) -> str:
    """The code of what a rule finds: `lint/bare-number`."""
    return "lint/" + rule.__name__.rpartition(".")[2].replace("_", "-")


def rule_page(rule: LintRule) -> str:
    """What `policyguard explain` prints."""
    return cleandoc(rule.__doc__ or "")
