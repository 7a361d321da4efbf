"""A `radius` whose schedule does not go from wide to narrow.

Failures move to the next entry of `schedule`, successes to the previous one. An entry that is not
narrower than the one before answers failures with more room.

Avoid:

    radius: {schedule: [5, 5, unlimited], shrink_after: 2}

Prefer:

    radius: {schedule: [unlimited, 5, 1], shrink_after: 2}
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from policyguard.engines.yaml_tree import Path
from policyguard.lint.rule import Finding, LintContext


def check(context: LintContext) -> Iterator[Finding]:
    """Report schedule entries that are not narrower than the one before."""
    merged = context.merged
    for number, radius in enumerate(context.policy.radius):
        path: Path = ("radius", number) if merged.has(("radius", number)) else ("radius",)
        for index, (before, width) in enumerate(pairwise(radius.schedule), 1):
            if width == "unlimited" or (before != "unlimited" and width >= before):
                message = f"`{width}` is not narrower than `{before}` before it"
                yield Finding(merged.span_of((*path, "schedule", index)), message)
