"""What the calls of a session do to its state: admitted, refused, completed, ended, released."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from policyguard.evaluator.approvals import Asked
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.bans import Ban
from policyguard.evaluator.evaluator import Evaluator
from policyguard.evaluator.limits import Limit
from policyguard.evaluator.no_progress import NoProgress
from policyguard.evaluator.paying import draw, free, holds_a_place, undo
from policyguard.evaluator.plan import Plan
from policyguard.evaluator.session import SessionState
from policyguard.evaluator.state import State
from policyguard.model.effect import Effect
from policyguard.model.event import Admitted, Charge, Refused
from policyguard.model.outcome import Outcome


def rebuild(evaluator: Evaluator, session: SessionState, event: Admitted | Refused) -> Attempt:
    """The attempt that was recorded as admitted or refused."""
    attempt = Attempt(event.tool, event.args or {}, event.at)
    attempt.id = event.call
    attempt.session = session
    attempt.ground = evaluator.ground
    attempt.server = event.server
    attempt.batch = event.batch
    attempt.tags = event.tags
    attempt.hints = event.hints
    attempt.estimate = event.estimate
    attempt.class_ = event.class_
    attempt.fingerprint = event.fingerprint
    attempt.exact = event.exact
    attempt.like = event.like
    attempt.numbers = event.numbers
    attempt.targets = event.targets
    attempt.keys = event.keys
    if isinstance(event, Admitted):
        attempt.changing = event.changing
        attempt.trials = event.trials
        attempt.radius = event.radius
        attempt.charges = event.charges
    return attempt


def admit(evaluator: Evaluator, state: State, attempt: Attempt, plan: Plan) -> Attempt | None:
    """A call takes its place in windows and budgets. Returns one that is given up for it."""
    session = attempt.session
    at = attempt.at
    if at is not None and at != session.now:
        tick(session, at)
    flights = session.flights
    given_up = None
    if flights or session.overdue:
        given_up = _reclaim(evaluator, state, session, at)
    tracked = session.tracked(plan)
    attempt.marks = [
        (limit, tracker, limit.admit(tracker, attempt) if tracker or limit.always else None)
        for limit, tracker in tracked.limits
    ]
    for charge in attempt.charges:
        draw(evaluator, state, session, charge, at)
    if attempt.like:
        _anchor(evaluator, session, attempt)
    flights[attempt.id] = attempt
    session.facts["calls"] += 1
    if evaluator.reads_counts:
        _count(evaluator, session, attempt)
    if evaluator.ground.reads_previous:
        _remember(session.previous, attempt.tool, attempt.args, evaluator.bounds.plans)
    if session.approvals.asked:
        session.approvals.use(attempt.own)
    if session.insisted:
        for limit in plan.climbing:
            if limit.id in session.insisted:
                session.insisted[limit.id].forget(limit.subject(attempt))
    refused = tracked.refused
    if refused is not None and refused.count:
        refused.end()
    return given_up


def complete(
    evaluator: Evaluator,
    state: State,
    attempt: Attempt,
    outcome: Outcome,
    charges: Iterable[Charge],
    at: int | None,
    running: bool,
) -> None:
    """A call in flight has its result; with `running` it has run out of time, and goes on."""
    session = attempt.session
    if at is not None and at != session.now:
        tick(session, at)
    del session.flights[attempt.id]
    changes = session.changes
    changes.seq = seq = changes.seq + 1
    # A turn that has begun meanwhile has trackers of its own: this call says nothing of it.
    advanced = outcome.state == "success" and outcome.advancing
    for limit, tracker, mark in attempt.marks:
        if tracker or limit.always or not advanced:
            limit.complete(tracker, mark, attempt, outcome, seq)
    if outcome.state == "success":
        session.successes += 1
        if session.bans.held and outcome.advancing:
            _advance(session, outcome)
    if not outcome.ok:
        session.facts["failures"] += 1
    elif attempt.changing:
        changes.note(attempt.fingerprint)
    for limit, tracker, _ in attempt.marks:
        if limit.bans and (tracker or limit.always):
            _ban(limit, tracker, attempt, outcome.result)
    if running:
        session.overdue[attempt.id] = attempt  # it keeps its places until it has ended
    elif attempt.charges:
        free(evaluator, state, attempt)
    for charge in charges:
        # What was reserved too much was drawn at admission.
        draw(evaluator, state, session, charge, at if charge.amount > 0 else attempt.at)
    if outcome.tokens:
        session.facts["tokens"] += outcome.tokens
    if outcome.cost:
        session.facts["cost"] += outcome.cost
    if evaluator.reads_changed:
        most = evaluator.bounds.window_entries
        _remember(session.results, attempt.fingerprint, outcome.result, most)


def end(
    evaluator: Evaluator, state: State, session: SessionState, call: str, at: int | None
) -> None:
    """A call that had run out of time is over: it gives its places back."""
    tick(session, at)
    attempt = session.overdue.pop(call, None)
    if attempt is not None:
        free(evaluator, state, attempt)


def release(
    evaluator: Evaluator, state: State, session: SessionState, call: str, at: int | None
) -> None:
    """An admitted call did not run: it leaves windows and budgets."""
    tick(session, at)
    attempt = session.flights.pop(call, None)
    if attempt is None:
        return
    for limit, tracker, mark in attempt.marks:
        limit.release(tracker, mark, attempt)
    undo(evaluator, state, attempt)
    session.facts["calls"] -= 1


def refuse(
    evaluator: Evaluator, state: State, session: SessionState, event: Refused
) -> Attempt | None:
    """A refused call counts in no window; one that halts stops the session.

    It counts as an attempt: steps and `refusals` see that the agent insists. Returns a call in
    flight that is given up, since nobody has reported it for too long.
    """
    tick(session, event.at)
    expired = _expire(evaluator, state, session, event.at)
    plan = evaluator.plan(event.tool, event.server, session.agent, event.class_)
    tracked = session.tracked(plan)
    if event.effect == Effect.HALT:
        session.halted = session.halted or (event.violations[0] if event.violations else "policy")
        forgive(evaluator, session)
    elif tracked.refused is not None:
        tracked.refused.refuse(event.batch)
    attempt = rebuild(evaluator, session, event)
    for limit, tracker in tracked.limits:
        if limit.id in event.violations:
            limit.refuse(tracker, attempt)
    for limit in plan.climbing:
        session.insist(limit.id, limit.subject(attempt))
    for charge in event.insisted:
        session.insist(charge.budget, charge.key)
    if event.effect == Effect.ASK:
        terms = [evaluator.approvals[id_] for id_ in event.violations if id_ in evaluator.approvals]
        within = min((one.within for one in terms), default=None)
        session.approvals.ask(event.exact or event.fingerprint, Asked(event.at, event.asks), within)
    for limit, tracker in tracked.limits:
        if limit.bans and limit.id in event.violations:
            _ban(limit, tracker, attempt, "")
    return expired


def tick(session: SessionState, at: int | None) -> None:
    """Time goes on, and never back."""
    if at is None:
        return
    if session.started_at is None:
        session.started_at = at
    if session.turn_started_at is None:
        session.turn_started_at = at
    if session.now is None or at > session.now:
        session.now = at


def forgive(evaluator: Evaluator, session: SessionState) -> None:
    """A halt, a new turn, a grant: whoever is refused from now on is counted anew."""
    for id_ in evaluator.refusals:
        tracker = session.trackers.get(id_) or session.turn_trackers.get(id_)
        if tracker is not None:
            tracker.end()


def _advance(session: SessionState, outcome: Outcome) -> None:
    """Something new has come: what is refused until then may be tried again."""
    for ban in session.bans.advance(outcome):
        limit = ban.limit
        if isinstance(limit, NoProgress):
            limit.relent(session.tracker(limit), ban.subject)


def _ban(limit: Limit, tracker: Any, attempt: Attempt, result: str) -> None:
    """Shut off what has reached its limit, where the policy wants more than the call refused."""
    session = attempt.session
    found = limit.judge(tracker, attempt, session.changes, 0)
    if found is not None and found.used is not None and found.used >= limit.max:
        session.bans.put(Ban(limit, attempt, found.text, result))


def give_up(evaluator: Evaluator, state: State, session: SessionState) -> None:
    """The session is over: its calls give their places back."""
    for running in (session.flights, session.overdue):
        for attempt in running.values():
            free(evaluator, state, attempt)


def _reclaim(
    evaluator: Evaluator, state: State, session: SessionState, at: int | None
) -> Attempt | None:
    """Forget a call in flight that nobody has reported for too long, or that is one too many.

    It stays counted; only its places in `at_once` budgets are given back. Where there are too
    many, one that holds no such place goes first: it may still be running.
    """
    expired = _expire(evaluator, state, session, at)
    most = evaluator.bounds.in_flight
    if len(session.overdue) >= most:
        free(evaluator, state, session.overdue.pop(next(iter(session.overdue))))
    flights = session.flights
    if len(flights) < most:
        return expired
    for name, attempt in flights.items():
        if not holds_a_place(evaluator, attempt):
            return flights.pop(name)
    oldest = flights.pop(next(iter(flights)))
    free(evaluator, state, oldest)
    return oldest


def _expire(
    evaluator: Evaluator, state: State, session: SessionState, at: int | None
) -> Attempt | None:
    """Forget the oldest call that will not end, and the oldest that nobody has reported.

    Returns the latter.
    """
    if at is None:
        return None
    expired = None
    for running in (session.overdue, session.flights):
        oldest = next(iter(running.values()), None)
        expired = None
        if oldest is None or oldest.at is None:
            continue
        if at - oldest.at > evaluator.bounds.unreported:
            free(evaluator, state, oldest)
            expired = running.pop(oldest.id)
    return expired


def _anchor(evaluator: Evaluator, session: SessionState, attempt: Attempt) -> None:
    anchors = session.anchors
    known = anchors.pop(attempt.like, [])
    anchors[attempt.like] = known
    if all(fingerprint != attempt.fingerprint for _, fingerprint in known):
        known.append((attempt.numbers, attempt.fingerprint))
        if len(known) > evaluator.bounds.window_entries:
            del known[0]
    if len(anchors) > evaluator.bounds.window_entries:
        del anchors[next(iter(anchors))]


def _count(evaluator: Evaluator, session: SessionState, attempt: Attempt) -> None:
    """Count calls by tool and class, for `session.count`."""
    for counts, name in (("#tools", attempt.tool), ("#classes", attempt.class_)):
        table = session.facts.setdefault(counts, {})
        _remember(table, name, table.get(name, 0) + 1, evaluator.bounds.plans)


def _remember(table: dict[str, Any], name: str, value: Any, most: int) -> None:
    """Set an entry as the latest; the one that is oldest goes where there are too many."""
    table.pop(name, None)
    table[name] = value
    if len(table) > most:
        del table[next(iter(table))]
