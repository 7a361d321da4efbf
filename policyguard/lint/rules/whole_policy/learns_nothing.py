"""A `learn` or `radius` section in a policy where no failure can teach.

Only failures blamed on the parties in `learn.blame` teach; the default is the agent. A failure
without a signature, or whose signature sets no `blame`, is blamed on `unknown`. Unless the host
sets the blame (`record(blame=…)`), such a policy learns nothing. A signature's own `learn` needs
a `learn` section in the policy. A `radius` shrinks only after failures that teach.

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
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.policy import Blame, Learn, Policy, Signature

_HINT = "add signatures with a `blame`, or `extends: [core]`, which has many"
_DEFAULT_LEARN = Learn(blame=("agent",))
"""The default blame for a `radius` in a policy without `learn`."""


def check(context: LintContext) -> Iterator[Finding]:
    """Report sections about learning in a policy where no failure can teach."""
    policy, span_of = context.policy, context.merged.span_of
    base = policy.learn
    if policy.radius and not _can_teach(policy, base or _DEFAULT_LEARN):
        blame = _format_blame((base or _DEFAULT_LEARN).blame)
        message = f"no signature or blame rule blames {blame}, so the radius never shrinks"
        yield Finding(span_of(("radius",), key=True), message, _HINT)
    if base is None:
        for _, path in learn_sections(policy):
            message = "this learns nothing, because the policy has no `learn` section"
            yield Finding(span_of(path, key=True), message, "add `learn: {}` to the policy")
        return
    if not base.blame:  # written on purpose, to switch off what is inherited
        return
    if not _can_teach(policy, base):
        message = (
            f"no signature or blame rule blames {_format_blame(base.blame)}, so nothing is learned"
        )
        yield Finding(span_of(("learn",), key=True), message, _HINT)
        return
    for index, signature in enumerate(policy.signatures):
        if signature.learn is not None and not _signature_can_teach(policy, signature, base):
            message = f"failures blamed on `{signature.blame}` teach nothing"
            hint = "set `blame: agent`"
            if signature.on == "success":
                message, hint = "successes teach nothing", "match failures: `on: error`"
            yield Finding(span_of(("signatures", index, "learn"), key=True), message, hint)


def _can_teach(policy: Policy, base: Learn) -> bool:
    """Return whether any failure can teach if the host sets no blame."""
    blame = _teaching_blame(base, base)
    if "unknown" in blame or any(rule.blame in blame for rule in policy.blame):
        return True
    return any(_signature_can_teach(policy, signature, base) for signature in policy.signatures)


def _signature_can_teach(policy: Policy, signature: Signature, base: Learn) -> bool:
    """Return whether failures with this signature can teach."""
    blame = _teaching_blame(signature.learn or base, base)
    return signature.on != "success" and (
        signature.blame in blame or any(rule.blame in blame for rule in policy.blame)
    )


def _teaching_blame(own: Learn, base: Learn) -> set[Blame]:
    """Return the blame that makes a failure teach."""
    return set((base.blame if own.blame is None else own.blame) or ())


def _format_blame(blame: tuple[str, ...] | None) -> str:
    return " or ".join(f"`{party}`" for party in blame or ()) or "anyone"
