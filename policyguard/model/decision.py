"""Decisions on calls, with their violations and texts."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from math import ceil, floor
from typing import Any

import msgspec

from policyguard.model.amounts import format_duration, format_number, to_nanoseconds
from policyguard.model.effect import Effect
from policyguard.model.grant import Grant
from policyguard.model.text import sanitize


class Violation(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """One violation: an entry of the policy, its effect and its text.

    `id` names the entry (`limits/default/repeat`, `budgets/spend`, `rules/no-push`), `reason` is
    a word for programs (`repeat`, `budget`, `rule` …), `text` and `instead` are for the model.
    `used` and `limit` are in the entry's own unit; `retry_after` is seconds; `confidence` is that
    of a learned constraint, from 0 to 1. `doubt` says what of the call is not known, where that is
    why the entry fired; `text` has it as well. `quotes` says that the texts may have words of the
    call in them, or of an earlier result: a journal leaves them out.
    """

    id: str
    effect: Effect
    reason: str
    text: str
    instead: str = ""
    used: float | None = None
    limit: float | None = None
    retry_after: float | None = None
    confidence: float | None = None
    doubt: str = ""
    quotes: bool = False


class Waiver(msgspec.Struct, frozen=True):
    """A violation that an exception of the policy has waived: the ids of both."""

    violation: str
    exception: str


class EvalError(msgspec.Struct, frozen=True):
    """An error in the evaluation of a call.

    `id` is the entry whose expression failed, `approver`, or the part of policyguard that failed.
    """

    id: str
    error: str


class Decision(msgspec.Struct, frozen=True):
    """The answer to `check`: may the call run, and if not, what to tell the model.

    It is true if the call is `allowed`: `if decision:` and `if decision.allowed:` mean the same.

    `violations` holds every entry that fired, strongest effect first, and of the same effect those
    that are certainly about the call; `would` those of entries in
    observe mode, `errors` every expression that failed. `fingerprint` is the same for the same call
    (keyed, so meaningless to another guard). `timeout` is how many seconds an allowed call may take
    (None: unlimited), as the entry `timeout_by` says. `left` is what remains of the budgets that a
    refused call would charge, by id, each in its own unit; that of `time_budgets` is the second,
    `units` has words for the others.
    `grants` are the remembered approvals without which the call would have been asked about,
    `waived` the violations that exceptions have waived.
    """

    id: str
    session: str
    tool: str
    effect: Effect
    allowed: bool
    fingerprint: str = ""
    violations: tuple[Violation, ...] = ()
    errors: tuple[EvalError, ...] = ()
    would: tuple[Violation, ...] = ()
    timeout: float | None = None
    timeout_by: str = ""
    left: dict[str, float] = {}
    time_budgets: tuple[str, ...] = ()
    grants: tuple[Grant, ...] = ()
    waived: tuple[Waiver, ...] = ()
    units: dict[str, str] = {}

    def __bool__(self) -> bool:
        return self.allowed

    def __repr__(self) -> str:
        entries = ", ".join(violation.id for violation in self.violations)
        entries = f" ({entries})" if entries else ""
        tool = self.tool[:_MAX_NAME_CHARS]
        return f"<Decision {self.id or 'not counted'} {tool!r}: {self.effect}{entries}>"

    def __hash__(self) -> int:  # of all fields it cannot be made: `left` has none
        return hash((self.session, self.id))

    @property
    def message(self) -> str:
        """One text for the model: what was refused, why, what is left, what to do instead.

        At most `MAX_MESSAGE_CHARS`: the strongest violation, then what fits of the others, and the
        ids of the next. Advice is left out of a refusal.
        """
        if not self.violations:
            return ""
        head = (
            _REFUSED_HEADINGS[self.effect] if not self.allowed else _ALLOWED_HEADINGS[self.effect]
        )
        text = head.format(tool=sanitize(_truncate(self.tool, _MAX_NAME_CHARS)))
        named = [one for one in self.violations if self.allowed or one.effect is not Effect.ADVISE]
        first, *others = _join_reasons(named)
        more = _format_more(others, _MORE_CHARS)
        text += _format_reason(first, MAX_MESSAGE_CHARS - len(text) - len(more))
        while others:
            line = _format_reason(others[0], MAX_MESSAGE_CHARS)
            more = _format_more(others[1:], _MORE_CHARS)
            if len(text) + len(line) + len(more) > MAX_MESSAGE_CHARS:
                break
            text += line
            del others[0]
        text += _format_more(others, MAX_MESSAGE_CHARS - len(text))
        line = self._describe_left({one.id for one in named})
        return text + line if len(text) + len(line) <= MAX_MESSAGE_CHARS else text

    def _describe_left(self, named: set[str]) -> str:
        """Return a line of what is left of budgets that are not named yet."""
        left = [
            f"{id_} {_format_left(amount, id_ in self.time_budgets)} {self.units.get(id_, '')}"
            for id_, amount in self.left.items()
            if id_ not in named
        ]
        return f"\nLeft: {', '.join(map(str.rstrip, left))}" if left else ""

    @property
    def structured(self) -> dict[str, Any]:
        """The same for programs; keys that do not apply are None.

        `action` is what to do next: to write the call out, where that is not known which would be
        refused; `remaining` is what is left under the first violation, `budgets` is `left`.
        """
        first = self.violations[0] if self.violations else None
        remaining = None
        if first is not None and first.used is not None and first.limit is not None:
            remaining = max(0.0, first.limit - first.used)
        return {
            "status": _STATUSES[self.effect],
            "reason": first.reason if first else None,
            "action": (first.doubt or first.instead or None) if first else None,
            "rule": first.id if first else None,
            "limit": first.limit if first else None,
            "used": first.used if first else None,
            "remaining": remaining,
            "retry_after": first.retry_after if first else None,
            "constraint": _constraint_id(first),
            "budgets": dict(self.left),
        }


MAX_MESSAGE_CHARS = 400
"""Characters of a message: a model reads one at every refusal, and pays for it."""

_MAX_NAME_CHARS = 80
_MORE_CHARS = 80
"""Characters kept for the ids of entries whose reasons do not fit."""
_MAX_NAMED = 3
"""Entries that are named where several fired for the same reason, or where reasons do not fit."""
_ALLOWED_HEADINGS = {
    Effect.ALLOW: "`{tool}` is allowed.",
    Effect.ADVISE: "A note on `{tool}`:",
    Effect.ASK: "`{tool}` runs without approval, since no one could be asked:",
}
_REFUSED_HEADINGS = {
    Effect.ASK: "`{tool}` was not run: it needs an approval first.",
    Effect.BLOCK: "`{tool}` was not run.",
    Effect.HALT: "`{tool}` was not run. Do not call any tool again this turn.",
}
_STATUSES = {
    Effect.ALLOW: "allowed",
    Effect.ADVISE: "advised",
    Effect.ASK: "needs_approval",
    Effect.BLOCK: "blocked",
    Effect.HALT: "halted",
}


def _constraint_id(violation: Violation | None) -> str | None:
    if violation is None or not violation.id.startswith("constraints/"):
        return None
    return violation.id.removeprefix("constraints/")


def _join_reasons(violations: list[Violation]) -> list[list[Violation]]:
    """Return violations in groups to be said at once: those of the same doubt, or the same text."""
    groups: dict[tuple[str, str, bool], list[Violation]] = {}
    for one in violations:
        said = one.doubt or one.text
        groups.setdefault((said, "" if one.doubt else one.instead, bool(one.doubt)), []).append(one)
    return [*groups.values()]


def _format_reason(group: list[Violation], max_chars: int) -> str:
    """Return one reason on a line of its own, its texts truncated to fit."""
    first, *others = group
    if not (first.doubt and others):
        return _format_violation(first, max_chars)
    names = _name_entries(group)
    named = names[:_MAX_NAMED]
    more = f" and {len(names) - len(named)} more" if len(names) > len(named) else ""
    these = "these are" if len(names) > 1 else "this is"
    details = f". It may be what {these} about: {', '.join(named)}{more}"
    return f"\n- {_truncate(first.doubt, max_chars - len(details) - 3)}{details}"


def _name_entries(violations: Iterable[Violation]) -> list[str]:
    """Return the ids of what fired, each once: the cases of a rule by the rule's."""
    ids = (one.id.split("/") for one in violations)
    names = ("/".join(parts[:2] if parts[0] == "rules" else parts) for parts in ids)
    return [*dict.fromkeys(_truncate(name, _MAX_NAME_CHARS) for name in names)]


def _format_more(reasons: list[list[Violation]], max_chars: int) -> str:
    """Return a line with the number of entries whose reasons are left out, and ids that fit."""
    names = _name_entries(chain.from_iterable(reasons))
    if not names:
        return ""
    text = f"\n- and {len(names)} more"
    for named in range(min(len(names), _MAX_NAMED), 0, -1):
        line = f"{text}: {', '.join(names[:named])}{', …' if named < len(names) else ''}"
        if len(line) <= max_chars:
            return line
    return text


def _format_violation(violation: Violation, max_chars: int) -> str:
    """Return a violation on a line of its own, its texts truncated to fit."""
    details = f" [{_truncate(violation.id, _MAX_NAME_CHARS)}]"
    if violation.retry_after:
        details += f" Try again in {_format_seconds(ceil(violation.retry_after))}."
    instead = f" Instead: {violation.instead}" if violation.instead else ""
    text, doubt = violation.text, violation.doubt
    if doubt and text.endswith(remark := f" ({doubt})"):
        text = f"{doubt}. It may be what this is about: {text.removesuffix(remark)}"
    max_chars -= len("\n- ") + len(details)
    if len(text) + len(instead) > max_chars:
        instead = _truncate(instead, max(max_chars // 3, max_chars - len(text)))
    return f"\n- {_truncate(text, max_chars - len(instead))}{details}{instead}"


def _format_left(amount: float, is_time: bool) -> str:
    return _format_seconds(floor(amount)) if is_time else format_number(amount)


def _format_seconds(seconds: int) -> str:
    return format_duration(to_nanoseconds(seconds))


def _truncate(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else text[: max(0, max_chars - 1)] + "…"
