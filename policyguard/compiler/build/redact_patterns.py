"""The patterns of `journal.redact`: what they find is written nowhere, and told to nobody."""

from __future__ import annotations

from collections.abc import Callable

from policyguard.compiler.build.selectors import compile_glob
from policyguard.engines.regex import Regex
from policyguard.model.policy import Policy


def redact_patterns(policy: Policy) -> list[tuple[str, Callable[[str, str], str]]]:
    """Each pattern's name, and how to put a text in place of what it finds."""
    wanted = [compile_glob(item) for item in policy.journal.redact]
    return [
        (name, Regex(pattern.match).replace)
        for name, pattern in policy.patterns.items()
        if any(matches(name) for matches in wanted)
    ]


def build_redactor(policy: Policy) -> Callable[[str], str]:
    """A function that blots out of a text what the patterns find, as `[name]`."""
    found = [(f"[{name}]", replace) for name, replace in redact_patterns(policy)]

    def redact(text: str) -> str:
        for mark, replace in found:
            text = replace(text, mark)
        return text

    return redact
