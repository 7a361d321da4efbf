"""Build radius schedules, and report schedules without effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from policyguard.compiler.build.entry_paths import radius_id
from policyguard.compiler.build.expressions import Expressions
from policyguard.compiler.build.selectors.call_readers import TARGETS_HINT
from policyguard.evaluator.activation import Expression
from policyguard.learned.radius_schedule import RadiusSchedule
from policyguard.model.diagnostic import Diagnostic
from policyguard.model.policy import Policy, Radius

if TYPE_CHECKING:
    from policyguard.compiler.merge.layers import MergedPolicy
    from policyguard.engines.yaml_tree import Path


class RadiusEntry(msgspec.Struct, frozen=True):
    """A schedule for the calls that `when` matches, or all."""

    id: str
    schedule: RadiusSchedule
    when: Expression | None


def build_radius_entries(policy: Policy, expressions: Expressions) -> tuple[RadiusEntry, ...]:
    """Return a policy's schedules; the first that matches a call applies."""
    # Failures shrink the radius under the same blame as they teach.
    blame = (policy.learn.blame if policy.learn is not None else None) or ("agent",)
    return tuple(
        RadiusEntry(
            id=radius_id(policy, index),
            schedule=RadiusSchedule(
                steps=tuple(None if step == "unlimited" else step for step in entry.schedule),
                shrink_after=_require(_shrink_after(entry, policy)),
                widen_after=entry.widen_after,
                blame=frozenset(blame),
                max_errors=policy.bounds.window_entries,
            ),
            when=expressions.get("radius", index, "when"),
        )
        for index, entry in enumerate(policy.radius)
    )


def check_radius(policy: Policy, merged: MergedPolicy) -> Iterator[Diagnostic]:
    """Report a radius that can never refuse a call, or never shrink."""
    if not policy.radius or not merged.is_complete:
        return
    if not policy.classify.targets and not merged.broken_names("classify"):
        yield merged.diagnostic(
            "reference/no-targets",
            "`radius` needs targets, but this policy defines none",
            ("radius",),
            key=True,
            hint=TARGETS_HINT,
        )
    last = next((index for index, one in enumerate(policy.radius) if one.when is None), None)
    if last is not None and last + 1 < len(policy.radius):
        yield merged.diagnostic(
            "reference/no-effect",
            "this schedule is never used: the previous one has no `when` and matches every call",
            ("radius", last + 1),
            hint="move the schedule without `when` to the end",
        )
    for index, entry in enumerate(policy.radius):
        if _shrink_after(entry, policy) is None:
            path: Path = ("radius", index)
            yield merged.diagnostic(
                "reference/never-shrinks",
                "this radius never shrinks: `shrink_after` is missing",
                path if merged.has(path) else ("radius",),
                hint="set `shrink_after`, or `corroborate` in `learn`, which is the default",
            )


def _require(count: int | None) -> int:
    assert count is not None  # noqa: S101 - `check_radius` ensures it
    return count


def _shrink_after(entry: Radius, policy: Policy) -> int | None:
    if entry.shrink_after is None and policy.learn is not None:
        return policy.learn.corroborate
    return entry.shrink_after
