"""Paths of a policy's entries in the merged tree."""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.model.entry import Example
from policyguard.model.policy import Learn, Policy, Rule

Path = tuple[str | int, ...]


def learn_sections(policy: Policy) -> Iterator[tuple[Learn, Path]]:
    """Yield the policy's `learn` and those of its signatures, each with its path."""
    if policy.learn is not None:
        yield policy.learn, ("learn",)
    for index, signature in enumerate(policy.signatures):
        if signature.learn is not None:
            yield signature.learn, ("signatures", index, "learn")


def rule_examples(policy: Policy) -> Iterator[tuple[Rule, Example, bool, Path]]:
    """Yield each example with its rule, whether the rule must match it, and its path."""
    for rule in policy.rules:
        for kind, examples in (
            ("match", rule.examples.match),
            ("no_match", rule.examples.no_match),
        ):
            for index, example in enumerate(examples):
                yield rule, example, kind == "match", ("rules", rule.id, "examples", kind, index)


def level_path(level: str) -> Path:
    """Return the path of a level of limits: `tools:web_*` is at `limits`, `tools`, `web_*`."""
    group, colon, name = level.partition(":")
    return ("limits", group, name) if colon else ("limits", group)
