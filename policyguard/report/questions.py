"""Render calls that wait for an approval as text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from policyguard.model.question import OpenQuestion
from policyguard.report.escape import for_terminal

_MAX_ARGUMENTS, _MAX_VALUE_CHARS = 40, 200
"""What is shown of a call: of more than that, how much is left out."""


def render_questions(questions: Iterable[OpenQuestion], now: float) -> str:
    """Render a block per call, in the order given; `now` is seconds since 1970."""
    blocks = [render_question(one, now) for one in questions]
    return "\n\n".join(blocks) if blocks else "no call waits for an approval"


def render_question(one: OpenQuestion, now: float) -> str:
    """Render one call: what it is, what asked, and who has answered so far."""
    whose = ", ".join(
        f"{name} {for_terminal(value, 40)}"
        for name, value in (("agent", one.agent), ("user", one.user), ("project", one.project))
        if value
    )
    lines = [
        f"{for_terminal(one.call, 60)}  {for_terminal(one.tool, 60)}",
        *(f"    {line}" for line in render_arguments(one.args)),
        f"  session   {for_terminal(one.session, 80)}{f' ({whose})' if whose else ''}",
        f"  asked by  {for_terminal(', '.join(one.entries), 120)}{_since(one, now)}",
    ]
    said = [line[2:] for line in one.message.splitlines() if line.startswith("- ")]
    lines += [f"            {for_terminal(text, 200)}" for text in said]
    if one.approvers > 1 or one.approved_by:
        people = f": {for_terminal(', '.join(one.approved_by), 120)}" if one.approved_by else ""
        lines.append(f"  approved  {len(one.approved_by)} of {one.approvers}{people}")
    if one.labels:
        lines.append(f"  needs     one of {for_terminal(', '.join(one.labels), 120)}")
    if one.expires_at is not None:
        until = datetime.fromtimestamp(one.expires_at, UTC)
        lines.append(f"  until     {until:%Y-%m-%d %H:%M:%S} UTC")
    return "\n".join(lines)


def render_arguments(args: Mapping[str, Any] | None) -> list[str]:
    """Return a line for each argument, all of their names, and how much of a value is left out."""
    if args is None:
        return ["(its arguments are not kept)"]
    lines = []
    for name, value in list(args.items())[:_MAX_ARGUMENTS]:
        text = json.dumps(value, ensure_ascii=False)
        left = len(text) - _MAX_VALUE_CHARS
        more = f" … and {left:,} more characters" if left > 0 else ""
        lines.append(f"{for_terminal(name, 80)}: {for_terminal(text[:_MAX_VALUE_CHARS])}{more}")
    if len(args) > _MAX_ARGUMENTS:
        lines.append(f"… and {len(args) - _MAX_ARGUMENTS:,} more arguments")
    return lines or ["(no arguments)"]


def _since(one: OpenQuestion, now: float) -> str:
    if one.asked_at is None:
        return ""
    seconds = max(0, round(now - one.asked_at))
    minutes, seconds = divmod(seconds, 60)
    return f", {minutes} min ago" if minutes else f", {seconds} s ago"
