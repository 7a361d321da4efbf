"""Check exceptions: what they waive, and until when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from policyguard.compiler.build.entry_paths import list_entry_ids
from policyguard.compiler.build.exceptions import find_waived, is_glob, list_waivable, parse_end
from policyguard.compiler.merge.layers import MergedPolicy
from policyguard.compiler.merge.locks import find_own_lock
from policyguard.engines.yaml_tree import Path
from policyguard.model.diagnostic import Diagnostic, did_you_mean, quote_text
from policyguard.model.policy import Policy


def check_exceptions(policy: Policy, merged: MergedPolicy) -> Iterator[Diagnostic]:
    """Report exceptions that name nothing, or more than they seem to, and days that are none."""
    known = list_waivable(policy)
    paths = dict(list_entry_ids(policy))
    for entry in policy.exceptions:
        path: Path = ("exceptions", entry.id)
        for index, name in enumerate(entry.rules):
            at = (*path, "rules", index)
            yield from _check_name(name, at, known, merged)
            waived = [paths[id_] for id_ in sorted(find_waived(name, known))]
            yield from _check_locks(waived, at, merged)
        if parse_end(entry.until) is None:
            message = f"{quote_text(entry.until)} is not a valid day"
            yield merged.diagnostic("scalar/date", message, (*path, "until"))


def _check_name(
    name: str, path: Path, known: Mapping[str, str], merged: MergedPolicy
) -> Iterator[Diagnostic]:
    found = {known[id_] for id_ in find_waived(name, known)}
    if not found and merged.is_complete and not _is_broken(name, merged):
        message = f"no rule, limit or budget has the id {quote_text(name)}"
        yield merged.diagnostic("reference/unknown-id", message, path, hint=_hint(name, known))
    elif len(found) > 1 and not is_glob(name):
        message = f"{quote_text(name)} matches several entries"
        hint = "write one of " + ", ".join(f"`{entry}`" for entry in sorted(found))
        yield merged.diagnostic("reference/ambiguous-id", message, path, hint=hint)


def _check_locks(waived: Iterable[Path], path: Path, merged: MergedPolicy) -> Iterator[Diagnostic]:
    """Report an exception from an entry that another file locks."""
    for entry in waived:
        found = tuple(map(str, entry))
        lock = find_own_lock(merged.locks, found)
        if lock is not None and lock.file != merged.origin(path):
            message = f"cannot except this: {lock.explain(found)}"
            yield merged.diagnostic("reference/locked", message, path)
            return


def _is_broken(name: str, merged: MergedPolicy) -> bool:
    """Whether an entry of this name has errors of its own."""
    broken = {f"{section}/{id_}" for section, id_ in merged.broken_entries}
    return bool(find_waived(name, {id_: id_ for id_ in broken}))


def _hint(name: str, known: Mapping[str, str]) -> str | None:
    if name.startswith("constraints"):
        return "an exception waives no learned constraint; use `policyguard constraints revoke`"
    if name.endswith("timeout"):
        return (
            "a timeout refuses nothing; give the tool its own: `limits: {tools: {…: {timeout: …}}}`"
        )
    parts = {entry.split("/", count)[-1] for entry in known.values() for count in range(3)}
    return did_you_mean(name, sorted(parts))
