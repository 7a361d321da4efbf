"""Ids of a policy's entries, and their paths in the merged tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from policyguard.model.entry import Example, SelectiveEntry
from policyguard.model.limits import LimitLevel, PollingLimit, iter_limits, limit_id
from policyguard.model.policy import Learn, Mark, MarkEvent, Policy, Rule

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


def selective_entries(policy: Policy) -> Iterator[tuple[SelectiveEntry, Path]]:
    """Yield every entry with selectors but for classes, with its path."""
    for rule in policy.rules:
        yield rule, ("rules", rule.id)
    for budget in policy.budgets:
        yield budget, ("budgets", budget.id)
    for result_rule in policy.result_rules:
        yield result_rule, ("result_rules", result_rule.id)
    for _, _, event, path in mark_events(policy):
        yield event, path


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
        yield f"rules/{rule.id}", ("rules", rule.id)
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
                yield limit_id(level, kind, index), path
        if isinstance(limits.timeout, int):
            yield f"limits/{level}/timeout", (*level_path(level), "timeout")
    for budget in policy.budgets:
        yield f"budgets/{budget.id}", ("budgets", budget.id)
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


def radius_id(policy: Policy, index: int) -> str:
    """Return the id of a radius schedule: `radius`, or `radius/N` from 1 if there are several."""
    return "radius" if len(policy.radius) == 1 else f"radius/{index + 1}"


def learn_id(name: str) -> str:
    """Return the id of a signature's learning entry, or of the default without a name."""
    return f"signatures/{name}/learn" if name else "learn"
