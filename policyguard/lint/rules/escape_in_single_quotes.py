r"""An escape in a message that YAML does not read.

Only double quotes have escapes. In single quotes, without quotes and in blocks `\n` is a backslash
and an `n`, and that is what the model is told.

Avoid:

    message: 'not on Fridays\nask the release manager'

Prefer:

    message: "not on Fridays\nask the release manager"
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from policyguard.engines.yaml_tree import Path, ScalarNode
from policyguard.lint.context import LintContext
from policyguard.lint.rule import Finding
from policyguard.model.diagnostic import Edit

_ESCAPE = re.compile(r'\\(?:[nt"]|u[0-9a-fA-F]{4})')
_OTHER = re.compile(r"[A-Za-z]:\\|\\\\|\\(?![nt\"]|u[0-9a-fA-F]{4})")
"""Backslashes that are meant: of Windows paths, doubled ones, those before anything else."""


def check(subject: LintContext) -> Iterator[Finding]:
    """Messages with an escape, in a style that has none."""
    policy = subject.policy
    sections = (
        ("rules", policy.rules, ("message", "instead")),
        ("budgets", policy.budgets, ("message", "instead")),
        ("result_rules", policy.result_rules, ("message",)),
    )
    for section, entries, keys in sections:
        for entry in entries:
            for key in keys:
                yield from _message(subject, (section, entry.id, key))


def _message(subject: LintContext, path: Path) -> Iterator[Finding]:
    node = subject.merged.node(path)
    if not subject.merged.has(path) or not isinstance(node, ScalarNode) or node.style == '"':
        return
    if _OTHER.search(node.text):
        return
    for escape in _ESCAPE.finditer(node.text):
        message = f"`{escape[0]}` is no escape here, but a backslash and what follows"
        edits = _in_double_quotes(node)
        yield Finding(node.subspan(*escape.span()), message, "write it in double quotes", edits)


def _in_double_quotes(node: ScalarNode) -> tuple[Edit, ...]:
    """The text in double quotes; nothing where it stands in several lines."""
    if node.style in ("|", ">") or "\n" in node.source.text[node.start : node.end]:
        return ()
    return (Edit(node.span, '"' + re.sub(r'(?<!\\)"', r"\"", node.text) + '"'),)
