"""Check what result rules need to have an effect."""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.build.named_patterns import NamedPatterns
from policyguard.compiler.merge.layers import MergedPolicy
from policyguard.engines.regex import Regex, RegexError
from policyguard.model.diagnostic import Diagnostic
from policyguard.model.policy import Policy, ResultRule


def check_result_rules(policy: Policy, merged: MergedPolicy) -> Iterator[Diagnostic]:
    """Report rules that lack what their effect needs, and keys that it does not use."""
    if not policy.result_rules:
        return
    broken = merged.broken_names("result_rules")
    for rule in policy.result_rules:
        path = ("result_rules", rule.id)
        if rule.id in broken:
            continue
        for key, message, hint in _find_missing_keys(rule):
            yield merged.diagnostic(
                "schema/missing-key", message, (*path, key), key=True, hint=hint
            )
        if rule.keep is not None and rule.effect != "truncate":
            message = (
                f"`keep` is for `effect: truncate`, but this rule has the effect {rule.effect}"
            )
            yield merged.diagnostic("reference/no-effect", message, (*path, "keep"), key=True)
    yield from _check_labels(policy, merged)


def _find_missing_keys(rule: ResultRule) -> Iterator[tuple[str, str, str]]:
    if rule.effect == "redact" and rule.finds is None:
        message = "`redact` needs `finds`, which names the patterns that it replaces"
        yield "effect", message, "write `finds: [pattern]`, or `effect: withhold`"
    if rule.effect == "truncate" and rule.keep is None:
        message = "`truncate` needs `keep`, the number of characters that it leaves"
        yield "effect", message, "write `keep: 20000`"


def _check_labels(policy: Policy, merged: MergedPolicy) -> Iterator[Diagnostic]:
    """Report patterns that match their own `[name]`: nothing they redact is ever clean."""
    redacting = [rule.finds for rule in policy.result_rules if rule.effect == "redact"]
    globs = {item for finds in redacting if finds is not None for item in finds.items}
    for name, source in NamedPatterns(policy).find(globs):
        try:
            matches = any(Regex(source).find_all(f"[{name}]".encode()))
        except RegexError:
            continue  # reported as such
        if matches:
            message = f"`redact` replaces its matches by `[{name}]`, which it matches too"
            hint = "rename the pattern, or let it match less"
            yield merged.diagnostic(
                "regex/own-label", message, ("patterns", name), key=True, hint=hint
            )
