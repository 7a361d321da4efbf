"""Signatures in a policy where nothing depends on them.

A signature says what failed and who is to blame. `learn`, `radius`, `outage`, `failures` with a
`signature`, and expressions that read `outcome.signature` or `outcome.blame` depend on it. A
policy without any of these classifies failures and treats them all alike.

Avoid:

    policyguard: 1
    name: my-agent
    signatures: [{id: rate_limited, pattern: 'too many requests', blame: harness}]
    limits: {default: {failures: {max: 5}}}

Prefer:

    limits: {default: {outage: {max: 5, within: 1m, cooldown: 30s}}}
    signatures: [{id: rate_limited, pattern: 'too many requests', blame: harness}]
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.lint.analysis.references import uses_signatures
from policyguard.lint.rule import Finding, LintContext


def check(context: LintContext) -> Iterator[Finding]:
    """Report `signatures` if nothing depends on a signature or blame."""
    if context.policy.signatures and not uses_signatures(context):
        message = "nothing in this policy depends on a signature or on blame"
        hint = "add `learn` or an `outage` limit, or `extends: [core]`, which has `learn`"
        yield Finding(context.merged.span_of(("signatures",), key=True), message, hint)
