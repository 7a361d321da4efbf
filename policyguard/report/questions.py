"""Render calls that wait for an approval as text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime

from policyguard.model.question import OpenQuestion
from policyguard.report.escape import for_terminal


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
    args = "(not kept)" if one.args is None else json.dumps(one.args, ensure_ascii=False)
    lines = [
        f"{for_terminal(one.call, 60)}  {for_terminal(one.tool, 60)} {for_terminal(args, 300)}",
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


def _since(one: OpenQuestion, now: float) -> str:
    if one.asked_at is None:
        return ""
    seconds = max(0, round(now - one.asked_at))
    minutes, seconds = divmod(seconds, 60)
    return f", {minutes} min ago" if minutes else f", {seconds} s ago"
