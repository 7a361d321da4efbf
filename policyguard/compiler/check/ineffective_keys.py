"""Report keys without effect and unreachable limits: a policy must not silently do nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from policyguard.compiler.build.entry_paths import level_path, limit_path, mark_events
from policyguard.compiler.merge.layers import MergedPolicy
from policyguard.engines.yaml_tree import Path
from policyguard.model.diagnostic import Diagnostic, quote_text
from policyguard.model.effect import Effect
from policyguard.model.entry import Entry
from policyguard.model.limits import (
    CycleLimit,
    FailuresLimit,
    Limit,
    PollingLimit,
    RefusalsLimit,
    RepeatLimit,
    StaleLimit,
    iter_limits,
)
from policyguard.model.policy import Policy


def check_ineffective_keys(policy: Policy, merged: MergedPolicy) -> Iterator[Diagnostic]:
    """Report keys that other keys leave without effect."""
    for path, message, hint in _find_ineffective_keys(policy):
        yield merged.diagnostic("reference/no-effect", message, path, key=True, hint=hint)


def _find_ineffective_keys(policy: Policy) -> Iterator[tuple[Path, str, str | None]]:
    for path, entry in _descriptive_entries(policy):
        if entry.mode is not None:
            message = "`mode` has no effect here, because this entry refuses nothing"
            hint = "set it on the limits, budgets and rules to observe"
            yield (*path, "mode"), message, hint
    for name in policy.classify.fingerprint.tolerance:
        if "." in name:
            message = f"{quote_text(name)} is a path, but `tolerance` takes names of arguments"
            hint = 'name the argument; beside `"*"` a name applies at any depth'
            yield ("classify", "fingerprint", "tolerance", name), message, hint
    for budget in policy.budgets:
        if budget.reserve is not None and budget.tokens is None and budget.cost is None:
            message = "`reserve` applies to tokens or cost, but this budget counts neither"
            yield ("budgets", budget.id, "reserve"), message, None
    for rule in policy.rules:
        effects = [rule.effect, rule.on_error, rule.otherwise]
        effects += [effect for case in rule.cases for effect in (case.effect, case.on_error)]
        if rule.approval is not None and Effect.ASK not in effects:
            message = f"`approval` needs `effect: ask`, but this rule has the effect {rule.effect}"
            yield ("rules", rule.id, "approval"), message, "write `effect: ask`"
    likeness = policy.classify.likeness
    for inner, names in (
        (("ignore",), likeness.ignore),
        (("fold",), likeness.fold),
        (("results", "ignore"), likeness.results.ignore),
    ):
        if "*" in names:
            star: Path = ("classify", "likeness", *inner, names.index("*"))
            yield star, "`*` has no effect here, because it is taken for a name", "list the names"
    for level, limits in policy.limits.items():
        for kind, index, limit in iter_limits(limits):
            for key, message in _find_ineffective_limit_keys(limit):
                yield (*limit_path(limits, level, kind, index), key), message, None
        refusals = limits.refusals
        if not isinstance(refusals, RefusalsLimit):
            continue
        keys = (("refuse", refusals.refuse == "tool"), ("until", refusals.until is not None))
        for key, is_given in keys:
            if is_given:
                message = f"`{key}` has no effect on `refusals`, which covers refused attempts only"
                yield (*level_path(level), "refusals", key), message, "remove it, or set `effect`"


def _find_ineffective_limit_keys(limit: Limit) -> Iterator[tuple[str, str]]:
    if isinstance(limit, RepeatLimit):
        if limit.without_news and (limit.by or not limit.despite_changes):
            message = "`without_news` applies to `despite_changes: true` without `by`"
            yield "without_news", message
        same = "key" if limit.key is not None else f"same: {limit.same}"
        by_result = {"same: call_and_result"} | ({"same: call_and_error"} if limit.by else set())
        if limit.same == "result":
            for key in ("by", "despite_changes", "key"):
                if getattr(limit, key):
                    yield key, f"`{key}` has no effect with `same: result`"
        elif limit.despite_changes and same not in by_result:
            hint = "" if limit.by else "; with `by: tool` also to `same: call_and_error`"
            yield (
                "despite_changes",
                f"`despite_changes` applies to `same: call_and_result`, but this is `{same}`{hint}",
            )
    elif isinstance(limit, FailuresLimit):
        if limit.by and limit.same == "call":
            yield "by", "`by` has no effect with `same: call`, which counts each call apart"
        elif limit.despite_changes and not limit.by and limit.same != "call":
            yield (
                "despite_changes",
                "`despite_changes` needs `by: tool` or `same: call`; else any success ends the row",
            )


def _descriptive_entries(policy: Policy) -> Iterator[tuple[Path, Entry]]:
    """Yield the entries that never refuse a call, each with its path."""
    maps: tuple[tuple[str, Mapping[str, Entry]], ...] = (
        ("params", policy.params),
        ("tags", policy.tags),
        ("patterns", policy.patterns),
        ("exceptions", {entry.id: entry for entry in policy.exceptions}),
    )
    for section, named in maps:
        yield from (((section, name), entry) for name, entry in named.items())
    lists: tuple[tuple[Path, Sequence[Entry]], ...] = (
        (("classify", "classes"), policy.classify.classes),
        (("outcomes", "envelope"), policy.outcomes.envelope),
        (("signatures",), policy.signatures),
        (("blame",), policy.blame),
    )
    for path, entries in lists:
        yield from (((*path, index), entry) for index, entry in enumerate(entries))
    yield from ((("marks", mark.id), mark) for mark in policy.marks)
    yield from ((path, event) for _, _, event, path in mark_events(policy))


def check_unreachable_limits(policy: Policy, merged: MergedPolicy) -> Iterator[Diagnostic]:
    """Report limits that never refuse a call, and windows beyond `bounds.window_entries`."""
    max_entries = policy.bounds.window_entries
    for level, limits in policy.limits.items():
        for kind, index, limit in iter_limits(limits):
            path = limit_path(limits, level, kind, index)
            if isinstance(limit, RepeatLimit):
                yield from _check_repeat(limit, path, max_entries, merged)
            elif isinstance(limit, CycleLimit):
                yield from _check_cycle(limit, path, max_entries, merged)
            elif isinstance(limit, StaleLimit) and limit.window > max_entries:
                yield _window_diagnostic(limit.window, path, max_entries, merged, "")
        if isinstance(limits.polling, PollingLimit) and limits.repeat not in (None, "none"):
            yield merged.diagnostic(
                "reference/shadowed",
                "`repeat` has no effect here, because `polling` replaces it",
                (*level_path(level), "repeat"),
                key=True,
                hint="write `repeat: none`, or remove it",
                severity="warning",
            )


def _check_cycle(
    cycle: CycleLimit, path: Path, max_entries: int, merged: MergedPolicy
) -> Iterator[Diagnostic]:
    if cycle.longest * cycle.max > max_entries:
        rounds = f"{cycle.max:,} rounds of {cycle.longest:,} calls"
        message = f"{rounds} exceed `bounds.window_entries`, {max_entries:,}"
        hint = "raise the bound, or lower `max`"
        yield merged.diagnostic("reference/bounds", message, (*path, "max"), hint=hint)
    if cycle.shortest > cycle.longest:
        message = f"`shortest` exceeds `longest`, {cycle.longest:,}, so the limit never fires"
        key = "shortest" if merged.has((*path, "shortest")) else "longest"
        hint = f"raise `longest` to at least {cycle.shortest:,}, or lower `shortest`"
        yield merged.diagnostic("reference/unreachable", message, (*path, key), hint=hint)


def _window_diagnostic(
    window: int, path: Path, max_entries: int, merged: MergedPolicy, other: str
) -> Diagnostic:
    message = f"a window of {window:,} exceeds `bounds.window_entries`, {max_entries:,}"
    hint = f"raise the bound, or {other or 'lower it'}"
    return merged.diagnostic("reference/bounds", message, (*path, "window"), hint=hint)


def _check_repeat(
    repeat: RepeatLimit, path: Path, max_entries: int, merged: MergedPolicy
) -> Iterator[Diagnostic]:
    window = max_entries if repeat.window == "all" else repeat.window
    if window > max_entries:
        yield _window_diagnostic(window, path, max_entries, merged, "write `window: all`")
    counts_rows = repeat.same == "result" or (repeat.despite_changes and repeat.by is None)
    if repeat.max > window and not counts_rows:
        message = f"`max` exceeds the window of {window:,} calls, so the limit never fires"
        hint = f"raise `window` to at least {repeat.max:,}, or lower `max`"
        if repeat.max > max_entries:
            hint += "; a larger window also needs a larger `bounds.window_entries`"
        yield merged.diagnostic("reference/unreachable", message, (*path, "max"), hint=hint)
