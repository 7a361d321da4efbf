"""Signatures of a policy in which nothing depends on what a failure is.

Signatures say what failed and whose fault it was. That matters to `learn`, `radius`, `outage`,
`failures` with a `signature`, and expressions that read `outcome.signature` or `outcome.blame`. A
policy without any of these tells failures apart and does the same with all of them.

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
from policyguard.lint.context import LintContext
from policyguard.lint.rule import Finding


def check(subject: LintContext) -> Iterator[Finding]:
    """The section `signatures`, where nothing looks at signatures or blame."""
    if subject.policy.signatures and not uses_signatures(subject):
        message = "nothing in this policy depends on a failure's signature or blame"
        hint = "add `learn`, or an `outage` limit; `extends: [core]` brings `learn`"
        yield Finding(subject.merged.span_of(("signatures",), key=True), message, hint)
