"""A class of commands that may poll, and that other commands of the same text get, too.

A call is of a class by `commands` if any command of its text matches. So `make test; gh run watch`
is of a class with `commands: [gh run watch]`, and what its limits allow, `make test` may do.

Avoid:

    classify: {classes: [{class: ci, commands: [gh run watch]}]}
    limits: {classes: {ci: {polling: {unchanged: 500}}}}

Prefer:

    classify: {classes: [{class: ci, when: "call.command.only_runs(['gh run watch'])"}]}
    limits: {classes: {ci: {polling: {unchanged: 500}}}}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.lint.rule import Finding, LintContext
from policyguard.model.limits import PollingLimit
from policyguard.model.policy import ClassEntry

_FUNCTION = "only_runs"
_SHOWN = 3


def check(context: LintContext) -> Iterator[Finding]:
    """Report `commands` of classes whose limits let them poll."""
    polling = {
        level.removeprefix("classes:")
        for level, limits in context.policy.limits.items()
        if level.startswith("classes:") and isinstance(limits.polling, PollingLimit)
    }
    for index, entry in enumerate(context.policy.classify.classes):
        if entry.class_ in polling and entry.commands and not _has_no_other(entry):
            patterns = ", ".join(f"'{pattern}'" for pattern in entry.commands[:_SHOWN])
            patterns += ", …" if len(entry.commands) > _SHOWN else ""
            yield Finding(
                context.merged.span_of(("classify", "classes", index, "commands"), key=True),
                "another command of the same text may poll, too: it is of this class by "
                "any command that matches",
                f'write `when: "call.command.{_FUNCTION}([{patterns}])"` instead',
            )


def _has_no_other(entry: ClassEntry) -> bool:
    """Whether the class requires that each command is listed."""
    return entry.when is not None and _FUNCTION in entry.when
