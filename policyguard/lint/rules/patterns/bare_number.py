r"""A number in a pattern that also matches inside longer numbers.

Tool output is full of numbers: line numbers, sizes, times, ports. A bare `429` also matches in
`cannot write 14290 bytes`, so a full disk is misclassified as a rate limit.

Avoid:

    pattern: '(?i)429|too many requests'

Prefer:

    pattern: '(?i)\bHTTP 429\b|\bstatus[ :=]+429\b|too many requests'
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from policyguard.lint.analysis.patterns import compile_regex, find_patterns
from policyguard.lint.analysis.regex_ast import literals
from policyguard.lint.analysis.required_literals import literal_alternatives
from policyguard.lint.rule import Finding, LintContext

_NUMBER = re.compile(r"[0-9]+")


def check(context: LintContext) -> Iterator[Finding]:
    """Report alternatives that are a number and that RE2 matches between other digits."""
    for pattern in find_patterns(context):
        if pattern.kind == "condition":
            continue
        for node, texts in literal_alternatives(pattern.text):
            for number in sorted(text.text for text in texts if _NUMBER.fullmatch(text.text)):
                longer = f"1{number}0"
                if compile_regex(pattern.text).find_span(longer) == (1, 1 + len(number)):
                    start = next((found.start for found in literals(node)), node.start)
                    span = pattern.subspan(start, node.end)
                    message = f"`{number}` also matches inside longer numbers such as `{longer}`"
                    hint = rf"write `\b{number}\b`, or better, include the surrounding words"
                    yield Finding(span, message, hint)
                    break
