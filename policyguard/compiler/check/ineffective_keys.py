"""Keys that could never do anything where they stand: a policy must not silently do nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from policyguard.compiler.merge.layers import MergedPolicy
from policyguard.engines.yaml_tree import Path
from policyguard.model.diagnostic import Diagnostic, quote_text
from policyguard.model.effect import Effect
from policyguard.model.entry import Entry
from policyguard.model.limits import RefusalsLimit
from policyguard.model.policy import Policy


def check_ineffective_keys(policy: Policy, layered: MergedPolicy) -> Iterator[Diagnostic]:
    """What is given beside keys that leave it without effect."""
    for path, message, hint in _find_ineffective_keys(policy):
        yield layered.diagnostic(
            "reference/no-effect", message, layered.span_of(path, key=True), hint=hint
        )


def _find_ineffective_keys(policy: Policy) -> Iterator[tuple[Path, str, str | None]]:
    for where, entry in _descriptive_entries(policy):
        if entry.mode is not None:
            message = "`mode` has no meaning here: this entry refuses nothing"
            hint = "write it on the limits, budgets and rules that are to be watched only"
            yield (*where, "mode"), message, hint
    for name in policy.classify.fingerprint.tolerance:
        if "." in name:
            message = f"{quote_text(name)} is a path, and `tolerance` names arguments"
            hint = 'name the argument; beside `"*"` a name holds at any depth'
            yield ("classify", "fingerprint", "tolerance", name), message, hint
    for budget in policy.budgets:
        if budget.reserve is not None and budget.tokens is None and budget.cost is None:
            message = "`reserve` holds back tokens or cost, and this budget counts neither"
            yield ("budgets", budget.id, "reserve"), message, None
    for rule in policy.rules:
        if rule.approval is not None and Effect.ASK not in (rule.effect, rule.on_error):
            message = f"`approval` is for rules that ask, and this one has the effect {rule.effect}"
            yield ("rules", rule.id, "approval"), message, "write `effect: ask`"
    for level, limits in policy.limits.items():
        kind, _, name = level.partition(":")
        refusals = limits.refusals
        if not isinstance(refusals, RefusalsLimit):
            continue
        path: Path = ("limits", kind, name) if name else ("limits", kind)
        given = (("refuse", refusals.refuse == "tool"), ("until", refusals.until is not None))
        for key, stands in given:
            if stands:
                message = f"`{key}` has no meaning here: `refusals` answers refused attempts only"
                yield (*path, "refusals", key), message, "say how hard with `effect`"


def _descriptive_entries(policy: Policy) -> Iterator[tuple[Path, Entry]]:
    """The entries that say what there is, and answer no call, each with its path."""
    maps: tuple[tuple[str, Mapping[str, Entry]], ...] = (
        ("params", policy.params),
        ("tags", policy.tags),
        ("patterns", policy.patterns),
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
        yield from (((*path, place), entry) for place, entry in enumerate(entries))
