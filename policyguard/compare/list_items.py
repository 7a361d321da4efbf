"""Pair the items of two lists by likeness, so that an inserted item is one addition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from policyguard.compare.semantics import FieldPath, FieldValues

_FREE_LISTS: dict[str, tuple[FieldPath, ...]] = {"limits": ((),), "marks": (("set",), ("clear",))}
"""By section, lists whose items count in any order."""
_FIRST_MATCH_LISTS: dict[str, tuple[FieldPath, ...]] = {"rules": (("cases",),), "radius": ((),)}
"""By section, lists of which the first item that matches counts."""

_Item = dict[FieldPath, Any]
_Pairs = dict[int, int]


class PairedFields(NamedTuple):
    """The values of an entry's paired items, under the index of the newer, and the other items.

    `old_indexes` has the old path of each paired item that is elsewhere now.
    """

    old: FieldValues
    new: FieldValues
    old_indexes: dict[FieldPath, FieldPath]
    removed: tuple[FieldPath, ...]
    added: tuple[FieldPath, ...]

    def old_path(self, field: FieldPath) -> FieldPath:
        """Return the path of a value in the older entry."""
        for length in range(1, len(field) + 1):
            if field[:length] in self.old_indexes:
                return (*self.old_indexes[field[:length]], *field[length:])
        return field


def pair_fields(id_: str, old: FieldValues, new: FieldValues) -> PairedFields:
    """Pair the items of an entry's lists."""
    section = id_.partition("/")[0]
    paired = PairedFields(old, new, {}, (), ())
    for path in _FREE_LISTS.get(section, ()):
        paired = _pair_list(path, paired, is_free=True)
    for path in _FIRST_MATCH_LISTS.get(section, ()):
        paired = _pair_list(path, paired, is_free=False)
    return paired


def item_fields(path: FieldPath, fields: FieldValues) -> _Item:
    """Return the values of an item by their paths in it."""
    return {field[len(path) :]: fields[field] for field in fields if field[: len(path)] == path}


def _pair_list(path: FieldPath, sides: PairedFields, *, is_free: bool) -> PairedFields:
    before, after = _items(path, sides.old), _items(path, sides.new)
    if not before or not after:
        return sides  # a list that comes or goes
    pairs = (_pair_by_likeness if is_free else _pair_in_order)(before, after)
    old_indexes = {(*path, str(now)): (*path, str(was)) for now, was in pairs.items() if now != was}
    moved = {was: now for now, was in pairs.items()}
    return PairedFields(
        old=dict(_move_items(path, sides.old, moved)),
        new=dict(_move_items(path, sides.new, {index: index for index in pairs})),
        old_indexes={**sides.old_indexes, **old_indexes},
        removed=(*sides.removed, *((*path, str(i)) for i in range(len(before)) if i not in moved)),
        added=(*sides.added, *((*path, str(i)) for i in range(len(after)) if i not in pairs)),
    )


def _items(path: FieldPath, fields: FieldValues) -> list[_Item]:
    """Return the values of each item; none if there is no list at `path`."""
    items: dict[int, _Item] = {}
    for field, value in fields.items():
        if field[: len(path)] == path and len(field) > len(path) and field[len(path)].isdecimal():
            items.setdefault(int(field[len(path)]), {})[field[len(path) + 1 :]] = value
    return [items.get(index, {}) for index in range(max(items, default=-1) + 1)]


def _move_items(
    path: FieldPath, fields: FieldValues, moved: _Pairs
) -> Iterator[tuple[FieldPath, Any]]:
    """Yield the values with the indexes in `moved` replaced, without the other items."""
    for field, value in fields.items():
        step = field[len(path) : len(path) + 1]
        if field[: len(path)] != path or not step or not step[0].isdecimal():
            yield field, value
        elif int(step[0]) in moved:
            yield (*path, str(moved[int(step[0])]), *field[len(path) + 1 :]), value


def _likeness(one: _Item, other: _Item) -> tuple[bool, int]:
    """Return whether two items are equal, and how many of their values are."""
    same = sum(field in other and other[field] == value for field, value in one.items())
    return one == other, same


def _pair_by_likeness(before: list[_Item], after: list[_Item]) -> _Pairs:
    """Return the old index for each new one, the likest items first."""
    candidates = sorted(
        ((was, now) for was in range(len(before)) for now in range(len(after))),
        key=lambda pair: (*_likeness(before[pair[0]], after[pair[1]]), -abs(pair[0] - pair[1])),
        reverse=True,
    )
    pairs: _Pairs = {}
    taken: set[int] = set()
    for was, now in candidates:
        if was not in taken and now not in pairs:
            pairs[now] = was
            taken.add(was)
    return pairs


def _pair_in_order(before: list[_Item], after: list[_Item]) -> _Pairs:
    """Return the old index for each new one so that no two pairs cross, as alike as possible.

    As many items are equal as can be; of such pairings, as many values.
    """
    none = (0, 0, 0)
    best = [[none] * (len(after) + 1) for _ in range(len(before) + 1)]
    for was in reversed(range(len(before))):
        for now in reversed(range(len(after))):
            paired = _add_pair(best[was + 1][now + 1], before[was], after[now])
            best[was][now] = max(paired, best[was + 1][now], best[was][now + 1])
    pairs: _Pairs = {}
    was = now = 0
    while was < len(before) and now < len(after):
        if best[was][now] == _add_pair(best[was + 1][now + 1], before[was], after[now]):
            pairs[now] = was
            was, now = was + 1, now + 1
        elif best[was][now] == best[was + 1][now]:
            was += 1
        else:
            now += 1
    return pairs


def _add_pair(rest: tuple[int, int, int], one: _Item, other: _Item) -> tuple[int, int, int]:
    is_equal, same = _likeness(one, other)
    return rest[0] + is_equal, rest[1] + same, rest[2] + 1
