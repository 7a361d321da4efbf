"""Whether a change makes a policy refuse more or less, where that can be told from the value.

Only what holds for every call, after any others, is said: it is tighter where the first call that
the two policies answer otherwise is answered more strongly by the new one. A change that refuses
some calls more and others less has no direction, and neither has one in what a call or a result is.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any, Literal

from policyguard.compare.semantics import FieldPath, FieldValues, ParamValue, SelectedItems
from policyguard.model.entry import SELECTOR_KEYS

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
        "advise_at",
        "ask_at",
        "halt_at",
        "unchanged",
        "timeout",
        "corroborate",
        "shrink_after",
        "argument_bytes",
        "argument_depth",
    }
)
"""Numbers of which a smaller one refuses more; not to give one is to refuse nothing."""
_STRICTER_WHEN_LARGER = frozenset(
    {
        "window",
        "longest",
        "cooldown",
        "reserve",
        "count",
    }
)
"""Numbers of which a larger one refuses more; not to give one is to refuse least."""
_STRICTER_WHEN_LONGER = frozenset({"within", "half_life", "widen_after"})
"""What is longer is refused for longer; not to give one is for ever."""
_SCALES: dict[str, tuple[Any, ...]] = {
    "effect": ("allow", "advise", "ask", "block", "halt"),
    "on_error": ("allow", "advise", "ask", "block"),
    "on_internal_error": ("allow", "block"),
    "otherwise": ("allow", "block"),
    "mode": ("observe", "enforce"),
    "per": ("turn", "session"),
    "locked": (("bool", False), ("bool", True)),
    "on_success": ("forget", "keep"),
}
"""Words of which a later one refuses more."""
_SELECTORS = SELECTOR_KEYS - {"when"}
_CONDITIONS = frozenset({"when", "unless"})
_REFUSING_SECTIONS = frozenset({"rules", "budgets", "result_rules"})
_COMPARABLE_SECTIONS = frozenset(
    {
        *_REFUSING_SECTIONS,
        "limits",
        "exceptions",
        "learn",
        "radius",
        "bounds",
        "mode",
        "locked",
        "on_internal_error",
    }
)
"""Sections whose values refuse calls, or not; all others say what a call or a result is."""


def entry_direction(id_: str, fields: FieldValues, *, added: bool) -> Direction:
    """What it means that an entry is there, or is gone."""
    section = id_.partition("/")[0]
    if fields.get(("mode",)) == "observe" or fields.get(("effect",)) == "advise":
        return ""
    if section in (*_REFUSING_SECTIONS, "learn", "radius"):
        return "tighter" if added else "looser"
    if section == "exceptions":
        return "looser" if added else "tighter"
    return ""


def limit_direction(id_: str, old: FieldValues | None, new: FieldValues | None) -> Direction:
    """What it means that one limit holds where another did; None is no limit, as `none` is."""
    before, after = _is_limit(old), _is_limit(new)
    if old is None or new is None or not (before and after):
        return "" if before == after else "tighter" if after else "looser"
    return combine_directions(
        value_direction(id_, field, old, new)
        for field in old.keys() | new.keys()
        if old.get(field) != new.get(field)
    )


def level_direction(id_: str, wide: FieldValues | None, narrow: FieldValues) -> Direction:
    """What it means that a limit takes some calls out of a wider one, which goes on for the rest.

    The wider one counts without them from then on: that keeps the others longer in its window, but
    what was one row is two.
    """
    kind = id_.rpartition("/")[2]
    direction = limit_direction(id_, wide, narrow)
    if wide is None or not _is_limit(wide) or kind == "timeout":
        return direction
    apart = kind == "repeat" and ("key",) not in wide  # one key may stand for calls of many tools
    return direction if apart and direction == "tighter" else ""


def reverse(direction: Direction) -> Direction:
    """The direction of the way back."""
    return _OPPOSITE[direction]


def value_direction(id_: str, field: FieldPath, old: FieldValues, new: FieldValues) -> Direction:
    """What it means that a value of an entry has changed, of all that the entry says."""
    section, was, now = id_.partition("/")[0], *_current_values(old.get(field), new.get(field))
    name = field[-1] if field else id_.rpartition("/")[2]
    if not _is_monotonic(id_, field, old, new):
        return ""
    if section == "exceptions":
        more = _selector_direction(was, now) if name == "rules" else _condition_direction(was, now)
        return _OPPOSITE[more]
    if section in _REFUSING_SECTIONS and name in _SELECTORS:
        return _selector_direction(was, now)
    if section in _REFUSING_SECTIONS and name in _CONDITIONS:
        return _condition_direction(was, now)
    if field == ("per", "scope"):
        return _scope_direction(was, now)
    return _compare_strictness(_strictness(name, was), _strictness(name, now))


def combine_directions(directions: Iterable[Direction]) -> Direction:
    """The direction of several changes: that of all of them, or none."""
    found = set(directions)
    return found.pop() if len(found) == 1 else ""


def _current_values(old: Any, new: Any) -> tuple[Any, Any]:
    """Two values, or what they are now where both come from the same params."""
    if isinstance(old, ParamValue) and isinstance(new, ParamValue) and old.params == new.params:
        return old.value, new.value
    return old, new


def _is_monotonic(id_: str, field: FieldPath, old: FieldValues, new: FieldValues) -> bool:
    """Whether a change of this value works the same way whatever was called before."""
    section, _, rest = id_.partition("/")
    name = field[-1] if field else ""

    def neither(*others: str) -> bool:
        return not any(fields.keys() & {(other,) for other in others} for fields in (old, new))

    if section == "limits" and rest.endswith("/outage"):
        # One that begins earlier does not see what fails meanwhile, and may end earlier.
        return name not in ("max", "within", "per")
    if section == "limits" and not name.endswith("_at"):
        # Steps count what was refused too, and what that was about may have left the window.
        return neither("ask_at", "halt_at")
    if section == "budgets" and field[:1] == ("per",):
        # Each scope has its own extensions and its own clock; `agents` are asked of its owner.
        return name == "scope" and neither("extend", "agents", "time")
    if section == "budgets" and name == "when":
        return neither("sum")  # that of a call which fits exactly depends on when it is asked
    if section == "rules" and field[:1] == ("approval",):
        return name != "within" and field in old and field in new
    if section == "rules" and name in SELECTOR_KEYS | _CONDITIONS:
        # What cannot be decided has an effect of its own, which may be the stronger one.
        return all(
            _SCALES["effect"].index(fields["on_error",])
            <= _SCALES["effect"].index(fields["effect",])
            for fields in (old, new)
        )
    if section == "learn" and name != "half_life":
        # What is banned earlier is forgotten earlier, and takes the place of other bans.
        return neither("most") and not any(("weaken", "lives") in side for side in (old, new))
    if section == "radius":
        return {place for place, *_ in old} == {place for place, *_ in new}
    return section in _COMPARABLE_SECTIONS


def _strictness(name: str, value: Any) -> float | None:
    """A number that is larger the more is refused; None where no value of this name tells that."""
    if isinstance(value, ParamValue):
        return None
    if name in _SCALES:
        scale = _SCALES[name]
        given = scale[-1] if value is None and name == "mode" else value
        return scale.index(given) if given in scale else None
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


def _scope_direction(old: Any, new: Any) -> Direction:
    """Of what is counted together: that one scope lies within the other is sure of these only."""
    if new == "global" or (old, new) == ("turn", "session"):
        return "tighter"
    return "looser" if old == "global" or (new, old) == ("turn", "session") else ""


def _selector_direction(old: Any, new: Any) -> Direction:
    """Of what an entry is about: more of it is tighter; not to say is everything."""
    if old is None or new is None:
        return "tighter" if new is None else "looser"
    if isinstance(old, SelectedItems) and isinstance(new, SelectedItems):
        if old.outside is not new.outside:
            return ""
        more = _selector_direction(old.items, new.items)
        return _OPPOSITE[more] if old.outside else more
    if not isinstance(old, frozenset) or not isinstance(new, frozenset):
        return ""
    return "tighter" if new > old else "looser" if new < old else ""


def _condition_direction(old: Any, new: Any) -> Direction:
    """Of what exempts calls: none of it is tightest."""
    if not old or not new:
        return "tighter" if not new else "looser"
    return ""


def _is_limit(fields: FieldValues | None) -> bool:
    return fields is not None and fields.get(()) != "none" and fields.get(("mode",)) != "observe"
