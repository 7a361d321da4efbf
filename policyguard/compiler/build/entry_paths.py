"""The places of a policy that say what failures teach."""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.model.policy import Learn, Policy

Path = tuple[str | int, ...]


def learn_sections(policy: Policy) -> Iterator[tuple[Learn, Path]]:
    """The policy's `learn`, and those of its signatures, each with its path."""
    if policy.learn is not None:
        yield policy.learn, ("learn",)
    for number, signature in enumerate(policy.signatures):
        if signature.learn is not None:
            yield signature.learn, ("signatures", number, "learn")
