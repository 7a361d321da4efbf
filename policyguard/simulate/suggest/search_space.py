"""What can be turned about a policy: thresholds, windows and budgets, each with values to try."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from policyguard.compiler import CompiledPolicy
from policyguard.engines.yaml_tree import Path, descend, to_plain
from policyguard.model.limits import Budget, Limit, PollingLimit, RepeatLimit

_LIMIT_KINDS = ("repeat", "cycle", "failures", "polling")
_FACTORS = ((1, 4), (1, 3), (1, 2), (2, 3), (3, 4), (1, 1), (5, 4), (3, 2), (2, 1), (3, 1))
"""What a threshold is multiplied with: finer where it is, coarser further out."""
_MIN_THRESHOLD = 2
"""The least threshold that is tried: one would refuse the first repetition."""
_WINDOW_FACTOR = 2
"""What a window is multiplied with, besides `all`."""
_QUANTILES = ((9, 10), (19, 20), (49, 50), (1, 1))
_EXTRA_FACTORS = ((5, 4), (3, 2), (2, 1))
"""Budgets beyond the largest of the runs, as factors."""

BudgetScope = Literal["session", "turn"]
Setting = tuple[tuple[str, int | str], ...]
"""The values of an option by key, as `(("max", 3), ("window", 10))`."""


class Option(NamedTuple):
    """A value to try. `entry` is the whole entry as YAML has it; None: there is no such entry."""

    setting: Setting
    entry: dict[str, Any] | None


class Axis(NamedTuple):
    """An entry and its options, of which the first is what the policy has."""

    id: str
    path: Path
    options: tuple[Option, ...]

    def covers(self, entry: str) -> bool:
        """Whether an entry that has fired is this one, or a part of it."""
        return entry == self.id or entry.startswith(f"{self.id}/")


def build_search_space(
    compiled: CompiledPolicy, calls: dict[BudgetScope, Sequence[int]]
) -> list[Axis]:
    """All that can be turned. `calls` are those of successful runs, by what a budget is for."""
    return [*_limit_axes(compiled), *_budget_axes(compiled), *_new_budget_axes(compiled, calls)]


def _limit_axes(compiled: CompiledPolicy) -> Iterator[Axis]:
    for level, limits in compiled.policy.limits.items():
        group, _, name = level.partition(":")
        for kind in _LIMIT_KINDS:
            limit = getattr(limits, kind)
            if not isinstance(limit, Limit) or (limit.mode or limits.mode) == "observe":
                continue
            path: Path = ("limits", *((group, name) if name else (group,)), kind)
            entry = _written_entry(compiled, path)
            options = list(_limit_options(limit, entry))
            if len(options) > 1:
                yield Axis(f"limits/{level}/{kind}", path, tuple(options))


def _limit_options(limit: Limit, entry: dict[str, Any]) -> Iterator[Option]:
    polling = isinstance(limit, PollingLimit)
    key = "unchanged" if polling else "max"
    threshold = getattr(limit, key)
    if threshold is None:
        return
    # The first answer to a poll is none that is equal to another.
    first = 1 if polling else 0
    for value in _nearby_values(threshold):
        steps = shift_escalation(limit, threshold + first, value + first)
        kept = {name: held for name, held in entry.items() if not name.endswith("_at")}
        changed = {**kept, key: value, **steps}
        if not isinstance(limit, RepeatLimit):
            yield Option(((key, value),), entry if value == threshold else changed)
            continue
        for window in _windows(limit, value):
            same = value == threshold and window == limit.window
            told = entry if same else {**changed, "window": window}
            yield Option(((key, value), ("window", window)), told)


def _windows(limit: RepeatLimit, value: int) -> list[int | str]:
    """Windows for a threshold: all that hold it where it is tightened, else the first."""
    if limit.window == "all":
        return ["all"]
    wide: list[int | str] = [limit.window] if limit.window > value or value == limit.max else []
    wide += [limit.window * _WINDOW_FACTOR] if limit.window * _WINDOW_FACTOR > value else []
    wide.append("all")
    return wide if value <= limit.max else wide[:1]


def _budget_axes(compiled: CompiledPolicy) -> Iterator[Axis]:
    for budget in compiled.policy.budgets:
        stepped = any(
            step is not None for step in (budget.advise_at, budget.ask_at, budget.halt_at)
        )
        if (
            budget.calls is None
            or budget.calls < _MIN_THRESHOLD
            or budget.mode == "observe"
            or stepped
        ):
            continue
        path = ("budgets", budget.id)
        entry = _written_entry(compiled, path)
        options = tuple(
            Option((("calls", calls),), {**entry, "calls": calls} if place else entry)
            for place, calls in enumerate(_nearby_values(budget.calls))
        )
        yield Axis(f"budgets/{budget.id}", path, options)


def _new_budget_axes(
    compiled: CompiledPolicy, calls: dict[BudgetScope, Sequence[int]]
) -> Iterator[Axis]:
    """A budget of all calls, for each scope that has none."""
    taken = {budget.id for budget in compiled.policy.budgets}
    for scope, counts in calls.items():
        if not counts or any(_caps_all_calls(budget, scope) for budget in compiled.policy.budgets):
            continue
        id_ = f"calls-per-{scope}"
        while id_ in taken:
            id_ += "-2"
        options = [Option((), None)]
        options += [
            Option((("calls", most), ("per", scope)), {"calls": most, "per": scope})
            for most in _quantiles(counts)
        ]
        yield Axis(f"budgets/{id_}", ("budgets", id_), tuple(options))


def _caps_all_calls(budget: Budget, scope: BudgetScope) -> bool:
    selected = (budget.tools, budget.servers, budget.classes, budget.agents, budget.commands)
    more = (budget.paths, budget.hosts, budget.finds, budget.when, budget.within)
    narrow = any(part is not None for part in (*selected, *more)) or budget.per.keys
    return budget.calls is not None and budget.per.scope == scope and not narrow


def _nearby_values(value: int) -> list[int]:
    """Values to try instead of one, that one first, then from the nearest."""
    found = {max(_MIN_THRESHOLD, round(value * up / down)) for up, down in _FACTORS} - {value}
    return [value, *sorted(found, key=lambda other: (abs(other - value), other))]


def _quantiles(counts: Sequence[int]) -> list[int]:
    """Budgets that so many of the runs stay within, and some beyond all; the widest first."""
    ranked = sorted(counts)
    found = {ranked[max(0, -(-len(ranked) * up // down) - 1)] for up, down in _QUANTILES}
    found |= {-(-ranked[-1] * up // down) for up, down in _EXTRA_FACTORS}
    return sorted((value for value in found if value >= _MIN_THRESHOLD), reverse=True)


def _written_entry(compiled: CompiledPolicy, path: Path) -> dict[str, Any]:
    """An entry as it is written, with all layers merged."""
    node, rest = descend(compiled.merged.tree, path)
    found = to_plain(node) if not rest else {}
    return dict(found) if isinstance(found, dict) else {}


_WEAK_TO_STRONG = ("advise_at", "ask_at", "halt_at")
_MIN_ESCALATION = 2
"""A step at the first attempt would meet every call."""


def shift_escalation(limit: Limit, before: int, now: int) -> dict[str, int]:
    """The steps of `limit` for a threshold of `now`, where they were made for one of `before`.

    Those within the threshold stay, or come down with it; those beyond keep their distance. One
    that a stronger step leaves no room is left out.
    """
    steps: dict[str, int] = {}
    lowest: int | None = None
    for name in reversed(_WEAK_TO_STRONG):
        step = getattr(limit, name)
        if step is None:
            continue
        step = step + now - before if step > before else min(step, now)
        if step < _MIN_ESCALATION or (lowest is not None and step >= lowest):
            continue
        steps[name] = lowest = step
    return {name: steps[name] for name in _WEAK_TO_STRONG if name in steps}
