"""A `radius` whose schedule does not go from wide to narrow.

After failures the next step of `schedule` holds, after successes the one before. A step that is as
wide as the one before it, or wider, answers failures with more room.

Avoid:

    radius: {schedule: [5, 5, unlimited], shrink_after: 2}

Prefer:

    radius: {schedule: [unlimited, 5, 1], shrink_after: 2}
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from policyguard.engines.yaml_tree import Path
from policyguard.lint.context import LintContext
from policyguard.lint.rule import Finding


def check(subject: LintContext) -> Iterator[Finding]:
    """Steps that are not narrower than the one before."""
    layered = subject.merged
    for number, radius in enumerate(subject.policy.radius):
        path: Path = ("radius", number) if layered.has(("radius", number)) else ("radius",)
        for place, (before, step) in enumerate(pairwise(radius.schedule), 1):
            if step == "unlimited" or (before != "unlimited" and step >= before):
                message = f"`{step}` is not narrower than the step before it, `{before}`"
                yield Finding(layered.span_of((*path, "schedule", place)), message)
