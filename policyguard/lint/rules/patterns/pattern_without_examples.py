"""A signature or named pattern without an example of what it matches.

A pattern that matches nothing loads like any other, and one that matches too much shows only when
it refuses calls. `examples.match` and `examples.no_match` are checked at each load, and show the
next reader what the pattern is for.

Avoid:

    - {id: rate_limited, pattern: '(?i)too many requests', blame: harness}

Prefer:

    - id: rate_limited
      pattern: '(?i)too many requests'
      blame: harness
      examples: {match: ["HTTP 429: Too Many Requests"], no_match: ["requests: 3"]}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.lint.rule import Finding, LintContext


def check(context: LintContext) -> Iterator[Finding]:
    """Report signatures and named patterns without `examples.match`."""
    policy, span_of = context.policy, context.merged.span_of
    hint = "add texts it must match: `examples: {match: […], no_match: […]}`"
    for index, signature in enumerate(policy.signatures):
        if not signature.examples.match:
            message = f"the signature `{signature.id}` has no example of what it matches"
            yield Finding(span_of(("signatures", index, "id")), message, hint)
    for name, pattern in policy.patterns.items():
        if not pattern.examples.match:
            message = f"the pattern `{name}` has no example of what it matches"
            yield Finding(span_of(("patterns", name), key=True), message, hint)
