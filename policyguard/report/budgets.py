"""Render the usage of shared budgets as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from policyguard.model.amounts import SCALE, format_number
from policyguard.report.escape import for_terminal


class SharedUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of a shared budget under one key.

    Amounts are in units of 1e-9, `limit` is None if it is not known, times are nanoseconds.
    """

    policy: str
    budget: str
    kind: str
    scope: str
    key: str
    used: int
    running: int
    granted: int
    limit: int | None
    started_at: int | None
    latest_at: int | None

    def sort_key(self) -> tuple[float, str, str, str]:
        """Order by what is nearest to its limit, then by name."""
        limit = None if self.limit is None else self.limit + self.granted
        share = 0.0 if not limit else self.used / limit
        return -share, self.policy, self.budget, self.key

    def to_json(self) -> dict[str, Any]:
        """Return plain values: amounts in the budget's own unit, times in nanoseconds."""
        amounts = {
            name: None if value is None else value / SCALE
            for name, value in (
                ("used", self.used),
                ("granted", self.granted),
                ("limit", self.limit),
            )
        }
        return {**msgspec.structs.asdict(self), "key": show_key(self.key), **amounts}


def render_usages(usages: Sequence[SharedUsage], resets: Iterable[Any]) -> str:
    """Render one line per budget and key, then the resets (`BudgetReset`), the oldest first."""
    if not usages:
        lines = ["no shared budget has been used"]
    else:
        head = ("budget", "of", "used", "charged")
        rows = [head, *(_row(usage) for usage in usages)]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = [
            "  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[3]]).rstrip()
            for row in rows
        ]
    for note in resets:
        budget = note.budget.partition(": ")[0]
        lines.append(
            f"reset by {for_terminal(note.by, 60)} on {_time(note.at)}: "
            f"{for_terminal(budget, 80)} of {show_key(note.key)}, used {show_amount(note.used)}"
        )
    return "\n".join(lines)


def show_key(key: str) -> str:
    """Return a key as people read and name it: the scope, and digests of the values of `per`."""
    return for_terminal(key.replace("\x1f", "/"), 80) or "all"


def show_amount(amount: int) -> str:
    """Return an amount in units of 1e-9 for people."""
    return format_number(amount / SCALE)


def _row(usage: SharedUsage) -> tuple[str, str, str, str]:
    used = usage.running * SCALE if usage.kind == "concurrent" else usage.used
    shown = show_amount(used)
    if usage.kind == "time":
        shown = "runs"
    elif usage.limit is not None:
        shown += f" of {show_amount(usage.limit + usage.granted)}"
    elif usage.granted:
        shown += f" (raised by {show_amount(usage.granted)})"
    name = f"{usage.policy}/{usage.budget}"
    who = f"{usage.scope} {show_key(usage.key)}" if usage.key else usage.scope
    charged = ""
    if usage.latest_at is not None:
        charged = f"last on {_time(usage.latest_at)}"
    elif usage.started_at is not None:
        charged = f"first on {_time(usage.started_at)}"
    return for_terminal(name, 80), for_terminal(who, 100), shown, charged


def _time(at: int) -> str:
    return datetime.fromtimestamp(at / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
