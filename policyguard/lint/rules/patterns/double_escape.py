r"""A pattern that matches a literal backslash where an escape was probably meant.

YAML processes no escapes in single-quoted and plain scalars: `'\\brm'` is the pattern `\\brm`,
which matches a backslash followed by `brm`. The rule loads but never fires.

In CEL, `r'…'` processes no escapes, while `'…'` does: `'\brm'` starts with a backspace.

Avoid:

    pattern: '\\brm\\s'
    when: call.command.matches('\bsudo\b')

Prefer:

    pattern: '\brm\s'
    when: call.command.matches(r'\bsudo\b')
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from policyguard.lint.analysis.patterns import Pattern, find_patterns
from policyguard.lint.rule import Finding, LintContext

_ESCAPE = re.compile(r"\\(\\?)(.?)", re.DOTALL)
_CLASSES = frozenset("bBdDwWsS")
"""Letters that follow one backslash in a pattern, and are unlikely to follow two."""


def check(context: LintContext) -> Iterator[Finding]:
    r"""Report patterns that contain `\\b` and the like but no single escape, or a backspace."""
    for pattern in find_patterns(context):
        if pattern.examples.match:
            continue  # its examples pass, so the pattern is as intended
        yield from _double_escapes(pattern)
        index = pattern.text.find("\b")
        if index >= 0:
            message = "the pattern matches a backspace (U+0008), not a word boundary"
            yield Finding(pattern.subspan(index, index + 1), message, _suggestion(pattern, "b"))


def _double_escapes(pattern: Pattern) -> Iterator[Finding]:
    doubled: list[tuple[int, int, str]] = []
    for escape in _ESCAPE.finditer(pattern.text):
        if escape[1] and escape[2] in _CLASSES:
            doubled.append((*escape.span(), escape[2]))
        elif not escape[1] and escape[2] in _CLASSES:
            return  # an author who writes both knows the difference
    if doubled:
        start, end, letter = doubled[0]
        message = (
            f"`\\\\{letter}` matches a backslash and `{letter}`; escapes are not processed here"
        )
        yield Finding(pattern.subspan(start, end), message, _suggestion(pattern, letter))


def _suggestion(pattern: Pattern, letter: str) -> str:
    """Return how to write the escape in this kind of scalar."""
    if pattern.node is None:
        return f"write `r'\\{letter}'`"
    double = pattern.node.style == '"'
    return f"write `\\\\{letter}` in double quotes" if double else f"write `\\{letter}`"
