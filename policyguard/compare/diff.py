"""Find the entries whose meaning changed between two policies."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from policyguard.compare import strictness
from policyguard.compare.semantics import (
    PINNED_TOOLS,
    EntrySemantics,
    FieldPath,
    FieldValues,
    ParamValue,
    PolicySemantics,
    find_env_params,
    locate_value,
    read_semantics,
)
from policyguard.compare.strictness import Direction
from policyguard.compiler import CompiledPolicy
from policyguard.compiler.build.selectors.selector import tool_glob_specificity, tool_globs_overlap
from policyguard.engines.yaml_tree import Path, to_plain
from policyguard.model.amounts import format_duration
from policyguard.report.policy.annotated import block_lines, flow_yaml
from policyguard.report.policy.changes import PolicyChange

_DURATION_FIELDS = frozenset(
    {
        "within",
        "cooldown",
        "timeout",
        "time",
        "keep_for",
        "max_gap",
        "half_life",
        "lives",
        "unreported",
        "cleanup",
    }
)
_SHOWN_DIGITS = 12
"""Of a hash, in hex."""


class _PolicySide:
    """A policy's semantics, and how they are written."""

    def __init__(self, compiled: CompiledPolicy, env_params: frozenset[str]) -> None:
        self._merged = compiled.merged
        trees = (program.tree for _, program in compiled.expressions)
        self.semantics: PolicySemantics = read_semantics(
            compiled.policy, compiled.merged, trees, env_params
        )

    def find_entry(self, id_: str) -> EntrySemantics | None:
        """Return an entry, or None if it is missing or empty."""
        entry = self.semantics.entries.get(id_)
        return entry if entry is not None and entry.fields else None

    def is_ineffective_none(self, id_: str) -> bool:
        """Return whether an entry is a `none` that disables no other limit."""
        entry = self.semantics.entries[id_]
        if not id_.startswith("limits/") or entry.fields.get(()) != "none":
            return False
        kind = id_.rpartition("/")[2]
        return id_.startswith("limits/default/") or all(
            limit.fields.get(()) == "none"
            for other, limit in self.semantics.entries.items()
            if other.startswith("limits/") and other.endswith(f"/{kind}")
        )

    def has_limit(self, *kinds: str) -> bool:
        """Return whether there is an entry for a limit of one of these kinds."""
        return any(
            id_.startswith("limits/") and id_.endswith(tuple(f"/{kind}" for kind in kinds))
            for id_ in self.semantics.entries
        )

    def wider_limits(self, level: str, kind: str) -> Iterator[FieldValues | None]:
        """Yield the limits, or None, that may apply to calls at a level without this limit."""
        default = self.find_entry(f"limits/default/{kind}") if level != "default" else None
        yield default.fields if default is not None else None
        if not level.startswith("tools:"):
            return
        for id_, entry in self.semantics.entries.items():
            other_level, _, other_kind = id_.removeprefix("limits/").rpartition("/")
            if not id_.startswith("limits/") or other_kind != kind or other_level == "default":
                continue
            if other_level.startswith("classes:") or _may_contain(other_level[6:], level[6:]):
                yield entry.fields

    def format_value(self, path: Path, field: FieldPath, value: Any) -> str:
        """Return a value as the policy writes it, or a default."""
        if path[:2] == PINNED_TOOLS and len(path) > 2:
            return f"sha256 {value[:_SHOWN_DIGITS]}"
        node, is_shorthand = locate_value(self._merged, path, field)
        if value is None and is_shorthand:
            return "not given"
        if node is not None:
            text = flow_yaml(to_plain(node))
            params = sorted(value.params) if isinstance(value, ParamValue) else ()
            return f"{text} now, from ${', $'.join(params)}" if params else text
        if value is None:
            return "not given"
        is_duration = field and field[-1] in _DURATION_FIELDS and isinstance(value, int)
        return f"{format_duration(value) if is_duration else _format_default(value)} (default)"

    def format_lines(self, path: Path, field: FieldPath, value: Any) -> tuple[str, ...]:
        """Return a value that the policy gives as readable lines; empty for a default or param."""
        node, is_shorthand = locate_value(self._merged, path, field)
        if node is None or isinstance(value, ParamValue) or (value is None and is_shorthand):
            return ()
        return tuple(block_lines(to_plain(node)))

    def is_written(self, path: Path, field: FieldPath) -> bool:
        """Return whether the policy gives a value, rather than its default."""
        return locate_value(self._merged, path, field).node is not None

    def location(self, path: Path) -> tuple[str, int]:
        """Return the file and line of the value at `path`, or of its nearest ancestor."""
        span = self._merged.span_of(path, key=True)
        return span.file, span.line


def diff_policies(old: CompiledPolicy, new: CompiledPolicy) -> list[PolicyChange]:
    """Return all changes in document order."""
    env_params = find_env_params(old.policy) | find_env_params(new.policy)
    before, after = _PolicySide(old, env_params), _PolicySide(new, env_params)
    ids = dict.fromkeys((*before.semantics.entries, *after.semantics.entries))
    changes = [change for id_ in ids for change in _entry_changes(id_, before, after)]
    return [*changes, *_moves(before, after)]


def _may_contain(wide: str, glob: str) -> bool:
    """Return whether calls that match a glob may also match a wider one."""
    is_wider = tool_glob_specificity(wide) < tool_glob_specificity(glob)
    return is_wider and tool_globs_overlap(wide, glob)


def _entry_changes(id_: str, before: _PolicySide, after: _PolicySide) -> Iterator[PolicyChange]:
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
    for field, members in _changed_fields(old, new, before, after):
        old_value, new_value = old.fields.get(field), new.fields.get(field)
        file, line = after.location((*new.path, *field))
        directions = [
            strictness.value_direction(id_, member, old.fields, new.fields) for member in members
        ]
        yield PolicyChange(
            entry=_display_id(id_),
            what="changed",
            field=".".join(field),
            old=before.format_value(old.path, field, old_value),
            new=after.format_value(new.path, field, new_value),
            direction=strictness.combine_directions(directions),
            file=file,
            line=line,
            old_lines=before.format_lines(old.path, field, old_value),
            new_lines=after.format_lines(new.path, field, new_value),
        )


def _is_limit_list(id_: str, entry: EntrySemantics) -> bool:
    """Whether a level has several limits of a kind, whose values cannot be compared with one's."""
    return id_.startswith("limits/") and any(field[:1] == ("0",) for field in entry.fields)


def _changed_fields(
    old: EntrySemantics, new: EntrySemantics, before: _PolicySide, after: _PolicySide
) -> Iterator[tuple[FieldPath, list[FieldPath]]]:
    """Yield the values that differ, with themselves or, for a whole map, with all in it.

    A map by name of which only one policy has the name, such as `programs.git`, is one value.
    """
    old_names = {field[:2] for field in old.fields if len(field) > 2}
    new_names = {field[:2] for field in new.fields if len(field) > 2}
    found: dict[FieldPath, list[FieldPath]] = {}
    for field in dict.fromkeys((*old.fields, *new.fields)):
        if old.fields.get(field) == new.fields.get(field):
            continue
        name = field[:2]
        removed = name in old_names - new_names and before.is_written(old.path, name)
        added = name in new_names - old_names and after.is_written(new.path, name)
        found.setdefault(name if removed or added else field, []).append(field)
    yield from found.items()


def _whole_entry_change(id_: str, before: _PolicySide, after: _PolicySide) -> PolicyChange:
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


def _entry_direction(id_: str, before: _PolicySide, after: _PolicySide) -> Direction:
    old, new = before.find_entry(id_), after.find_entry(id_)
    if id_.startswith("limits/"):
        return _limit_direction(id_, before, after)
    if old is not None and new is not None:
        return strictness.value_direction(id_, (), old.fields, new.fields)
    entry = old or new
    return strictness.entry_direction(id_, entry.fields, added=old is None) if entry else ""


def _limit_direction(id_: str, before: _PolicySide, after: _PolicySide) -> Direction:
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


def _moves(before: _PolicySide, after: _PolicySide) -> Iterator[PolicyChange]:
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


def _commute(section: str, one: str, other: str, side: _PolicySide) -> bool:
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


def _format_default(value: Any) -> str:
    match value:
        case ("bool", bool(flag)):
            return flow_yaml(flag)
        case frozenset() | tuple():
            return flow_yaml(sorted(map(str, value)))
    return str(value) or flow_yaml("")
