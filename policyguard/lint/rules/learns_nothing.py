"""A `learn` or `radius` section, and nothing in the policy that makes a failure teach.

Failures teach by whose fault they are: the agent's, where `learn.blame` says nothing else. One
without a signature is nobody's (`unknown`), and so is one whose signature names no `blame`. Unless
the host says whose fault it was (`record(blame=…)`), such a policy learns nothing. What a signature
says in a `learn` of its own is nothing either where the policy has no `learn`. A `radius` narrows
after the failures that would teach, and by itself after no other.

Avoid:

    policyguard: 1
    name: my-agent
    limits: {default: {failures: {max: 5}}}
    learn: {corroborate: 2}

Prefer:

    policyguard: 1
    name: my-agent
    extends: [core]
    learn: {corroborate: 2}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.build.entry_paths import learn_sections
from policyguard.lint.context import LintContext
from policyguard.lint.rule import Finding
from policyguard.model.policy import Blame, Learn, Policy, Signature

_HINT = "give signatures with their `blame`; `extends: [core]` brings many"
_UNSAID = Learn(blame=("agent",))
"""Whose failures a `radius` narrows after where there is no `learn`."""


def check(subject: LintContext) -> Iterator[Finding]:
    """Sections that say what failures teach, where none ever does."""
    policy, where = subject.policy, subject.merged.span_of
    base = policy.learn
    if policy.radius and not _teaches(policy, base or _UNSAID):
        blame = _named((base or _UNSAID).blame)
        message = f"nothing in this policy blames a failure on {blame}: the radius never narrows"
        yield Finding(where(("radius",), key=True), message, _HINT)
    if base is None:
        for _, path in learn_sections(policy):
            message = "nothing is learned: the policy itself has no `learn`"
            yield Finding(where(path, key=True), message, "write `learn: {}` beside `signatures`")
        return
    if not _teaches(policy, base):
        message = f"nothing in this policy blames a failure on {_named(base.blame)}: none teaches"
        yield Finding(where(("learn",), key=True), message, _HINT)
        return
    for place, signature in enumerate(policy.signatures):
        if signature.learn is not None and not _taught(policy, signature, base):
            message = f"these failures are blamed on `{signature.blame}`, which teaches nothing"
            hint = "say whose fault it is: `blame: agent`"
            if signature.on == "success":
                message, hint = "successes teach nothing", "look into failures: `on: error`"
            yield Finding(where(("signatures", place, "learn"), key=True), message, hint)


def _teaches(policy: Policy, base: Learn) -> bool:
    """Whether any failure can teach without a word of the host."""
    teaching = _blames(base, base)
    if "unknown" in teaching or any(rule.blame in teaching for rule in policy.blame):
        return True
    return any(_taught(policy, signature, base) for signature in policy.signatures)


def _taught(policy: Policy, signature: Signature, base: Learn) -> bool:
    """Whether failures of a signature can."""
    teaching = _blames(signature.learn or base, base)
    return signature.on != "success" and (
        signature.blame in teaching or any(rule.blame in teaching for rule in policy.blame)
    )


def _blames(own: Learn, base: Learn) -> set[Blame]:
    """On whom failures are blamed that teach."""
    return set((base.blame if own.blame is None else own.blame) or ())


def _named(blame: tuple[str, ...] | None) -> str:
    return " or ".join(f"`{one}`" for one in blame or ()) or "whoever teaches"
