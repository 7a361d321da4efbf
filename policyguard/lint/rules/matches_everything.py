"""A pattern that finds something in every text.

An option too many (`error|`, `(?:fatal )?`, `x*`) finds the empty text, and that stands in every
text: every failure has the signature, every character is redacted, the condition always holds. A
signature for whatever is left over is written `.` or `.*`, and stands last.

Avoid:

    pattern: '(?i)timeout|timed out|'

Prefer:

    pattern: '(?i)timeout|timed out'
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.lint.analysis.patterns import Pattern, compile_regex, find_patterns
from policyguard.lint.analysis.regex_ast import UnsupportedRegexError, literals, parse_regex
from policyguard.lint.context import LintContext
from policyguard.lint.rule import Finding

_TEXTS = ("a", "0 9", "  ", "!?", "ünï", "Error: x")
"""Texts that have nothing in common but that there is something."""


def check(subject: LintContext) -> Iterator[Finding]:
    """Patterns that RE2 finds in all of some unlike texts."""
    for pattern in find_patterns(subject):
        search = compile_regex(pattern.text).search
        if not all(map(search, _TEXTS)) or _is_the_rest(subject, pattern):
            continue
        message = "this pattern finds something in every text"
        if search(""):
            message += ": it also finds the empty one"
        hint: str | None = "does it have a `|`, `?` or `*` too many?"
        if pattern.kind == "condition":
            hint = None
        elif not _has_literals(pattern) and pattern.kind != "pattern":
            hint = "put it last: nothing behind it is ever told"
        yield Finding(pattern.subspan(0, len(pattern.text)), message, hint)


def _is_the_rest(subject: LintContext, pattern: Pattern) -> bool:
    """Whether it stands last in its list and is written to find anything."""
    if _has_literals(pattern):
        return False
    if pattern.kind == "signature":
        entry, *later = subject.policy.signatures[int(pattern.path[-1]) :]
        return not any(entry.on in ("any", other.on) for other in later)
    last = len(subject.policy.outcomes.envelope) - 1
    return pattern.kind == "envelope" and pattern.path[-1] == last


def _has_literals(pattern: Pattern) -> bool:
    """Whether the pattern names a character: then it was meant to find something in particular."""
    try:
        return any(True for _ in literals(parse_regex(pattern.text)))
    except UnsupportedRegexError:
        return True
