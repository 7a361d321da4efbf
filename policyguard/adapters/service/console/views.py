"""What the console's pages show, read from the guard and the feed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import groupby, takewhile
from typing import Any

import msgspec

from policyguard.adapters.service.console.feed import (
    Answers,
    ConsoleFeed,
    ShownCall,
    ShownSession,
)
from policyguard.adapters.sessions import ServedSessions
from policyguard.evaluator.budgets.budget import CompiledBudget
from policyguard.evaluator.budgets.usage import BudgetUsage
from policyguard.guard.approvals.grants import find_pattern
from policyguard.guard.guard import Guard
from policyguard.guard.session import Session
from policyguard.model.amounts import SCALE, format_duration, format_number
from policyguard.model.constraint import Constraint
from policyguard.model.policy import Policy
from policyguard.model.question import OpenQuestion
from policyguard.report.constraints import describe_ban, describe_scope

STRIP_CALLS = 120
"""The calls of a timeline in the list of sessions."""
PAGE = 100
"""The calls, or sessions, that are shown at once."""
_CONTEXT_CALLS = 8
_MAX_BUDGETS = 40
_SYMBOLS = {"allow": "●", "advise": "▲", "ask": "◆", "block": "■", "halt": "⬣"}
_KINDS = ("call", "target", "prefix", "tool")
"""What may be remembered, the narrowest first."""


class Run(msgspec.Struct, frozen=True):
    """Calls in a row that look alike in a timeline."""

    look: str
    symbols: str


class QuestionView(msgspec.Struct, frozen=True, kw_only=True):
    """A call that waits, with what a person needs to answer it."""

    question: OpenQuestion
    args: str
    reasons: tuple[str, ...]
    before: tuple[ShownCall, ...]
    answers: Answers
    kinds: tuple[str, ...]


class BudgetView(msgspec.Struct, frozen=True, kw_only=True):
    """What a budget has left for one owner. `share` is how much is used, from 0 to 1."""

    id: str
    owner: str
    used: str
    limit: str
    left: str
    share: float


class ConstraintView(msgspec.Struct, frozen=True, kw_only=True):
    """A learned constraint. `evidence` are the calls that taught it: session and call."""

    id: str
    bans: str
    scope: str
    because: str
    error: str
    learned_at: int | None
    evidence: tuple[tuple[str, str], ...]


class EntryView(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the policy in force, and how often it fired."""

    id: str
    effect: str
    text: str
    observed: bool
    hits: tuple[tuple[str, int], ...]
    latest_at: int | None


def strip(calls: Iterable[ShownCall]) -> list[Run]:
    """Return a timeline: a symbol a call, by effect; `failed` calls look so."""
    looks = (
        (f"{one.effect} failed" if one.state == "failed" else one.effect, one) for one in calls
    )
    return [
        Run(look, "".join(_SYMBOLS.get(one.effect, "○") for _, one in group))
        for look, group in groupby(looks, key=lambda pair: pair[0])
    ]


def symbol(effect: str) -> str:
    """Return the symbol of an effect."""
    return _SYMBOLS.get(effect, "○")


def format_time(at: int | None) -> str:
    """Return a time (ns) as text, in UTC."""
    if at is None:
        return ""
    return datetime.fromtimestamp(at / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S")


def questions(sessions: ServedSessions, feed: ConsoleFeed) -> list[QuestionView]:
    """Return the calls that wait, the oldest first."""
    guard = sessions.guard
    found = sorted(guard.questions(also_closed=True), key=lambda one: one.asked_at or 0)
    return [_view_question(sessions, feed, one) for one in found]


def _view_question(sessions: ServedSessions, feed: ConsoleFeed, one: OpenQuestion) -> QuestionView:
    asked = sessions.asked.get((one.session, one.call))
    reasons = () if asked is None else tuple(violation.text for violation in asked.violations)
    earlier = list(
        takewhile(
            lambda call: one.call not in (call.id, call.host_call), feed.calls_of(one.session)
        )
    )
    answers = Answers()
    for entry in one.entries:
        known = feed.answers.get((one.tool, entry))
        if known is not None:
            answers.asked = max(answers.asked, known.asked)
            answers.approved = max(answers.approved, known.approved)
            answers.denied = max(answers.denied, known.denied)
    args = "" if one.args is None else json.dumps(one.args, ensure_ascii=False, indent=2)
    return QuestionView(
        question=one,
        args=args,
        reasons=reasons,
        before=tuple(earlier[-_CONTEXT_CALLS:]),
        answers=answers,
        kinds=_rememberable(sessions.guard, one),
    )


def _rememberable(guard: Guard, one: OpenQuestion) -> tuple[str, ...]:
    """Return what may be remembered of an approval, as all that asked allows."""
    known = guard._evaluator.approval_requirements
    needed = [known[entry].remember for entry in one.entries if entry in known]
    return tuple(kind for kind in _KINDS if all(kind in allowed for allowed in needed))


class GrantPreview(msgspec.Struct, frozen=True, kw_only=True):
    """Which calls a grant would cover: in words, and of the session's recent calls."""

    pattern: str
    covered: tuple[str, ...]
    tried: int


def preview_grant(
    session: Session, feed: ConsoleFeed, call: str, remember: str
) -> GrantPreview | None:
    """Return what a grant would cover; None if the call does not wait.

    `ValueError` for a call that cannot be remembered so.
    """
    requests = session._state.approvals.requests.values()
    asked = next(
        (one.call for one in requests if one.call and call in (one.call.call, one.call.host_call)),
        None,
    )
    if asked is None:
        return None
    pattern = find_pattern(session, asked, remember)
    reader, cwd = session.guard._evaluator.patterns, session._state.cel_session["cwd"]
    shown = feed.sessions.get(session.id)
    recent = [] if shown is None else [*shown.recent]
    calls = {} if shown is None else shown.calls
    covered = [
        calls[one.id].args or one.id
        for one in recent
        if one.tool == pattern.tool
        and one.server == pattern.server
        and one.id in calls
        and (
            calls[one.id].fingerprint == pattern.fingerprint
            if pattern.fingerprint
            else reader.covers(pattern, one.args, cwd)
        )
    ]
    return GrantPreview(pattern=pattern.text, covered=tuple(covered), tried=len(recent))


def budgets(guard: Guard) -> list[BudgetView]:
    """Return the budgets that were used, those nearest to their limit first."""
    evaluator, state = guard._evaluator, guard._state.evaluator_state
    with guard._lock:
        now = guard._steady_clock.read()[0]
        found = [
            _view_budget(evaluator.budgets[id_], key, usage, now)
            for id_, usages in state.ledger.usages.items()
            if id_ in evaluator.budgets
            for key, usage in usages.items()
        ]
        for session in state.sessions.values():
            found += _time_budgets(evaluator.budgets.values(), session, now)
    return sorted(found, key=lambda one: -one.share)[:_MAX_BUDGETS]


def _time_budgets(all_: Iterable[CompiledBudget], session: Any, now: int) -> Iterator[BudgetView]:
    for budget in all_:
        if budget.kind != "time" or budget.scope not in ("session", "turn"):
            continue
        start = session.started_at if budget.scope == "session" else session.turn_started_at
        if start is not None:
            yield _shown_budget(budget, session.id, now - start, budget.max)


def _view_budget(budget: CompiledBudget, key: str, usage: BudgetUsage, now: int) -> BudgetView:
    if budget.kind == "time":
        used = 0 if usage.started_at is None else now - usage.started_at
    elif budget.kind == "concurrent":
        used = usage.running * SCALE
    elif budget.kind == "distinct":
        used = SCALE * (usage.values.count(now, budget.within) if usage.values else 0)
    else:
        used = usage.used_at(now, budget.within)
    owner = key.replace("\x1f", " / ").replace("\x1e", " turn ")
    return _shown_budget(budget, owner, used, budget.max + usage.granted)


def _shown_budget(budget: CompiledBudget, owner: str, used: int, limit: int) -> BudgetView:
    def show(amount: int) -> str:
        return format_duration(amount) if budget.kind == "time" else format_number(amount / SCALE)

    return BudgetView(
        id=budget.id,
        owner=owner or "all",
        used=show(used),
        limit=show(limit),
        left=show(max(0, limit - used)),
        share=min(1.0, used / limit) if limit else 1.0,
    )


def constraints(guard: Guard) -> list[ConstraintView]:
    """Return the learned constraints, the latest confirmed first."""
    return [_view_constraint(one) for one in reversed(guard.constraints())]


def _view_constraint(one: Constraint) -> ConstraintView:
    taught = (name.rpartition("/") for name in one.taught_by)
    return ConstraintView(
        id=one.id,
        bans=describe_ban(one),
        scope=describe_scope(one),
        because=f"{one.count} failures with {one.signature}",
        error=one.error,
        learned_at=one.learned_at,
        evidence=tuple((session, call) for session, _, call in taught),
    )


def entries(policy: Policy, feed: ConsoleFeed) -> list[EntryView]:
    """Return the entries of the policy in force, those that fired most first."""
    known: dict[str, tuple[str, str, bool]] = {}
    for rule in policy.rules:
        text = rule.message or " ".join((rule.when or "").split())
        known[f"rules/{rule.id}"] = (rule.effect.value, text, rule.mode == "observe")
    for budget in policy.budgets:
        text = f"per {budget.per.scope}"
        known[f"budgets/{budget.id}"] = (budget.effect.value, text, budget.mode == "observe")
    for entry, hits in feed.hits.items():
        effect = max(hits.by_effect, key=lambda name: [*_SYMBOLS].index(name))
        known.setdefault(entry, (effect, "", False))
    views = [
        EntryView(
            id=entry,
            effect=effect,
            text=text,
            observed=observed,
            hits=tuple(sorted(feed.hits[entry].by_effect.items())) if entry in feed.hits else (),
            latest_at=feed.hits[entry].latest_at if entry in feed.hits else None,
        )
        for entry, (effect, text, observed) in known.items()
    ]
    return sorted(views, key=lambda one: (-sum(count for _, count in one.hits), one.id))


def listed_sessions(feed: ConsoleFeed, count: int) -> tuple[list[ShownSession], int]:
    """Return the latest sessions, and how many there are."""
    found = feed.snapshot()
    return found[:count], len(found)
