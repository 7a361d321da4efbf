"""The search space: thresholds, windows and budgets of a policy, with values to try."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from policyguard.compiler import CompiledPolicy
from policyguard.compiler.build.entry_paths import limit_path
from policyguard.engines.yaml_tree import Path, descend, to_plain
from policyguard.model.limits import (
    Budget,
    CycleLimit,
    Limit,
    PollingLimit,
    RepeatLimit,
    iter_limits,
    limit_id,
    limit_kind,
    limits_of,
)

_LIMIT_KINDS = ("repeat", "cycle", "failures", "polling")
_FACTORS = ((1, 4), (1, 3), (1, 2), (2, 3), (3, 4), (1, 1), (5, 4), (3, 2), (2, 1), (3, 1))
"""Factors for a threshold: finer near its value, coarser further out."""
_MIN_THRESHOLD = 2
"""The lowest threshold to try: 1 would refuse the first repetition."""
_WINDOW_FACTOR = 2
"""The factor for a window, which is also tried as `all`."""
_LENGTH_FACTOR = 2
"""The factor for the longest cycle."""
_QUANTILES = ((9, 10), (19, 20), (49, 50), (1, 1))
_EXTRA_FACTORS = ((5, 4), (3, 2), (2, 1))
"""Factors for budgets above the longest run."""
_WEAK_TO_STRONG = ("advise_at", "ask_at", "halt_at")
_MIN_ESCALATION = 2
"""The lowest escalation threshold: 1 would affect every call."""

_MAX_LIMITS = 8
"""How many limits of a kind the language allows in a list."""

BudgetScope = Literal["session", "turn"]
Setting = tuple[tuple[str, int | str], ...]
"""The values of an option by key, such as `(("max", 3), ("window", 10))`."""


class Option(NamedTuple):
    """A value to try. `entry` is the whole entry as in YAML, None for no entry."""

    setting: Setting
    entry: dict[str, Any] | None


class Axis(NamedTuple):
    """An entry and its options; the first is the policy's own.

    If several limits of a kind are a list, `siblings` are all of them, as in YAML.
    """

    id: str
    path: Path
    options: tuple[Option, ...]
    siblings: tuple[dict[str, Any], ...] = ()


Choice = tuple[int, int]
"""The index of an axis, and of one of its options."""


class PackedOptions(NamedTuple):
    """Options side by side: the entries that a layer sets, and the id of each option in it."""

    entries: dict[Path, Any]
    ids: dict[Choice, str]


def covers_entry(id_: str, entry: str) -> bool:
    """Return whether an entry has this id or is a part of it; `…/2` is the next of a list."""
    has_parts = not id_.startswith("limits/") or limit_kind(id_) == "polling"
    return entry == id_ or (has_parts and entry.startswith(f"{id_}/"))


def build_search_space(
    compiled: CompiledPolicy, calls: dict[BudgetScope, Sequence[int]]
) -> list[Axis]:
    """Return every axis. `calls` counts the calls of successful runs, by budget scope."""
    return [*_limit_axes(compiled), *_budget_axes(compiled), *_new_budget_axes(compiled, calls)]


def changed_entries(changes: Iterable[tuple[Axis, int]]) -> dict[Path, Any]:
    """Return what a layer sets for these options: an entry, or all limits of a list, by path."""
    found: dict[Path, Any] = {}
    for axis, option in changes:
        entry = axis.options[option].entry
        if axis.siblings:
            entries = found.setdefault(axis.path[:-1], list(axis.siblings))
            entries[axis.path[-1]] = entry
        elif entry is not None:
            found[axis.path] = entry
    return found


def pack_options(axes: Sequence[Axis], choices: Iterable[Choice]) -> Iterator[PackedOptions]:
    """Yield layers of options that can be replayed side by side: limits as lists, more budgets."""
    waiting = list(choices)
    while waiting:
        packed = PackedOptions({}, {})
        waiting = [choice for choice in waiting if not _add_option(packed, axes[choice[0]], choice)]
        yield packed


def _add_option(packed: PackedOptions, axis: Axis, choice: Choice) -> bool:
    """Add an option with an id of its own; False if there is no place left for it."""
    entries, entry = packed.entries, axis.options[choice[1]].entry
    id_, path = axis.id, axis.path
    if axis.siblings:
        path = path[:-1]
    if path[0] == "limits" and path[-1] != "polling":
        if not id_.endswith(f"/{path[-1]}"):
            id_ = id_.rpartition("/")[0]
        limits = entries.setdefault(path, [])
        if len(limits) == _MAX_LIMITS:
            return False
        limits.append({key: value for key, value in (entry or {}).items() if key != "id"})
        packed.ids[choice] = id_ if len(limits) == 1 else f"{id_}/{len(limits)}"
        return True
    while path in entries:
        if path[0] == "limits":
            return False
        path = (path[0], f"{path[1]}-{choice[1]}")
        id_ = "/".join(map(str, path))
    entries[path] = entry
    packed.ids[choice] = id_
    return True


def _limit_axes(compiled: CompiledPolicy) -> Iterator[Axis]:
    for level, limits in compiled.policy.limits.items():
        for kind, index, limit in iter_limits(limits):
            if kind not in _LIMIT_KINDS or (limit.mode or limits.mode) == "observe":
                continue
            path = limit_path(limits, level, kind, index)
            entry = _written_entry(compiled, path)
            options = list(_limit_options(limit, entry))
            if options:
                siblings = tuple(
                    _written_entry(compiled, (*path[:-1], number))
                    for number in range(len(limits_of(limits, kind)) if path[-1] == index else 0)
                )
                yield Axis(limit_id(level, kind, index, limit), path, tuple(options), siblings)


def _limit_options(limit: Limit, entry: dict[str, Any]) -> Iterator[Option]:
    polling = isinstance(limit, PollingLimit)
    key = "unchanged" if polling else "max"
    threshold = getattr(limit, key)
    if threshold is None:
        return
    # The first result of a poll repeats none.
    first = 1 if polling else 0
    for value in _nearby_values(threshold):
        escalation = shift_escalation(limit, threshold + first, value + first)
        kept = {name: kept for name, kept in entry.items() if not name.endswith("_at")}
        changed = {**kept, key: value, **escalation}
        if isinstance(limit, CycleLimit):
            for longest in _cycle_lengths(limit, value):
                is_current = value == threshold and longest == limit.longest
                option = entry if is_current else {**changed, "longest": longest}
                yield Option(((key, value), ("longest", longest)), option)
            continue
        if not isinstance(limit, RepeatLimit):
            yield Option(((key, value),), entry if value == threshold else changed)
            continue
        for window in _windows(limit, value):
            is_current = value == threshold and window == limit.window
            option = entry if is_current else {**changed, "window": window}
            yield Option(((key, value), ("window", window)), option)


def _cycle_lengths(limit: CycleLimit, value: int) -> list[int]:
    """Return lengths of the longest cycle for a threshold: also others if it is not loosened."""
    longest = limit.longest
    others = (longest * _LENGTH_FACTOR, max(limit.shortest, longest // _LENGTH_FACTOR))
    return list(dict.fromkeys([longest, *(others if value <= limit.max else ())]))


def _windows(limit: RepeatLimit, value: int) -> list[int | str]:
    """Return windows for a threshold: all that fit a tightened one, else the first."""
    if limit.window == "all":
        return ["all"]
    windows: list[int | str] = [limit.window] if limit.window > value or value == limit.max else []
    windows += [limit.window * _WINDOW_FACTOR] if limit.window * _WINDOW_FACTOR > value else []
    windows.append("all")
    return windows if value <= limit.max else windows[:1]


def _budget_axes(compiled: CompiledPolicy) -> Iterator[Axis]:
    for budget in compiled.policy.budgets:
        escalates = any(getattr(budget, name) is not None for name in _WEAK_TO_STRONG)
        if budget.calls is None or budget.calls < _MIN_THRESHOLD:
            continue
        if budget.mode == "observe" or escalates:
            continue
        path = ("budgets", budget.id)
        entry = _written_entry(compiled, path)
        options = tuple(
            Option((("calls", calls),), {**entry, "calls": calls} if index else entry)
            for index, calls in enumerate(_nearby_values(budget.calls))
        )
        yield Axis(f"budgets/{budget.id}", path, options)


def _new_budget_axes(
    compiled: CompiledPolicy, call_counts: dict[BudgetScope, Sequence[int]]
) -> Iterator[Axis]:
    """Yield a budget of all calls, for each scope without one."""
    taken = {budget.id for budget in compiled.policy.budgets}
    for scope, counts in call_counts.items():
        if not counts or any(_caps_all_calls(budget, scope) for budget in compiled.policy.budgets):
            continue
        id_ = f"calls-per-{scope}"
        while id_ in taken:
            id_ += "-2"
        options = [Option((), None)]
        options += [
            Option((("calls", calls), ("per", scope)), {"calls": calls, "per": scope})
            for calls in _quantiles(counts)
        ]
        yield Axis(f"budgets/{id_}", ("budgets", id_), tuple(options))


def _caps_all_calls(budget: Budget, scope: BudgetScope) -> bool:
    selected = (budget.tools, budget.servers, budget.classes, budget.agents, budget.commands)
    more = (budget.paths, budget.hosts, budget.finds, budget.when, budget.within)
    narrow = any(part is not None for part in (*selected, *more)) or budget.per.keys
    return budget.calls is not None and budget.per.scope == scope and not narrow


def _nearby_values(value: int) -> list[int]:
    """Return values to try: the current one first, then the nearest."""
    found = {max(_MIN_THRESHOLD, round(value * up / down)) for up, down in _FACTORS} - {value}
    return [value, *sorted(found, key=lambda other: (abs(other - value), other))]


def _quantiles(counts: Sequence[int]) -> list[int]:
    """Return budgets that a share of the runs fit in, and larger ones; the widest first."""
    ranked = sorted(counts)
    found = {ranked[max(0, -(-len(ranked) * up // down) - 1)] for up, down in _QUANTILES}
    found |= {-(-ranked[-1] * up // down) for up, down in _EXTRA_FACTORS}
    return sorted((value for value in found if value >= _MIN_THRESHOLD), reverse=True)


def _written_entry(compiled: CompiledPolicy, path: Path) -> dict[str, Any]:
    """Return an entry as written, with all layers merged."""
    node, rest = descend(compiled.merged.tree, path)
    found = to_plain(node) if not rest else {}
    return dict(found) if isinstance(found, dict) else {}


def shift_escalation(limit: Limit, before: int, now: int) -> dict[str, int]:
    """Return the escalation thresholds of a limit whose `max` moves from `before` to `now`.

    Those within `max` stay or come down with it; those beyond keep their distance. One that a
    stronger effect leaves no room for is dropped.
    """
    shifted: dict[str, int] = {}
    lowest: int | None = None
    for name in reversed(_WEAK_TO_STRONG):
        at = getattr(limit, name)
        if at is None:
            continue
        at = at + now - before if at > before else min(at, now)
        if at < _MIN_ESCALATION or (lowest is not None and at >= lowest):
            continue
        shifted[name] = lowest = at
    return {name: shifted[name] for name in _WEAK_TO_STRONG if name in shifted}
