"""Render why a call was decided as it was."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from policyguard.report.escape import for_terminal

_NONE = "-"


class EntryAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What one entry of the policy said about a call.

    `effect` is empty if it did not fire; `text` is what the model reads of it, or why it did not.
    `saw` are the values that its expressions read. `change` says what would have made it answer
    otherwise. `observed`: it only observes.
    """

    entry: str
    effect: str
    text: str
    saw: dict[str, str] = {}
    change: str = ""
    observed: bool = False


class CallExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a journal: what was decided, by which entries, and what came of it.

    `args` are JSON, None if the journal did not keep them. `entries` are those that were asked, as
    the policy is now; `effect` and `recorded` are what was decided then. `at` is nanoseconds.
    """

    session: str
    call: str
    host_call: str
    tool: str
    args: str | None
    at: int | None
    effect: str
    recorded: tuple[str, ...]
    entries: tuple[EntryAnswer, ...]
    answers: tuple[str, ...] = ()
    result: str = ""
    notes: tuple[str, ...] = ()

    @property
    def fired(self) -> tuple[EntryAnswer, ...]:
        """The entries that fired."""
        return tuple(one for one in self.entries if one.effect)

    @property
    def silent(self) -> tuple[EntryAnswer, ...]:
        """The entries that were asked and did not fire."""
        return tuple(one for one in self.entries if not one.effect)

    def silent_by_reason(self) -> dict[str, list[EntryAnswer]]:
        """Return the entries that did not fire, by the reason."""
        found: dict[str, list[EntryAnswer]] = {}
        for entry in self.silent:
            found.setdefault(entry.text, []).append(entry)
        return found

    def to_json(self) -> Any:
        """Return plain values."""
        return msgspec.to_builtins(self)


def render_why(one: CallExplanation) -> str:
    """Render a call: what was decided, what came of it, and each entry that was asked."""
    named = f" ({for_terminal(one.host_call, 60)})" if one.host_call else ""
    args = "(arguments not kept)" if one.args is None else for_terminal(one.args, 300)
    lines = [
        f"{for_terminal(one.call, 60)}{named} of session {for_terminal(one.session, 80)}",
        f"  call      {for_terminal(one.tool, 80)} {args}",
        f"  at        {_time(one.at)}",
        f"  decided   {one.effect}{_by(one.recorded)}",
        *(f"  answered  {for_terminal(text, 200)}" for text in one.answers),
        *([f"  result    {for_terminal(one.result, 200)}"] if one.result else ()),
        *(f"  note      {for_terminal(text, 300)}" for text in one.notes),
        "",
        "asked, as the policy is now:",
    ]
    for entry in one.fired:
        effect = f"({entry.effect})" if entry.observed else entry.effect
        lines.append(f"  {effect:8}  {for_terminal(entry.entry, 80)}: {_shown(entry)}")
        lines += _saw(entry)
        if entry.change:
            lines.append(f"            otherwise with {for_terminal(entry.change, 240)}")
    for text, alike in one.silent_by_reason().items():
        names = ", ".join(entry.entry for entry in alike)
        lines.append(f"  {_NONE:8}  {for_terminal(text, 240)}: {for_terminal(names, 600)}")
        for entry in alike:
            lines += _saw(entry)
    if not one.entries:
        lines.append("  no entry of the policy is about this call")
    return "\n".join(lines)


def _saw(entry: EntryAnswer) -> list[str]:
    return [
        f"            saw {for_terminal(name, 80)} = {for_terminal(value, 120)}"
        for name, value in entry.saw.items()
    ]


def _by(recorded: tuple[str, ...]) -> str:
    return f", by {for_terminal(', '.join(recorded), 200)}" if recorded else ""


def _shown(entry: EntryAnswer) -> str:
    return for_terminal(entry.text, 240)


def _time(at: int | None) -> str:
    if at is None:
        return "at a time not known"
    return datetime.fromtimestamp(at / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
