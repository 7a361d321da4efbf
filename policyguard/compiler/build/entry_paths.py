"""Paths of a policy's entries in the merged tree."""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.model.policy import Learn, Policy

Path = tuple[str | int, ...]


def learn_sections(policy: Policy) -> Iterator[tuple[Learn, Path]]:
    """Yield the policy's `learn` and those of its signatures, each with its path."""
    if policy.learn is not None:
        yield policy.learn, ("learn",)
    for index, signature in enumerate(policy.signatures):
        if signature.learn is not None:
            yield signature.learn, ("signatures", index, "learn")


def level_path(level: str) -> Path:
    """Return the path of a level of limits: `tools:web_*` is at `limits`, `tools`, `web_*`."""
    group, colon, name = level.partition(":")
    return ("limits", group, name) if colon else ("limits", group)
