"""What has changed in meaning from one policy to another, entry by entry."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from policyguard.compare import strictness
from policyguard.compare.semantics import (
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
from policyguard.compiler.build.selectors import globs_overlap, literal_prefix_length
from policyguard.engines.yaml_tree import Path, to_plain
from policyguard.evaluator.messages import format_duration
from policyguard.report.policy.annotated import flow_yaml
from policyguard.report.policy.changes import PolicyChange

_DURATION_FIELDS = frozenset(
    {
        "within",
        "cooldown",
        "timeout",
        "time",
        "keep_for",
        "half_life",
        "lives",
        "unreported",
        "cleanup",
    }
)


class _PolicySide:
    """A policy, what it means, and how it says that."""

    def __init__(self, compiled: CompiledPolicy, steered: frozenset[str]) -> None:
        self._layered = compiled.merged
        self.semantics: PolicySemantics = read_semantics(compiled, steered)

    def find_entry(self, id_: str) -> EntrySemantics | None:
        """An entry; None where there is none, or nothing in it."""
        found = self.semantics.entries.get(id_)
        return found if found is not None and found.fields else None

    def is_ineffective_none(self, id_: str) -> bool:
        """Whether an entry is a `none` where no limit would hold without it either."""
        part = self.semantics.entries[id_]
        if not id_.startswith("limits/") or part.fields.get(()) != "none":
            return False
        kind = id_.rpartition("/")[2]
        return id_.startswith("limits/default/") or all(
            found.fields.get(()) == "none"
            for other, found in self.semantics.entries.items()
            if other.startswith("limits/") and other.endswith(f"/{kind}")
        )

    def has_limit(self, *kinds: str) -> bool:
        """Whether there is a limit of one of these kinds, whatever it says."""
        return any(
            id_.startswith("limits/") and id_.endswith(tuple(f"/{kind}" for kind in kinds))
            for id_ in self.semantics.entries
        )

    def wider_limits(self, level: str, kind: str) -> Iterator[FieldValues | None]:
        """What may hold for calls of a level that has no such limit; None for no limit."""
        default = self.find_entry(f"limits/default/{kind}") if level != "default" else None
        yield default.fields if default is not None else None
        if not level.startswith("tools:"):
            return
        for id_, part in self.semantics.entries.items():
            other, _, its_kind = id_.removeprefix("limits/").rpartition("/")
            if not id_.startswith("limits/") or its_kind != kind or other == "default":
                continue
            if other.startswith("classes:") or contains_glob(other[6:], level[6:]):
                yield part.fields

    def format_value(self, path: Path, field: FieldPath, value: Any) -> str:
        """A value as the policy writes it, a default as what it is."""
        node, short = locate_value(self._layered, path, field)
        if value is None and short:
            return "not given"
        if node is not None:
            said = flow_yaml(to_plain(node))
            params = sorted(value.params) if isinstance(value, ParamValue) else ()
            return f"{said} now, from ${', $'.join(params)}" if params else said
        if value is None:
            return "not given"
        timed = field and field[-1] in _DURATION_FIELDS and isinstance(value, int)
        return f"{format_duration(value) if timed else _format_default(value)} (default)"

    def location(self, path: Path) -> tuple[str, int]:
        """The file and line of what stands at `path`, or of what is nearest around it."""
        span = self._layered.span_of(path, key=True)
        return span.file, span.line


def diff_policies(old: CompiledPolicy, new: CompiledPolicy) -> list[PolicyChange]:
    """All changes, in the order in which policies are written."""
    either = find_env_params(old.policy) | find_env_params(new.policy)
    before, after = _PolicySide(old, either), _PolicySide(new, either)
    ids = dict.fromkeys((*before.semantics.entries, *after.semantics.entries))
    found = [change for id_ in ids for change in _entry_changes(id_, before, after)]
    return [*found, *_moves(before, after)]


def contains_glob(wide: str, glob: str) -> bool:
    """Whether calls of a glob may come under a wider one where it is not there."""
    return literal_prefix_length(wide) < literal_prefix_length(glob) and globs_overlap(wide, glob)


def _entry_changes(id_: str, before: _PolicySide, after: _PolicySide) -> Iterator[PolicyChange]:
    old, new = before.find_entry(id_), after.find_entry(id_)
    if old is None or new is None or () in (*old.fields, *new.fields):
        alone = before if new is None else after if old is None else None
        if alone is not None and alone.is_ineffective_none(id_):
            return
        if (old and old.fields) != (new and new.fields):
            yield _whole_entry_change(id_, before, after)
        return
    for field in dict.fromkeys((*old.fields, *new.fields)):
        was, now = old.fields.get(field), new.fields.get(field)
        if was != now:
            file, line = after.location((*new.path, *field))
            yield PolicyChange(
                entry=_display_id(id_),
                what="changed",
                field=".".join(field),
                old=before.format_value(old.path, field, was),
                new=after.format_value(new.path, field, now),
                direction=strictness.value_direction(id_, field, old.fields, new.fields),
                file=file,
                line=line,
            )


def _whole_entry_change(id_: str, before: _PolicySide, after: _PolicySide) -> PolicyChange:
    """The change of an entry that comes, or goes, or is one value."""
    old, new = before.find_entry(id_), after.find_entry(id_)
    place = after.location(new.path) if new else before.location(old.path if old else ())
    return PolicyChange(
        entry=_display_id(id_),
        what="added" if old is None else "removed" if new is None else "changed",
        field="",
        old=before.format_value(old.path, (), old.fields.get(())) if old else None,
        new=after.format_value(new.path, (), new.fields.get(())) if new else None,
        direction=_entry_direction(id_, before, after),
        file=place[0],
        line=place[1],
    )


def _entry_direction(id_: str, before: _PolicySide, after: _PolicySide) -> Direction:
    old, new = before.find_entry(id_), after.find_entry(id_)
    if id_.startswith("limits/"):
        return _limit_direction(id_, before, after)
    if old is not None and new is not None:
        return strictness.value_direction(id_, (), old.fields, new.fields)
    part = old or new
    return strictness.entry_direction(id_, part.fields, added=old is None) if part else ""


def _limit_direction(id_: str, before: _PolicySide, after: _PolicySide) -> Direction:
    """The direction of a limit that comes, goes, or is switched on or off."""
    level, _, kind = id_.removeprefix("limits/").rpartition("/")
    old, new = before.find_entry(id_), after.find_entry(id_)
    if kind == "polling" and any(side.has_limit("repeat", "cycle") for side in (before, after)):
        return ""  # whose place it takes
    if old is not None and new is not None:
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
    """Entries of first-match lists that are now asked before others, or after them."""
    for section, ids in after.semantics.first_match_order.items():
        old = {id_: place for place, id_ in enumerate(before.semantics.first_match_order[section])}
        kept = [id_ for id_ in ids if id_ in old]
        still = _longest_increasing_subsequence([old[id_] for id_ in kept])
        for place, id_ in enumerate(kept):
            if old[id_] in still:
                continue
            for other_place, other in enumerate(kept):
                was, now = old[id_] < old[other], place < other_place
                if was is now or other == id_ or _commute(section, id_, other, after):
                    continue
                part = after.semantics.entries[id_]
                file, line = after.location(part.path)
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


def _longest_increasing_subsequence(places: list[int]) -> set[int]:
    """The places that a longest rising row goes through: what need not have been moved."""
    ends: list[int] = []
    before: dict[int, int | None] = {}
    for place in places:
        row = bisect_left(ends, place)
        before[place] = ends[row - 1] if row else None
        ends[row : row + 1] = [place]
    found = set()
    last: int | None = ends[-1] if ends else None
    while last is not None:
        found.add(last)
        last = before[last]
    return found


def _commute(section: str, one: str, other: str, side: _PolicySide) -> bool:
    """Whether it makes no difference which of two entries is asked first."""
    left, right = side.semantics.entries[one].fields, side.semantics.entries[other].fields
    same = {"classes": ("class",), "envelope": ("state",), "blame": ("blame",)}.get(section)
    if same is not None and left[same] == right[same]:
        return True
    if section == "signatures":
        return {left[("on",)], right[("on",)]} == {"error", "success"}
    globs = left.get(("tools",)), right.get(("tools",))
    if any(isinstance(one, ParamValue) for one in globs):
        return False
    return all(globs) and not any(
        globs_overlap(a, b) for a in globs[0] or () for b in globs[1] or ()
    )


def _display_id(id_: str) -> str:
    """An id as reports show it; behind that of a class stands what it is told by."""
    return id_.partition(" ")[0]


def _format_default(value: Any) -> str:
    if isinstance(value, frozenset | tuple):
        return flow_yaml(sorted(map(str, value)))
    return str(value)
