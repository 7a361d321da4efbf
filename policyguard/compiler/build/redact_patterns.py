"""Redact the matches of `journal.redact` patterns from journals and messages."""

from __future__ import annotations

from collections.abc import Callable

from policyguard.compiler.build.selectors import compile_glob
from policyguard.engines.regex import Regex
from policyguard.model.policy import Policy


def redact_patterns(policy: Policy) -> list[tuple[str, Callable[[str, str], str]]]:
    """Return the names of the patterns, each with its replace function."""
    globs = [compile_glob(item) for item in policy.journal.redact]
    return [
        (name, Regex(pattern.match).replace)
        for name, pattern in policy.patterns.items()
        if any(matches(name) for matches in globs)
    ]


def build_redactor(policy: Policy) -> Callable[[str], str]:
    """Return a function that replaces the patterns' matches in a text with `[name]`."""
    found = [(f"[{name}]", replace) for name, replace in redact_patterns(policy)]

    def redact(text: str) -> str:
        for label, replace in found:
            text = replace(text, label)
        return text

    return redact
