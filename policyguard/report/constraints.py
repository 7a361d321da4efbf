"""Render constraints as text."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from policyguard.model.constraint import Constraint
from policyguard.model.event import Admitted, Completed
from policyguard.report.escape import for_terminal

_NOT_KEPT = "are not in the journal; `journal: {args: keep}` in the policy keeps them"


def render_constraints(constraints: Iterable[tuple[Constraint, str]]) -> str:
    """Render one line per constraint, with its state."""
    rows = [
        (
            for_terminal(one.id, 40),
            for_terminal(state, 20),
            describe_scope(one),
            describe_ban(one),
            f"{one.count}x",
            for_terminal(one.signature, 80),
        )
        for one, state in constraints
    ]
    if not rows:
        return "no constraints"
    head = ("id", "state", "scope", "bans", "failed", "signature")
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(5)]
    return "\n".join(
        "  ".join([cell.ljust(width) for cell, width in zip(row, widths, strict=False)] + [row[5]])
        for row in (head, *rows)
    )


def render_constraint(one: Constraint, state: str, revoked_by: str) -> str:
    """Render the details of a constraint."""
    by = f" by {for_terminal(revoked_by, 60)}" if revoked_by else ""
    learn = f"signatures/{for_terminal(one.learn, 60)}/learn" if one.learn else "learn"
    lines = [
        f"{for_terminal(one.id, 40)}  {for_terminal(state, 20)}{by}",
        f"  bans        {describe_ban(one)}",
        f"  for         {describe_scope(one)}",
        f"  because     {one.count} failures with {for_terminal(one.signature, 80)}",
        f"  last error  {for_terminal(one.error, 160)}",
        f"  learned     {_time(one.learned_at)}, last confirmed {_time(one.confirmed_at)}",
        f"  taught by   {for_terminal(', '.join(one.taught_by), 200)}",
        f"  policy      {learn}",
    ]
    for point in one.points:
        values = ", ".join(f"{name} = {value}" for name, value in point.items())
        beyond = {"up": "or more in each", "down": "or less in each"}.get(one.direction, "")
        lines.append(f"  region      {for_terminal(values, 120)} {beyond}".rstrip())
    return "\n".join(lines)


def render_observation(name: str, events: tuple[Admitted | None, Completed | None]) -> str:
    """Render one call that taught a constraint, from its journal."""
    admitted, completed = events
    head = f"  {for_terminal(name, 80)}"
    if admitted is None:
        return f"{head}: not in the journal"
    args = _NOT_KEPT if admitted.args is None else msgspec.json.encode(admitted.args).decode()
    lines = [f"{head}  {_time(admitted.at)}  {for_terminal(admitted.shown_tool, 60)}"]
    lines.append(f"    arguments {for_terminal(args, 200)}")
    if completed is not None:
        error = completed.error if completed.error is not None else completed.text
        lines.append(f"    {completed.blame} failure: {for_terminal(error, 200)}")
    return "\n".join(lines)


def describe_ban(one: Constraint) -> str:
    """Return what a constraint bans, in words."""
    kind, _, name = one.key.partition(":")
    if kind == "call":
        return f"one call of {_tool(one)}"
    if kind == "parameters":
        return f"a region of parameters of {_tool(one)}"
    if kind == "tool":
        return f"tool {_tool(one)}"
    return f"{for_terminal(kind, 20)} {for_terminal(one.label or name, 60)}"


def _tool(one: Constraint) -> str:
    server = f" on {for_terminal(one.server, 40)}" if one.server else ""
    return f"{for_terminal(one.tool, 60)}{server}"


def describe_scope(one: Constraint) -> str:
    """Return for whom a constraint holds, in words."""
    scope, _, narrowed = one.scope.partition("\x1f")
    kind, _, name = scope.partition(":")
    text = for_terminal(kind, 20) + (f" {for_terminal(name, 40)}" if name else "")
    return f"{text} ({for_terminal(narrowed, 40)})" if narrowed else text


def _time(at: int | None) -> str:
    if at is None:
        return "at a time not known"
    return datetime.fromtimestamp(at / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
