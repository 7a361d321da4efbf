"""Ids of a policy's entries, and their paths in the merged tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

from policyguard.model.effect import Effect
from policyguard.model.entry import Example, SelectiveEntry
from policyguard.model.limits import Budget, LimitLevel, PollingLimit, iter_limits, limit_id
from policyguard.model.marks import Mark, MarkEvent
from policyguard.model.pins import PinKind
from policyguard.model.policy import Case, Learn, Policy, Rule

Path = tuple[str | int, ...]


def learn_sections(policy: Policy) -> Iterator[tuple[Learn, Path]]:
    """Yield the policy's `learn` and those of its signatures, each with its path."""
    if policy.learn is not None:
        yield policy.learn, ("learn",)
    for index, signature in enumerate(policy.signatures):
        if signature.learn is not None:
            yield signature.learn, ("signatures", index, "learn")


def rule_examples(policy: Policy) -> Iterator[tuple[Rule | Case, Example, bool, Path]]:
    """Yield each example with its rule or case, whether that must match it, and its path."""
    for path, part in rule_parts(policy):
        for kind, examples in (
            ("match", part.examples.match),
            ("no_match", part.examples.no_match),
        ):
            for index, example in enumerate(examples):
                yield part, example, kind == "match", (*path, "examples", kind, index)


def call_entries(policy: Policy) -> Iterator[tuple[Path, Rule | Case | Budget]]:
    """Yield the entries that select calls, with their paths: rules, their cases, and budgets."""
    yield from rule_parts(policy)
    for budget in policy.budgets:
        yield ("budgets", budget.id), budget


def rule_parts(policy: Policy) -> Iterator[tuple[Path, Rule | Case]]:
    """Yield each rule, followed by its cases, with their paths."""
    for rule in policy.rules:
        path: Path = ("rules", rule.id)
        yield path, rule
        yield from (((*path, "cases", index), case) for index, case in enumerate(rule.cases))


def case_id(rule: str, index: int) -> str:
    """Return the id of a case, counted from 1."""
    return f"rules/{rule}/{index + 1}"


def mark_events(
    policy: Policy,
) -> Iterator[tuple[Mark, Literal["set", "clear"], MarkEvent, Path]]:
    """Yield each event of a mark: the mark, what the event does, the event and its path."""
    kinds: tuple[Literal["set", "clear"], ...] = ("set", "clear")
    for mark in policy.marks:
        for kind in kinds:
            events = getattr(mark, kind)
            path = ("marks", mark.id, kind)
            if isinstance(events, MarkEvent):
                yield mark, kind, events, path
            elif isinstance(events, tuple):
                for index, event in enumerate(events):
                    yield mark, kind, event, (*path, index)


def selective_entries(policy: Policy) -> Iterator[tuple[Path, SelectiveEntry]]:
    """Yield every entry with selectors but for classes, with its path."""
    yield from call_entries(policy)
    for result_rule in policy.result_rules:
        yield ("result_rules", result_rule.id), result_rule
    for _, _, event, path in mark_events(policy):
        yield path, event


def level_path(level: str) -> Path:
    """Return the path of a level of limits: `tools:web_*` is at `limits`, `tools`, `web_*`."""
    group, colon, name = level.partition(":")
    return ("limits", group, name) if colon else ("limits", group)


def limit_path(limits: LimitLevel, level: str, kind: str, index: int) -> Path:
    """Return the path of a limit: several of one kind are a list."""
    path = (*level_path(level), kind)
    return (*path, index) if isinstance(getattr(limits, kind), tuple) else path


def list_entry_ids(policy: Policy) -> Iterator[tuple[str, Path]]:
    """Yield the id and path of every entry that may fire."""
    for rule in policy.rules:
        yield from _rule_ids(rule)
    for result_rule in policy.result_rules:
        yield f"result_rules/{result_rule.id}", ("result_rules", result_rule.id)
    for level, limits in policy.limits.items():
        for kind, index, limit in iter_limits(limits):
            path = limit_path(limits, level, kind, index)
            if isinstance(limit, PollingLimit):
                for part in ("cooldown", "unchanged"):
                    if getattr(limit, part) is not None:
                        yield f"limits/{level}/polling/{part}", (*path, part)
            else:
                yield limit_id(level, kind, index, limit), path
        if isinstance(limits.timeout, int):
            yield f"limits/{level}/timeout", (*level_path(level), "timeout")
    for budget in policy.budgets:
        yield f"budgets/{budget.id}", ("budgets", budget.id)
    for exception in policy.exceptions:
        yield f"exceptions/{exception.id}", ("exceptions", exception.id)
    if policy.pins is not None:
        for kind in get_args(PinKind):
            searched = kind != "found" or policy.pins.finds
            if searched and getattr(policy.pins, kind) is not Effect.ALLOW:
                yield f"pins/{kind}", ("pins", kind)
    for index in range(len(policy.radius)):
        yield radius_id(policy, index), ("radius", index)
    for index, signature in enumerate(policy.signatures):
        yield f"signatures/{signature.id}", ("signatures", index)
        if signature.learn is not None and policy.learn is not None:
            yield learn_id(signature.id), ("signatures", index, "learn")
    for index, entry in enumerate(policy.blame):
        yield f"blame/{entry.id}", ("blame", index)
    if policy.learn is not None:
        yield "learn", ("learn",)
        for name in policy.learn.parameters or {}:
            yield learn_id(name), ("learn", "parameters", name)


def _rule_ids(rule: Rule) -> Iterator[tuple[str, Path]]:
    """Yield the id and path of a rule; of one with cases, those of its parts that do something."""
    path: Path = ("rules", rule.id)
    if not rule.cases:
        yield f"rules/{rule.id}", path
    for index, case in enumerate(rule.cases):
        if case.effect is not Effect.ALLOW:
            yield case_id(rule.id, index), (*path, "cases", index)
    if rule.otherwise is not Effect.ALLOW:
        yield f"rules/{rule.id}/otherwise", (*path, "otherwise")


def radius_id(policy: Policy, index: int) -> str:
    """Return the id of a radius schedule: `radius`, or `radius/N` from 1 if there are several."""
    return "radius" if len(policy.radius) == 1 else f"radius/{index + 1}"


def learn_id(name: str) -> str:
    """Return the id of a signature's learning entry, or of the default without a name."""
    return f"signatures/{name}/learn" if name else "learn"
