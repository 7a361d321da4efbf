"""From the policy's `radius` to schedules, and what makes a schedule that can do nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from policyguard.compiler.build.expressions import Expressions
from policyguard.evaluator.activation import Expression
from policyguard.learned.radius_schedule import RadiusSchedule
from policyguard.model.diagnostic import Diagnostic
from policyguard.model.policy import Policy, Radius

if TYPE_CHECKING:
    from policyguard.compiler.merge.layers import MergedPolicy
    from policyguard.engines.yaml_tree import Path


class RadiusEntry(msgspec.Struct, frozen=True):
    """A schedule, and for which calls it is: those that `when` holds for, or all.

    `id` is `radius`, or `radius/N` (the first is 1) where there are several.
    """

    id: str
    schedule: RadiusSchedule
    when: Expression | None


def build_radius_entries(policy: Policy, expressions: Expressions) -> tuple[RadiusEntry, ...]:
    """The schedules of a policy without errors; the first that fits a call is the call's."""
    # Who is to blame for a failure that teaches is to blame for one that shrinks the radius.
    taught = (policy.learn.blame if policy.learn is not None else None) or ("agent",)
    return tuple(
        RadiusEntry(
            id="radius" if len(policy.radius) == 1 else f"radius/{number + 1}",
            schedule=RadiusSchedule(
                steps=tuple(None if step == "unlimited" else step for step in entry.schedule),
                shrink_after=_require(_shrink_after(entry, policy)),
                widen_after=entry.widen_after,
                blame=frozenset(taught),
                max_errors=policy.bounds.window_entries,
            ),
            when=expressions.get("radius", number, "when"),
        )
        for number, entry in enumerate(policy.radius)
    )


def check_radius(policy: Policy, layered: MergedPolicy) -> Iterator[Diagnostic]:
    """A radius that could never refuse a call, or never shrink."""
    if not policy.radius or not layered.is_complete:
        return
    if not policy.classify.targets and not layered.broken_names("classify"):
        yield layered.diagnostic(
            "reference/no-targets",
            "`radius` counts a call's targets, and no call of this policy has any",
            layered.span_of(("radius",), key=True),
            hint="name the arguments that hold them: `classify: {targets: [path, paths]}`",
        )
    last = next((place for place, one in enumerate(policy.radius) if one.when is None), None)
    if last is not None and last + 1 < len(policy.radius):
        yield layered.diagnostic(
            "reference/no-effect",
            "the schedule before this one has no `when`: it is for every call that comes to it",
            layered.span_of(("radius", last + 1)),
            hint="put the one without `when` last",
        )
    for number, entry in enumerate(policy.radius):
        if _shrink_after(entry, policy) is None:
            path: Path = ("radius", number)
            yield layered.diagnostic(
                "reference/never-shrinks",
                "nothing says after how many failures this radius shrinks",
                layered.span_of(path if layered.has(path) else ("radius",)),
                hint="give `shrink_after`, or a `learn` section: its `corroborate` is the default",
            )


def _require(count: int | None) -> int:
    assert count is not None  # noqa: S101 - `check_radius` has refused the policy where it is
    return count


def _shrink_after(entry: Radius, policy: Policy) -> int | None:
    if entry.shrink_after is None and policy.learn is not None:
        return policy.learn.corroborate
    return entry.shrink_after
