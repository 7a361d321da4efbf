r"""A pattern that looks for a backslash where it should have been an escape.

In single quotes and without quotes YAML reads no escapes: `'\\brm'` is the pattern `\\brm`, which
finds a backslash followed by `brm`, and that stands in no text. The rule loads and never fires.

In CEL, `r'…'` reads no escapes, and in `'…'` one backslash is one level: `'\brm'` is a backspace.

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
from policyguard.lint.context import LintContext
from policyguard.lint.rule import Finding

_ESCAPE = re.compile(r"\\(\\?)(.?)", re.DOTALL)
_CLASSES = frozenset("bBdDwWsS")
"""What stands behind one backslash in a pattern, and behind two in no text that is looked for."""


def check(subject: LintContext) -> Iterator[Finding]:
    r"""Patterns with `\b` and the like and no escape of that kind, and those with a backspace."""
    for pattern in find_patterns(subject):
        if pattern.examples.match:
            continue  # they are found: the pattern means what it says
        yield from _doubled(pattern)
        place = pattern.text.find("\b")
        if place >= 0:
            message = "the pattern looks for a backspace (U+0008), not for the edge of a word"
            yield Finding(pattern.subspan(place, place + 1), message, _written(pattern, "b"))


def _doubled(pattern: Pattern) -> Iterator[Finding]:
    doubled: list[tuple[int, int, str]] = []
    for escape in _ESCAPE.finditer(pattern.text):
        if escape[1] and escape[2] in _CLASSES:
            doubled.append((*escape.span(), escape[2]))
        elif not escape[1] and escape[2] in _CLASSES:
            return  # whoever writes both knows the difference
    if doubled:
        start, end, letter = doubled[0]
        message = f"`\\\\{letter}` looks for a backslash and `{letter}`; no escape is read here"
        yield Finding(pattern.subspan(start, end), message, _written(pattern, letter))


def _written(pattern: Pattern, letter: str) -> str:
    """How the escape is written where the pattern stands."""
    if pattern.node is None:
        return f"write `r'\\{letter}'`"
    double = pattern.node.style == '"'
    return f"write `\\\\{letter}` in double quotes" if double else f"write `\\{letter}`"
