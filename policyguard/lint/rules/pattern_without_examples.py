"""A signature or named pattern that nothing shows to find what it should.

A pattern that finds nothing loads like any other, and one that finds too much is noticed when
calls are refused. `examples.match` and `examples.no_match` stand beside it, are run at each load,
and tell the next reader what was meant.

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

from policyguard.lint.context import LintContext
from policyguard.lint.rule import Finding


def check(subject: LintContext) -> Iterator[Finding]:
    """Signatures and named patterns without `examples.match`."""
    policy, layered = subject.policy, subject.merged
    hint = "give texts that it must find something in: `examples: {match: […], no_match: […]}`"
    for place, signature in enumerate(policy.signatures):
        if not signature.examples.match:
            message = f"no example shows what the signature `{signature.id}` finds"
            yield Finding(layered.span_of(("signatures", place, "id")), message, hint)
    for name, pattern in policy.patterns.items():
        if not pattern.examples.match:
            message = f"no example shows what the pattern `{name}` finds"
            yield Finding(layered.span_of(("patterns", name), key=True), message, hint)
