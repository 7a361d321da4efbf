"""Render grants as text."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from policyguard.model.grant import Grant
from policyguard.report.escape import for_terminal


def render_grants(grants: Iterable[tuple[Grant, str]]) -> str:
    """Render one line per grant, with its state."""
    rows = [
        (
            for_terminal(one.id, 40),
            for_terminal(state, 20),
            _scope(one),
            for_terminal(one.entry, 60),
            _time(one.expires_at),
            for_terminal(", ".join(one.approvers), 40),
            for_terminal(one.pattern.text, 200),
        )
        for one, state in grants
    ]
    if not rows:
        return "no grants"
    head = ("id", "state", "scope", "lifts", "expires", "by", "covers")
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(6)]
    return "\n".join(
        "  ".join([cell.ljust(width) for cell, width in zip(row, widths, strict=False)] + [row[6]])
        for row in (head, *rows)
    )


def render_grant(one: Grant, state: str, revoked_by: str) -> str:
    """Render the details of a grant."""
    by = f" by {for_terminal(revoked_by, 60)}" if revoked_by else ""
    people = (
        f"{name} ({', '.join(labels)})" if labels else name
        for name, labels in one.approvers.items()
    )
    made_on = for_terminal(f"{one.session}/{one.call}", 80)
    return "\n".join(
        (
            f"{for_terminal(one.id, 40)}  {for_terminal(state, 20)}{by}",
            f"  covers    {for_terminal(one.pattern.text, 400)}",
            f"  lifts     ask of {for_terminal(one.entry, 80)}",
            f"  for       {_scope(one)}",
            f"  by        {for_terminal(', '.join(people), 200)}",
            f"  granted   {_time(one.granted_at)}, on call {made_on}",
            f"  expires   {_time(one.expires_at)}",
        )
    )


def _scope(one: Grant) -> str:
    kind, _, name = one.scope.partition(":")
    return for_terminal(kind, 20) + (f" {for_terminal(name, 40)}" if name else "")


def _time(at: int) -> str:
    try:
        return datetime.fromtimestamp(at / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return "never"
