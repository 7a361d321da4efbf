"""Whether a change makes a policy refuse more or less, where that can be told from the value.

Only what holds for every call is said: a change that refuses some calls more and others less has
no direction, and neither has one in what a call or a result is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Any, Literal

from policyguard.lint.meaning import Chosen, Field
from policyguard.model.entry import SELECTORS

Direction = Literal["tighter", "looser", ""]

_OPPOSITE: dict[Direction, Direction] = {"tighter": "looser", "looser": "tighter", "": ""}
_FEWER = frozenset(
    {
        "max",
        "calls",
        "tokens",
        "cost",
        "time",
        "at_once",
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
_MORE = frozenset(
    {
        "window",
        "longest",
        "cooldown",
        "reserve",
        "count",
        "most",
        "widen_after",
    }
)
"""Numbers of which a larger one refuses more; not to give one is to refuse least."""
_LASTING = frozenset({"within", "lives", "half_life"})
"""Times of which a longer one refuses more; not to give one is for ever."""
_SCALES: dict[str, tuple[Any, ...]] = {
    "effect": ("allow", "advise", "ask", "block", "halt"),
    "on_error": ("allow", "advise", "ask", "block"),
    "on_internal_error": ("allow", "block"),
    "otherwise": ("allow", "block"),
    "mode": ("observe", "enforce"),
    "per": ("turn", "session", "agent", "project", "global"),
    "scope": ("turn", "session", "agent", "project", "global"),
    "ban": ("call", "target", "tool", "class"),
    "refuse": ("call", "tool"),
    "locked": (("bool", False), ("bool", True)),
    "on_success": ("forget", "keep"),
}
"""Words of which a later one refuses more."""
_SELECTORS = SELECTORS - {"when"}
_CONDITIONS = frozenset({"when", "unless", "keys"})
_THAT_REFUSE = frozenset({"rules", "budgets", "result_rules"})


def of_entry(id_: str, fields: Mapping[Field, Any], *, added: bool) -> Direction:
    """What it means that an entry is there, or is gone."""
    section = id_.partition("/")[0]
    if fields.get(("mode",)) == "observe" or fields.get(("effect",)) == "advise":
        return ""
    if section in (*_THAT_REFUSE, "learn", "radius"):
        return "tighter" if added else "looser"
    if section == "exceptions":
        return "looser" if added else "tighter"
    return ""


def of_limit(old: Mapping[Field, Any] | None, new: Mapping[Field, Any] | None) -> Direction:
    """What it means that one limit holds where another did; None is no limit, as `none` is."""
    before, after = _is_limit(old), _is_limit(new)
    if old is None or new is None or not (before and after):
        return "" if before == after else "tighter" if after else "looser"
    return together(
        of_value("limits", field, old.get(field), new.get(field))
        for field in old.keys() | new.keys()
        if old.get(field) != new.get(field)
    )


def of_value(id_: str, field: Field, old: Any, new: Any) -> Direction:
    """What it means that a value of an entry has changed; None is one that is not given."""
    section = id_.partition("/")[0]
    name = field[-1] if field else id_.rpartition("/")[2]
    if section == "exceptions":
        return (
            _OPPOSITE[_selection(old, new)] if name == "rules" else _OPPOSITE[_condition(old, new)]
        )
    if section in _THAT_REFUSE and name in _SELECTORS:
        return _selection(old, new)
    if section in _THAT_REFUSE and name in _CONDITIONS:
        return _condition(old, new)
    if section == "learn" and name in ("blame", "except"):
        more = _selection(old, new)
        return more if name == "blame" else _OPPOSITE[more]
    if section == "params" or field == ("approval", "within"):
        return ""
    return _compared(_strictness(name, old), _strictness(name, new))


def together(directions: Iterable[Direction]) -> Direction:
    """The direction of several changes: that of all of them, or none."""
    found = set(directions)
    return found.pop() if len(found) == 1 else ""


def _strictness(name: str, value: Any) -> float | None:
    """A number that is larger the more is refused; None where no value of this name tells that."""
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
    if name in _FEWER:
        return -inf if value is None else -value
    if name in _MORE:
        return -inf if value is None else value
    if name in _LASTING:
        return inf if value is None else value
    return None


def _compared(old: float | None, new: float | None) -> Direction:
    if old is None or new is None or old == new:
        return ""
    return "tighter" if new > old else "looser"


def _selection(old: Any, new: Any) -> Direction:
    """Of what an entry is about: more of it is tighter; not to say is everything."""
    if old is None or new is None:
        return "tighter" if new is None else "looser"
    if isinstance(old, Chosen) and isinstance(new, Chosen):
        if old.outside is not new.outside:
            return ""
        more = _selection(old.items, new.items)
        return _OPPOSITE[more] if old.outside else more
    if not isinstance(old, frozenset) or not isinstance(new, frozenset):
        return ""
    return "tighter" if new > old else "looser" if new < old else ""


def _condition(old: Any, new: Any) -> Direction:
    """Of what exempts calls, or counts them apart: none of it is tightest."""
    if not old or not new:
        return "tighter" if not new else "looser"
    return ""


def _is_limit(fields: Mapping[Field, Any] | None) -> bool:
    return fields is not None and fields.get(()) != "none" and fields.get(("mode",)) != "observe"
