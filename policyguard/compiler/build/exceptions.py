"""Exceptions: which violations each waives, and until when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime

from policyguard.compiler.build.entry_paths import list_entry_ids
from policyguard.compiler.build.expressions import Expressions
from policyguard.compiler.build.selectors.selector import compile_glob
from policyguard.evaluator.exceptions import CompiledException, ExceptionSet
from policyguard.model.policy import Policy

_SECONDS_PER_DAY = 86_400
_SECTIONS = ("rules", "limits", "budgets")
"""The sections whose violations can be waived."""


def build_exceptions(policy: Policy, expressions: Expressions) -> ExceptionSet | None:
    """Build the exceptions of a policy without errors; None if it has none."""
    if not policy.exceptions:
        return None
    known = list_waivable(policy)
    by_violation: dict[str, tuple[CompiledException, ...]] = {}
    for entry in policy.exceptions:
        ends_at = parse_end(entry.until)
        if ends_at is None:
            continue
        compiled = CompiledException(
            id=f"exceptions/{entry.id}",
            when=expressions.get("exceptions", entry.id, "when"),
            ends_at=ends_at,
        )
        for violation in {id_ for name in entry.rules for id_ in find_waived(name, known)}:
            by_violation[violation] = (*by_violation.get(violation, ()), compiled)
    return ExceptionSet(by_violation)


def list_waivable(policy: Policy) -> dict[str, str]:
    """Return the ids of the violations that can be waived, each with that of its entry.

    A timeout refuses nothing, so it is none of them.
    """
    return {
        id_: _entry_id(id_)
        for id_, path in list_entry_ids(policy)
        if path[0] in _SECTIONS and path[-1] != "timeout"
    }


def _entry_id(violation: str) -> str:
    """Return the id of the entry whose part a violation may name."""
    section, name, *_ = violation.split("/")
    if section == "limits":  # violations of `polling` name one of its two parts
        return violation.removesuffix("/cooldown").removesuffix("/unchanged")
    return f"{section}/{name}"


def find_waived(name: str, known: Mapping[str, str]) -> set[str]:
    """Return the violations that a name in `rules` means: an id, a part of one, or a glob."""
    if name in known:
        return {name}
    ending = {id_ for id_ in known if id_.endswith(f"/{name}")}
    if ending:
        return ending
    inside = {id_ for id_ in known if f"/{name}/" in f"/{id_}/"}
    if inside or not is_glob(name):
        return inside
    matches = compile_glob(name)
    return {
        id_ for id_, entry in known.items() if any(map(matches, (*_endings(id_), *_endings(entry))))
    }


def is_glob(name: str) -> bool:
    """Whether a name stands for any number of entries."""
    return "*" in name or "?" in name


def _endings(id_: str) -> Iterable[str]:
    parts = id_.split("/")
    return ("/".join(parts[start:]) for start in range(len(parts)))


def parse_end(until: str) -> int | None:
    """Return when the last day of an exception is over (ns, UTC); None if there is no such day."""
    try:
        day = date.fromisoformat(until)
    except ValueError:
        return None
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return (int(midnight.timestamp()) + _SECONDS_PER_DAY) * 1_000_000_000
