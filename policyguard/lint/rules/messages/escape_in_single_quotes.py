r"""An escape in a message that YAML does not process.

YAML processes escapes only in double quotes. In single-quoted, plain and block scalars, `\n` is a
backslash and an `n`, and the model sees exactly that.

Avoid:

    message: 'not on Fridays\nask the release manager'

Prefer:

    message: "not on Fridays\nask the release manager"
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from policyguard.engines.yaml_tree import Path, ScalarNode
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.diagnostic import Edit

_ESCAPE = re.compile(r'\\(?:[nt"]|u[0-9a-fA-F]{4})')
_INTENDED = re.compile(r"[A-Za-z]:\\|\\\\|\\(?![nt\"]|u[0-9a-fA-F]{4})")
"""Intended backslashes: in Windows paths, doubled ones, and before any other character."""


def check(context: LintContext) -> Iterator[Finding]:
    """Report escapes in messages whose YAML style has none."""
    policy = context.policy
    sections = (
        ("rules", policy.rules, ("message", "instead")),
        ("budgets", policy.budgets, ("message", "instead")),
        ("result_rules", policy.result_rules, ("message",)),
    )
    for section, entries, keys in sections:
        for entry in entries:
            for key in keys:
                yield from _check_message(context, (section, entry.id, key))


def _check_message(context: LintContext, path: Path) -> Iterator[Finding]:
    node = context.merged.node(path)
    if not context.merged.has(path) or not isinstance(node, ScalarNode) or node.style == '"':
        return
    if _INTENDED.search(node.text):
        return
    for escape in _ESCAPE.finditer(node.text):
        message = f"`{escape[0]}` is not an escape here; the model would see it literally"
        edits = _quote_edits(node)
        yield Finding(node.subspan(*escape.span()), message, "use double quotes", edits)


def _quote_edits(node: ScalarNode) -> tuple[Edit, ...]:
    """Return the edit to double quotes, or nothing if the scalar spans several lines."""
    if node.style in ("|", ">") or "\n" in node.source.text[node.start : node.end]:
        return ()
    return (Edit(node.span, '"' + re.sub(r'(?<!\\)"', r"\"", node.text) + '"'),)
