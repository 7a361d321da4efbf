"""Find the entries whose meaning changed between two policies."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from policyguard.compare import strictness
from policyguard.compare.list_items import PairedFields, item_fields, pair_fields
from policyguard.compare.policy_side import NOT_GIVEN, PolicySide
from policyguard.compare.semantics import EntrySemantics, FieldPath, ParamValue, find_env_params
from policyguard.compare.strictness import Direction
from policyguard.compiler import CompiledPolicy
from policyguard.compiler.build.selectors.selector import tool_globs_overlap
from policyguard.report.policy.changes import PolicyChange

_DERIVED_DEFAULTS = frozenset({"effect", "on_error", "shrink_after"})
"""Values whose default depends on others: it changes with one that is reported."""


def diff_policies(old: CompiledPolicy, new: CompiledPolicy) -> list[PolicyChange]:
    """Return all changes in document order."""
    env_params = find_env_params(old.policy) | find_env_params(new.policy)
    before, after = PolicySide(old, env_params), PolicySide(new, env_params)
    ids = dict.fromkeys((*before.semantics.entries, *after.semantics.entries))
    changes = [change for id_ in ids for change in _entry_changes(id_, before, after)]
    return [*changes, *_moves(before, after)]


def _entry_changes(id_: str, before: PolicySide, after: PolicySide) -> Iterator[PolicyChange]:
    old, new = before.find_entry(id_), after.find_entry(id_)
    if (
        old is None
        or new is None
        or () in (*old.fields, *new.fields)
        or _is_limit_list(id_, old) != _is_limit_list(id_, new)
    ):
        side = before if new is None else after if old is None else None
        if side is not None and side.is_ineffective_none(id_):
            return
        if (old and old.fields) != (new and new.fields):
            yield _whole_entry_change(id_, before, after)
        return
    paired = pair_fields(id_, old.fields, new.fields)
    for field, members in _changed_fields(old, new, paired, before, after):
        was = paired.old_path(field)
        is_written = before.is_written(old.path, was) or after.is_written(new.path, field)
        if field[-1] in _DERIVED_DEFAULTS and not is_written:
            continue
        old_value, new_value = paired.old.get(field), paired.new.get(field)
        file, line = after.location(new.path, field)
        directions = [
            strictness.value_direction(id_, member, paired.old, paired.new) for member in members
        ]
        yield PolicyChange(
            entry=_display_id(id_),
            what="changed",
            field=".".join(field),
            old=before.format_value(old.path, was, old_value),
            new=after.format_value(new.path, field, new_value),
            direction=strictness.combine_directions(directions),
            file=file,
            line=line,
            old_lines=before.format_lines(old.path, was, old_value),
            new_lines=after.format_lines(new.path, field, new_value),
        )
    for field in paired.removed:
        yield _item_change(id_, old, field, before, is_added=False)
    for field in paired.added:
        yield _item_change(id_, new, field, after, is_added=True)


def _is_limit_list(id_: str, entry: EntrySemantics) -> bool:
    """Whether a level has several limits of a kind, whose values cannot be compared with one's."""
    return id_.startswith("limits/") and any(field[:1] == ("0",) for field in entry.fields)


def _changed_fields(
    old: EntrySemantics,
    new: EntrySemantics,
    paired: PairedFields,
    before: PolicySide,
    after: PolicySide,
) -> Iterator[tuple[FieldPath, list[FieldPath]]]:
    """Yield the values that differ, with themselves or, for a whole map, with all in it.

    A map by name of which only one policy has the name, such as `programs.git`, is one value.
    """
    old_names = {field[:2] for field in paired.old if len(field) > 2}
    new_names = {field[:2] for field in paired.new if len(field) > 2}
    found: dict[FieldPath, list[FieldPath]] = {}
    for field in dict.fromkeys((*paired.old, *paired.new)):
        if paired.old.get(field) == paired.new.get(field):
            continue
        name = field[:2]
        removed = name in old_names - new_names and before.is_written(old.path, name)
        added = name in new_names - old_names and after.is_written(new.path, name)
        found.setdefault(name if removed or added else field, []).append(field)
    yield from found.items()


def _item_change(
    id_: str, entry: EntrySemantics, field: FieldPath, side: PolicySide, *, is_added: bool
) -> PolicyChange:
    """Return the change of an item that is added to a list of an entry, or removed from it."""
    file, line = side.location(entry.path, field)
    text, lines = side.format_value(entry.path, field, None), side.format_lines(entry.path, field)
    is_observed = entry.fields.get(("mode",)) == "observe"
    item = item_fields(field, entry.fields)
    direction = "" if is_observed else strictness.item_direction(id_, item)
    return PolicyChange(
        entry=_display_id(id_),
        what="changed",
        field=".".join(field),
        old=NOT_GIVEN if is_added else text,
        new=text if is_added else NOT_GIVEN,
        direction=direction if is_added else strictness.reverse(direction),
        file=file,
        line=line,
        old_lines=() if is_added else lines,
        new_lines=lines if is_added else (),
    )


def _whole_entry_change(id_: str, before: PolicySide, after: PolicySide) -> PolicyChange:
    """Return the change of an added, removed or single-valued entry."""
    old, new = before.find_entry(id_), after.find_entry(id_)
    file, line = after.location(new.path) if new else before.location(old.path if old else ())
    return PolicyChange(
        entry=_display_id(id_),
        what="added" if old is None else "removed" if new is None else "changed",
        field="",
        old=before.format_value(old.path, (), old.fields.get(())) if old else None,
        new=after.format_value(new.path, (), new.fields.get(())) if new else None,
        direction=_entry_direction(id_, before, after),
        file=file,
        line=line,
        old_lines=before.format_lines(old.path, (), old.fields.get(())) if old else (),
        new_lines=after.format_lines(new.path, (), new.fields.get(())) if new else (),
    )


def _entry_direction(id_: str, before: PolicySide, after: PolicySide) -> Direction:
    old, new = before.find_entry(id_), after.find_entry(id_)
    if id_.startswith("limits/"):
        return _limit_direction(id_, before, after)
    if old is not None and new is not None:
        return strictness.value_direction(id_, (), old.fields, new.fields)
    entry = old or new
    return strictness.entry_direction(id_, entry.fields, added=old is None) if entry else ""


def _limit_direction(id_: str, before: PolicySide, after: PolicySide) -> Direction:
    """Return the direction of a limit that is added, removed, or switched on or off."""
    level, _, kind = id_.removeprefix("limits/").rpartition("/")
    old, new = before.find_entry(id_), after.find_entry(id_)
    if kind == "polling" and any(side.has_limit("repeat", "cycle") for side in (before, after)):
        return ""  # `polling` replaces them
    if old is not None and new is not None:
        is_off = "none" in (old.fields.get(()), new.fields.get(()))
        if _is_limit_list(id_, old) != _is_limit_list(id_, new) and not is_off:
            return ""
        return strictness.limit_direction(id_, old.fields, new.fields)
    if new is not None:
        return strictness.combine_directions(
            strictness.level_direction(id_, wide, new.fields)
            for wide in before.wider_limits(level, kind)
        )
    fields = old.fields if old is not None else {}
    return strictness.reverse(
        strictness.combine_directions(
            strictness.level_direction(id_, wide, fields)
            for wide in after.wider_limits(level, kind)
        )
    )


def _moves(before: PolicySide, after: PolicySide) -> Iterator[PolicyChange]:
    """Yield entries of first-match lists that moved before or after others."""
    for section, ids in after.semantics.first_match_order.items():
        old = {id_: index for index, id_ in enumerate(before.semantics.first_match_order[section])}
        kept = [id_ for id_ in ids if id_ in old]
        unmoved = _longest_increasing_subsequence([old[id_] for id_ in kept])
        for index, id_ in enumerate(kept):
            if old[id_] in unmoved:
                continue
            for other_index, other in enumerate(kept):
                was, now = old[id_] < old[other], index < other_index
                if was is now or other == id_ or _commute(section, id_, other, after):
                    continue
                entry = after.semantics.entries[id_]
                file, line = after.location(entry.path)
                words = {True: "before", False: "after"}
                yield PolicyChange(
                    entry=_display_id(id_),
                    what="moved",
                    field="",
                    old=f"{words[was]} {_display_id(other)}",
                    new=f"{words[now]} {_display_id(other)}",
                    direction="",
                    file=file,
                    line=line,
                )
                break


def _longest_increasing_subsequence(indexes: list[int]) -> set[int]:
    """Return the values of a longest increasing subsequence: the entries that did not move."""
    ends: list[int] = []
    predecessors: dict[int, int | None] = {}
    for index in indexes:
        length = bisect_left(ends, index)
        predecessors[index] = ends[length - 1] if length else None
        ends[length : length + 1] = [index]
    subsequence = set()
    last: int | None = ends[-1] if ends else None
    while last is not None:
        subsequence.add(last)
        last = predecessors[last]
    return subsequence


def _commute(section: str, one: str, other: str, side: PolicySide) -> bool:
    """Return whether the order of two entries makes no difference."""
    left, right = side.semantics.entries[one].fields, side.semantics.entries[other].fields
    key = {"classes": ("class",), "envelope": ("state",), "blame": ("blame",)}.get(section)
    if key is not None and left[key] == right[key]:
        return True
    if section == "signatures":
        return {left[("on",)], right[("on",)]} == {"error", "success"}
    globs = left.get(("tools",)), right.get(("tools",))
    if any(isinstance(names, ParamValue) for names in globs):
        return False
    return all(globs) and not any(
        tool_globs_overlap(a, b) for a in globs[0] or () for b in globs[1] or ()
    )


def _display_id(id_: str) -> str:
    """Return an id for display, without the content that identifies an unnamed entry."""
    return id_.partition(" ")[0]
