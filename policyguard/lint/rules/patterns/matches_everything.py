"""A pattern that matches every text.

One alternative too many (`error|`, `(?:fatal )?`, `x*`) matches the empty text, which every text
contains: every failure gets the signature, every character is redacted, the condition always
holds. Write a signature for everything else as `.` or `.*`, and put it last.

Avoid:

    pattern: '(?i)timeout|timed out|'

Prefer:

    pattern: '(?i)timeout|timed out'
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.lint.analysis.patterns import Pattern, compile_regex, find_patterns
from policyguard.lint.analysis.regex_ast import UnsupportedRegexError, literals, parse_regex
from policyguard.lint.rule import Finding, LintContext

_UNLIKE_TEXTS = ("a", "0 9", "  ", "!?", "ünï", "Error: x")
"""Unlike texts that no useful pattern matches all of."""


def check(context: LintContext) -> Iterator[Finding]:
    """Report patterns that RE2 finds in all of several unlike texts."""
    for pattern in find_patterns(context):
        search = compile_regex(pattern.text).search
        if not all(map(search, _UNLIKE_TEXTS)) or _is_catch_all(context, pattern):
            continue
        message = "this pattern matches every text"
        if search(""):
            message += ", also the empty one"
        hint: str | None = "remove the superfluous `|`, `?` or `*`"
        if pattern.kind == "condition":
            hint = None
        elif not _has_literals(pattern) and pattern.kind != "pattern":
            hint = "put it last: entries after it never match"
        yield Finding(pattern.subspan(0, len(pattern.text)), message, hint)


def _is_catch_all(context: LintContext, pattern: Pattern) -> bool:
    """Return whether the pattern is last in its list and a deliberate catch-all."""
    if _has_literals(pattern):
        return False
    if pattern.kind == "signature":
        entry, *later = context.policy.signatures[int(pattern.path[-1]) :]
        return not any(entry.on in ("any", other.on) for other in later)
    last = len(context.policy.outcomes.envelope) - 1
    return pattern.kind == "envelope" and pattern.path[-1] == last


def _has_literals(pattern: Pattern) -> bool:
    """Return whether the pattern contains a literal character, so is not a catch-all."""
    try:
        return any(True for _ in literals(parse_regex(pattern.text)))
    except UnsupportedRegexError:
        return True
