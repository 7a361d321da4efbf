"""What has changed in meaning from one policy to another, entry by entry."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from policyguard.compiler import Compiled
from policyguard.compiler.globs import overlap
from policyguard.compiler.selectors import literal_prefix
from policyguard.engines.yaml_tree import Path, plain
from policyguard.evaluator.wording import seconds
from policyguard.lint import tightening
from policyguard.lint.meaning import Field, Fields, Meaning, Part, Read, at, meaning, steered
from policyguard.lint.tightening import Direction
from policyguard.report.policy_changes import Change
from policyguard.report.policy_shown import flow

_NANOSECONDS = frozenset(
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


class _Side:
    """A policy, what it means, and how it says that."""

    def __init__(self, compiled: Compiled, steered: frozenset[str]) -> None:
        self._layered = compiled.layered
        self.meaning: Meaning = meaning(compiled, steered)

    def part(self, id_: str) -> Part | None:
        """An entry; None where there is none, or nothing in it."""
        found = self.meaning.parts.get(id_)
        return found if found is not None and found.fields else None

    def says_nothing(self, id_: str) -> bool:
        """Whether an entry is a `none` where no limit would hold without it either."""
        part = self.meaning.parts[id_]
        if not id_.startswith("limits/") or part.fields.get(()) != "none":
            return False
        kind = id_.rpartition("/")[2]
        return id_.startswith("limits/default/") or all(
            found.fields.get(()) == "none"
            for other, found in self.meaning.parts.items()
            if other.startswith("limits/") and other.endswith(f"/{kind}")
        )

    def limited(self, *kinds: str) -> bool:
        """Whether there is a limit of one of these kinds, whatever it says."""
        return any(
            id_.startswith("limits/") and id_.endswith(tuple(f"/{kind}" for kind in kinds))
            for id_ in self.meaning.parts
        )

    def wider(self, level: str, kind: str) -> Iterator[Fields | None]:
        """What may hold for calls of a level that has no such limit; None for no limit."""
        default = self.part(f"limits/default/{kind}") if level != "default" else None
        yield default.fields if default is not None else None
        if not level.startswith("tools:"):
            return
        for id_, part in self.meaning.parts.items():
            other, _, its_kind = id_.removeprefix("limits/").rpartition("/")
            if not id_.startswith("limits/") or its_kind != kind or other == "default":
                continue
            if other.startswith("classes:") or _around(other[6:], level[6:]):
                yield part.fields

    def said(self, path: Path, field: Field, value: Any) -> str:
        """A value as the policy writes it, a default as what it is."""
        node, short = at(self._layered, path, field)
        if value is None and short:
            return "not given"
        if node is not None:
            said = flow(plain(node))
            params = sorted(value.params) if isinstance(value, Read) else ()
            return f"{said} now, from ${', $'.join(params)}" if params else said
        if value is None:
            return "not given"
        timed = field and field[-1] in _NANOSECONDS and isinstance(value, int)
        return f"{seconds(value) if timed else _shown(value)} (default)"

    def place(self, path: Path) -> tuple[str, int]:
        """The file and line of what stands at `path`, or of what is nearest around it."""
        span = self._layered.where(path, key=True)
        return span.file, span.line


def difference(old: Compiled, new: Compiled) -> list[Change]:
    """All changes, in the order in which policies are written."""
    either = steered(old.policy) | steered(new.policy)
    before, after = _Side(old, either), _Side(new, either)
    ids = dict.fromkeys((*before.meaning.parts, *after.meaning.parts))
    found = [change for id_ in ids for change in _changes(id_, before, after)]
    return [*found, *_moves(before, after)]


def _around(wide: str, glob: str) -> bool:
    """Whether calls of a glob may come under a wider one where it is not there."""
    return literal_prefix(wide) < literal_prefix(glob) and overlap(wide, glob)


def _changes(id_: str, before: _Side, after: _Side) -> Iterator[Change]:
    old, new = before.part(id_), after.part(id_)
    if old is None or new is None or () in (*old.fields, *new.fields):
        alone = before if new is None else after if old is None else None
        if alone is not None and alone.says_nothing(id_):
            return
        if (old and old.fields) != (new and new.fields):
            yield _whole(id_, before, after)
        return
    for field in dict.fromkeys((*old.fields, *new.fields)):
        was, now = old.fields.get(field), new.fields.get(field)
        if was != now:
            file, line = after.place((*new.path, *field))
            yield Change(
                entry=_name(id_),
                what="changed",
                field=".".join(field),
                old=before.said(old.path, field, was),
                new=after.said(new.path, field, now),
                direction=tightening.of_value(id_, field, old.fields, new.fields),
                file=file,
                line=line,
            )


def _whole(id_: str, before: _Side, after: _Side) -> Change:
    """The change of an entry that comes, or goes, or is one value."""
    old, new = before.part(id_), after.part(id_)
    place = after.place(new.path) if new else before.place(old.path if old else ())
    return Change(
        entry=_name(id_),
        what="added" if old is None else "removed" if new is None else "changed",
        field="",
        old=before.said(old.path, (), old.fields.get(())) if old else None,
        new=after.said(new.path, (), new.fields.get(())) if new else None,
        direction=_direction(id_, before, after),
        file=place[0],
        line=place[1],
    )


def _direction(id_: str, before: _Side, after: _Side) -> Direction:
    old, new = before.part(id_), after.part(id_)
    if id_.startswith("limits/"):
        return _limits(id_, before, after)
    if old is not None and new is not None:
        return tightening.of_value(id_, (), old.fields, new.fields)
    part = old or new
    return tightening.of_entry(id_, part.fields, added=old is None) if part else ""


def _limits(id_: str, before: _Side, after: _Side) -> Direction:
    """The direction of a limit that comes, goes, or is switched on or off."""
    level, _, kind = id_.removeprefix("limits/").rpartition("/")
    old, new = before.part(id_), after.part(id_)
    if kind == "polling" and any(side.limited("repeat", "cycle") for side in (before, after)):
        return ""  # whose place it takes
    if old is not None and new is not None:
        return tightening.of_limit(id_, old.fields, new.fields)
    if new is not None:
        return tightening.together(
            tightening.of_level(id_, wide, new.fields) for wide in before.wider(level, kind)
        )
    fields = old.fields if old is not None else {}
    return tightening.opposite(
        tightening.together(
            tightening.of_level(id_, wide, fields) for wide in after.wider(level, kind)
        )
    )


def _moves(before: _Side, after: _Side) -> Iterator[Change]:
    """Entries of first-match lists that are now asked before others, or after them."""
    for section, ids in after.meaning.orders.items():
        old = {id_: place for place, id_ in enumerate(before.meaning.orders[section])}
        kept = [id_ for id_ in ids if id_ in old]
        still = _longest_rising([old[id_] for id_ in kept])
        for place, id_ in enumerate(kept):
            if old[id_] in still:
                continue
            for other_place, other in enumerate(kept):
                was, now = old[id_] < old[other], place < other_place
                if was is now or other == id_ or _commute(section, id_, other, after):
                    continue
                part = after.meaning.parts[id_]
                file, line = after.place(part.path)
                words = {True: "before", False: "after"}
                yield Change(
                    entry=_name(id_),
                    what="moved",
                    field="",
                    old=f"{words[was]} {_name(other)}",
                    new=f"{words[now]} {_name(other)}",
                    direction="",
                    file=file,
                    line=line,
                )
                break


def _longest_rising(places: list[int]) -> set[int]:
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


def _commute(section: str, one: str, other: str, side: _Side) -> bool:
    """Whether it makes no difference which of two entries is asked first."""
    left, right = side.meaning.parts[one].fields, side.meaning.parts[other].fields
    same = {"classes": ("class",), "envelope": ("state",), "blame": ("blame",)}.get(section)
    if same is not None and left[same] == right[same]:
        return True
    if section == "signatures":
        return {left[("on",)], right[("on",)]} == {"error", "success"}
    globs = left.get(("tools",)), right.get(("tools",))
    if any(isinstance(one, Read) for one in globs):
        return False
    return all(globs) and not any(overlap(a, b) for a in globs[0] or () for b in globs[1] or ())


def _name(id_: str) -> str:
    """An id as reports show it; behind that of a class stands what it is told by."""
    return id_.partition(" ")[0]


def _shown(value: Any) -> str:
    if isinstance(value, frozenset | tuple):
        return flow(sorted(map(str, value)))
    return str(value)
