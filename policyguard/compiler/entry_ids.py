"""What of a policy may fire, by the ids that decisions and reports name it by."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from policyguard.compiler.compiled_policy import CompiledPolicy
from policyguard.engines.yaml_tree import Path
from policyguard.model.limits import PollingLimit


def list_entry_ids(compiled: CompiledPolicy) -> Iterator[tuple[str, Path]]:
    """The id of every entry that may fire, and where it stands in the policy."""
    policy = compiled.policy
    for rule in policy.rules:
        yield f"rules/{rule.id}", ("rules", rule.id)
    for level, limits in policy.limits.items():
        group, colon, name = level.partition(":")
        for field in msgspec.structs.fields(limits):
            limit = getattr(limits, field.name)
            path: Path = ("limits", group, *([name] if colon else []), field.name)
            if field.name == "timeout" and isinstance(limit, int):
                yield f"limits/{level}/timeout", path
            # A kind that is switched off is the text `none`; metadata are no limits either.
            if not isinstance(limit, msgspec.Struct):
                continue
            if isinstance(limit, PollingLimit):
                for part in ("cooldown", "unchanged"):
                    if getattr(limit, part) is not None:
                        yield f"limits/{level}/polling/{part}", (*path, part)
            else:
                yield f"limits/{level}/{field.name}", path
    for budget in policy.budgets:
        yield f"budgets/{budget.id}", ("budgets", budget.id)
    for number, schedule in enumerate(compiled.radius):
        yield schedule.id, ("radius", number)
    for number, signature in enumerate(policy.signatures):
        yield f"signatures/{signature.id}", ("signatures", number)
        if signature.learn is not None and policy.learn is not None:
            yield learn_id(signature.id), ("signatures", number, "learn")
    for number, entry in enumerate(policy.blame):
        yield f"blame/{entry.id}", ("blame", number)
    if policy.learn is not None:
        yield "learn", ("learn",)
        for name in policy.learn.parameters or {}:
            yield learn_id(name), ("learn", "parameters", name)


def learn_id(name: str) -> str:
    """The id of what a signature teaches; without one, of what all the others do."""
    return f"signatures/{name}/learn" if name else "learn"
