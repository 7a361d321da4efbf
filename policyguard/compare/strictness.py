"""Decide whether a change makes a policy tighter or looser.

A change is tighter if, for every sequence of calls, the new policy is stricter on the first call
where the two disagree. A change without such a direction, such as one in how calls or results are
classified, gets none.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any, Literal

from policyguard.compare.semantics import FieldPath, FieldValues, ParamValue, SelectedItems
from policyguard.model.entry import EXCEPT, SELECTOR_KEYS

Direction = Literal["tighter", "looser", ""]

_OPPOSITE: dict[Direction, Direction] = {"tighter": "looser", "looser": "tighter", "": ""}
_STRICTER_WHEN_SMALLER = frozenset(
    {
        "max",
        "calls",
        "tokens",
        "cost",
        "time",
        "concurrent",
        "model_calls",
        "advise_at",
        "ask_at",
        "halt_at",
        "unchanged",
        "timeout",
        "corroborate",
        "without_news",
        "shrink_after",
        "argument_bytes",
        "argument_depth",
    }
)
"""Numbers where a smaller one refuses more, and none refuses nothing."""
_STRICTER_WHEN_LARGER = frozenset({"window", "longest", "cooldown", "reserve", "count", "min"})
"""Numbers where a larger one refuses more, and none refuses least."""
_STRICTER_WHEN_LONGER = frozenset({"within", "half_life", "widen_after"})
"""Durations where a longer one refuses for longer, and none refuses forever."""
_EFFECTS = ("allow", "advise", "ask", "block", "halt")
_SCALES: dict[str, tuple[Any, ...]] = {
    "effect": _EFFECTS,
    "on_error": ("allow", "advise", "ask", "block"),
    "on_internal_error": ("allow", "block"),
    "otherwise": _EFFECTS,
    "new": _EFFECTS,
    "changed": _EFFECTS,
    "removed": _EFFECTS,
    "found": _EFFECTS,
    "mode": ("observe", "enforce"),
    "batch": ("each", "all_or_none"),
    "per": ("turn", "session"),
    "same": ("call_and_result", "call"),
    "refuse": ("call", "tool"),
    "locked": (("bool", False), ("bool", True)),
    "on_success": ("forget", "keep"),
}
"""Values in order of strictness."""
_RESULT_EFFECTS = (("advise", "redact", "withhold"), ("advise", "truncate", "withhold"))
"""Effects on results in order: what is redacted is not cut, and a halt may show all of it."""
_SELECTORS = SELECTOR_KEYS - {"when"}
_MATCHES_ALL = "*"
_GLOB_SELECTORS = frozenset({"tools", "servers", "agents"})
"""Selectors by which `["*"]` selects every call, as none does."""
_CONDITIONS = frozenset({"when", "unless"})
_REFUSING_SECTIONS = frozenset({"rules", "budgets", "result_rules"})
_COMPARABLE_SECTIONS = frozenset(
    {
        *_REFUSING_SECTIONS,
        "limits",
        "exceptions",
        "pins",
        "learn",
        "radius",
        "bounds",
        "mode",
        "locked",
        "batch",
        "on_internal_error",
    }
)
"""Sections that refuse calls. The others classify calls and results."""


def entry_direction(id_: str, fields: FieldValues, *, added: bool) -> Direction:
    """Return the direction of an added or removed entry."""
    section = id_.partition("/")[0]
    if fields.get(("mode",)) == "observe" or fields.get(("effect",)) == "advise":
        return ""
    if section in (*_REFUSING_SECTIONS, "learn", "radius") or id_ == "pins":
        return "tighter" if added else "looser"
    if section == "exceptions":
        return "looser" if added else "tighter"
    return ""


def limit_direction(id_: str, old: FieldValues | None, new: FieldValues | None) -> Direction:
    """Return the direction of replacing a limit. None means no limit, like `none`."""
    before, after = _is_limit(old), _is_limit(new)
    if old is None or new is None or not (before and after):
        return "" if before == after else "tighter" if after else "looser"
    return combine_directions(
        value_direction(id_, field, old, new)
        for field in old.keys() | new.keys()
        if old.get(field) != new.get(field)
    )


def item_direction(id_: str, item: FieldValues) -> Direction:
    """Return the direction of one more item in a list of an entry."""
    if not id_.startswith("limits/") or item.get(("effect",)) == "advise":
        return ""  # of others, an item takes calls from the next ones
    return limit_direction(id_, None, item)


def level_direction(id_: str, wide: FieldValues | None, narrow: FieldValues) -> Direction:
    """Return the direction of a limit that takes calls out of a wider limit.

    The wider limit no longer counts these calls: others stay longer in its window, but streaks are
    split.
    """
    kind = id_.rpartition("/")[2]
    direction = limit_direction(id_, wide, narrow)
    if wide is None or not _is_limit(wide) or kind == "timeout":
        return direction
    isolated = (
        kind == "repeat" and ("key",) not in wide
    )  # one key may stand for calls of many tools
    return direction if isolated and direction == "tighter" else ""


def reverse(direction: Direction) -> Direction:
    """Return the direction of the reverse change."""
    return _OPPOSITE[direction]


def value_direction(id_: str, field: FieldPath, old: FieldValues, new: FieldValues) -> Direction:
    """Return the direction of a changed value of an entry, if it has one after any calls."""
    if not _is_monotonic(id_, field, old, new):
        return ""
    return key_direction(id_, field, *_current_values(old.get(field), new.get(field)))


def key_direction(id_: str, field: FieldPath, before: Any, after: Any) -> Direction:
    """Return the direction of a changed value of an entry, as one reads it by its key alone."""
    section = id_.partition("/")[0]
    name = field[-1] if field else id_.rpartition("/")[2]
    if section == "exceptions":
        if name == "until":  # days sort as texts do
            return "looser" if after > before else "tighter"
        direction = (
            _selector_direction(before, after)
            if name == "rules"
            else _condition_direction(before, after)
        )
        return _OPPOSITE[direction]
    if section in (*_REFUSING_SECTIONS, "pins") and name in _SELECTORS:
        if name in _GLOB_SELECTORS:
            before, after = _drop_if_all(before), _drop_if_all(after)
        if before == after:
            return ""
        return (_path_direction if name == "paths" else _selector_direction)(before, after)
    if section in _REFUSING_SECTIONS and name in _CONDITIONS:
        return _condition_direction(before, after)
    if field == ("per", "scope"):
        return _scope_direction(before, after)
    if field == ("per", "keys"):
        return _partition_direction(before or (), after or ())
    if field == ("approval", "from"):
        return _OPPOSITE[_selector_direction(before or None, after or None)]
    if field == ("approval", "remember"):
        return _OPPOSITE[_selector_direction(before, after)]
    if section == "result_rules":
        if name == "effect":
            return _result_effect_direction(before, after)
        if name == "keep" and isinstance(before, int) and isinstance(after, int):
            return _OPPOSITE[_compare_strictness(before, after)]
    return _compare_strictness(_strictness(name, before), _strictness(name, after))


def combine_directions(directions: Iterable[Direction]) -> Direction:
    """Return the common direction of several changes, or none."""
    found = set(directions)
    return found.pop() if len(found) == 1 else ""


def _current_values(old: Any, new: Any) -> tuple[Any, Any]:
    """Return two values, or their current values if both come from the same params."""
    if isinstance(old, ParamValue) and isinstance(new, ParamValue) and old.params == new.params:
        return old.value, new.value
    return old, new


def _is_monotonic(id_: str, field: FieldPath, old: FieldValues, new: FieldValues) -> bool:
    """Return whether a change of this value has the same effect after any earlier calls."""
    section, _, rest = id_.partition("/")
    name = field[-1] if field else ""

    def neither(*others: str) -> bool:
        return not any(fields.keys() & {(other,) for other in others} for fields in (old, new))

    if section == "limits" and rest.endswith("/outage"):
        # An outage that starts earlier may also end earlier, and one of several tools has them all
        # refused where a tool that is refused would be one of them.
        return name not in ("max", "within", "per", "refuse")
    if section == "limits" and rest.endswith("/failures") and name == "effect":
        # A limit that blocks admits probes, one that asks does not.
        return {fields.get(field) or "block" for fields in (old, new)} != {"ask", "block"}
    if section == "limits" and not name.endswith("_at"):
        # Thresholds count refused attempts too, whose calls may have left the window.
        return neither("ask_at", "halt_at")
    if section == "budgets" and field[:1] == ("per",):
        # Each scope has its own extensions, clock and owning agent.
        return name == "scope" and neither("extend", "agents", "time")
    if section == "budgets" and name == "when":
        return neither("sum")  # the sum of a call that just fits depends on the order
    if section == "rules" and field[:1] == ("approval",):
        return name != "within" and field in old and field in new
    if section == "rules" and field[:1] == ("cases",) and name in SELECTOR_KEYS | _CONDITIONS:
        return False  # the call is for the next case
    if section == "rules" and name in SELECTOR_KEYS | _CONDITIONS:
        # `on_error` may be stricter than the effect.
        return all(
            _SCALES["effect"].index(fields["on_error",])
            <= _SCALES["effect"].index(fields["effect",])
            for fields in (old, new)
        )
    if section == "learn" and name != "half_life":
        # An earlier ban ends earlier, and may evict other bans.
        return neither("most") and not any(("weaken", "lives") in side for side in (old, new))
    if section == "radius":
        return {index for index, *_ in old} == {index for index, *_ in new}
    return section in _COMPARABLE_SECTIONS


def _strictness(name: str, value: Any) -> float | None:
    """Return a number that grows with strictness, or None if the value has no such order."""
    if isinstance(value, ParamValue):
        return None
    if name in _SCALES:
        scale = _SCALES[name]
        item = scale[-1] if value is None and name in ("mode", "otherwise") else value
        return scale.index(item) if item in scale else None
    if name == "extend":
        return -(value or 0)
    if value == "all":
        return inf
    if value is not None and not isinstance(value, int | float):
        return None
    if name in _STRICTER_WHEN_SMALLER:
        return -inf if value is None else -value
    if name in _STRICTER_WHEN_LARGER:
        return -inf if value is None else value
    if name in _STRICTER_WHEN_LONGER:
        return inf if value is None else value
    return None


def _compare_strictness(old: float | None, new: float | None) -> Direction:
    if old is None or new is None or old == new:
        return ""
    return "tighter" if new > old else "looser"


def _result_effect_direction(old: Any, new: Any) -> Direction:
    """Return the direction of a changed effect on results, if one shows less than the other."""
    for scale in _RESULT_EFFECTS:
        if old in scale and new in scale:
            return _compare_strictness(scale.index(old), scale.index(new))
    return ""


def _scope_direction(old: Any, new: Any) -> Direction:
    """Return the direction of a changed scope, for scopes that contain one another."""
    if new == "global" or (old, new) == ("turn", "session"):
        return "tighter"
    return "looser" if old == "global" or (new, old) == ("turn", "session") else ""


def _partition_direction(old: tuple[Any, ...], new: tuple[Any, ...]) -> Direction:
    """Return the direction of changed keys, each of whose values has a budget of its own."""
    if set(old) < set(new):
        return "looser"
    return "tighter" if set(new) < set(old) else ""


def _selector_direction(old: Any, new: Any) -> Direction:
    """Return the direction of a changed selector: more is tighter, and none selects all."""
    if old is None or new is None:
        return "tighter" if new is None else "looser"
    if isinstance(old, SelectedItems) and isinstance(new, SelectedItems):
        if old.outside is not new.outside:
            return ""
        direction = _selector_direction(old.items, new.items)
        return _OPPOSITE[direction] if old.outside else direction
    if not isinstance(old, frozenset) or not isinstance(new, frozenset):
        return ""
    return "tighter" if new > old else "looser" if new < old else ""


def _path_direction(old: Any, new: Any) -> Direction:
    """Return the direction of a changed selector of paths, of which some are exceptions."""
    if not isinstance(old, SelectedItems) or not isinstance(new, SelectedItems):
        return _selector_direction(old, new)
    (listed, excepted), (now_listed, now_excepted) = map(_split_exceptions, (old, new))
    directions = []
    if listed != now_listed:
        directions.append(_selector_direction(listed, now_listed))
    if excepted != now_excepted:
        directions.append(_OPPOSITE[_selector_direction(excepted, now_excepted)])
    return combine_directions(directions)


def _split_exceptions(selector: SelectedItems) -> tuple[SelectedItems, SelectedItems]:
    excepted = frozenset(item for item in selector.items if item.startswith(EXCEPT))
    return (
        SelectedItems(selector.items - excepted, selector.outside),
        SelectedItems(excepted, selector.outside),
    )


def _drop_if_all(selector: Any) -> Any:
    """Return None for a selector of everything."""
    is_listed = isinstance(selector, SelectedItems) and not selector.outside
    items = selector.items if is_listed else selector
    return None if isinstance(items, frozenset) and _MATCHES_ALL in items else selector


def _condition_direction(old: Any, new: Any) -> Direction:
    """Return the direction of a changed condition: none is tightest."""
    if not old or not new:
        return "tighter" if not new else "looser"
    return ""


def _is_limit(fields: FieldValues | None) -> bool:
    return fields is not None and fields.get(()) != "none" and fields.get(("mode",)) != "observe"
