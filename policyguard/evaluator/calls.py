"""What the calls of a session do to its state: admitted, refused, completed, ended, released."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from policyguard.evaluator.approvals import Asked
from policyguard.evaluator.attempt import LOST, Attempt, Call
from policyguard.evaluator.bans import Ban
from policyguard.evaluator.evaluator import HALTED, Evaluator
from policyguard.evaluator.limits import Limit
from policyguard.evaluator.no_progress import NoProgress
from policyguard.evaluator.paying import draw, free, holds_a_place, undo
from policyguard.evaluator.plan import Plan
from policyguard.evaluator.session import SessionState
from policyguard.evaluator.state import State
from policyguard.model.effect import Effect
from policyguard.model.event import Admitted, Charge, Refused
from policyguard.model.outcome import Outcome


def attempted(session: SessionState, event: Admitted | Refused, at: int | None) -> Attempt:
    """The attempt that was recorded, as its caller made it: nothing that a policy makes of it."""
    return Attempt(
        event.tool,
        event.args or {},
        at,
        session,
        event.call,
        event.server,
        event.batch,
        event.tags,
        event.hints,
        event.estimate,
    )


def rebuild(session: SessionState, event: Admitted | Refused, plan: Plan) -> Attempt:
    """The attempt that was recorded as admitted or refused."""
    attempt = attempted(session, event, session.clamp(event.at))
    if event.args is None:
        attempt.args = LOST
    attempt.walk = session.walk(plan)
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


def admit(evaluator: Evaluator, state: State, attempt: Attempt) -> Attempt | None:
    """A call takes its place in windows and budgets. Returns one that is given up for it."""
    session, walk, at = attempt.session, attempt.walk, attempt.at
    if at is not None:
        if session.turn_started_at is None:
            tick(session, at)
        else:
            session.now = at  # as `tick` would, and it is not before the latest
    flights = session.flights
    given_up = None
    if flights or session.overdue:
        given_up = _reclaim(evaluator, state, session, at)
    fingerprint = attempt.fingerprint
    attempt.call = Call(fingerprint, fingerprint)
    if session.calm:
        if walk.repetition is not None:
            limit, tracker = walk.repetition
            limit.admit(tracker, attempt)
        if walk.cycle is not None:
            limit, tracker = walk.cycle
            limit.admit(tracker, attempt)
    else:
        for limit, tracker in walk.limits:
            limit.admit(tracker, attempt)
    for charge in attempt.charges:
        draw(evaluator, state, session, charge, at)
    flights[attempt.id] = attempt
    session.facts["calls"] += 1
    if attempt.like:
        _anchor(evaluator, session, attempt)
    if evaluator.remembers:
        _remember_call(evaluator, session, attempt)
    if not session.calm:
        _appease(session, attempt)
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
    tick(session, at)
    del session.flights[attempt.id]
    changes = session.changes
    call = attempt.call
    call.seq = changes.seq = changes.seq + 1
    call.result = outcome.result
    succeeded = outcome.state == "success"
    if succeeded:
        session.successes += 1
        if attempt.walk.plan.changes(attempt):
            changes.note(attempt.fingerprint, at)
            for above in session.ancestors():  # it works for them
                above.changes.note(f"{session.id}\x1f{attempt.fingerprint}", at)
    elif not outcome.ok:
        session.facts["failures"] += 1
    if attempt.walk.hears or not (succeeded and session.calm and outcome.advancing):
        _heed(session, attempt, outcome)
    if running:
        session.overdue[attempt.id] = attempt  # it keeps its places until it has ended
    elif attempt.charges:
        free(evaluator, state, attempt)
    for charge in charges:
        # What was reserved too much was drawn at admission.
        draw(evaluator, state, session, charge, at if charge.amount > 0 else attempt.at)
    if outcome.tokens or outcome.cost:
        session.use(outcome.tokens or 0, outcome.cost or 0.0)
    if evaluator.reads_changed:
        most = evaluator.bounds.window_entries
        _remember(session.results, attempt.fingerprint, outcome.result, most)


def _appease(session: SessionState, attempt: Attempt) -> None:
    """A call has got through: what was asked and refused of it before is over."""
    if session.approvals.asked:
        session.approvals.use(attempt.own)
    walk = attempt.walk
    if session.insisted:
        for limit in walk.plan.climbing:
            if limit.id in session.insisted:
                session.insisted[limit.id].forget(limit.subject(attempt))
    if walk.refused is not None:
        walk.refused.end()
    session.settle(walk.plan)


def _heed(session: SessionState, attempt: Attempt, outcome: Outcome) -> None:
    """Let the limits have a result that is more to them than one more success."""
    call, walk = attempt.call, attempt.walk
    if not outcome.ok:
        call.result = f"!{outcome.result}"  # failed with the same words is another result
        call.failure = outcome.failure
        call.excused = outcome.blame == "harness"
    # A turn that has begun meanwhile has trackers of its own: this call says nothing of it.
    for limit, tracker in walk.limits:
        limit.complete(tracker, attempt, outcome)
    if session.bans.held and outcome.state == "success" and outcome.advancing:
        _advance(session, outcome)
    for limit, tracker in walk.limits:
        if limit.bans and (tracker or limit.always):
            _ban(limit, tracker, attempt, outcome.result)
    session.settle(walk.plan)


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
    for limit, tracker in attempt.walk.limits:
        limit.release(tracker, attempt)
    session.settle(attempt.walk.plan)
    undo(evaluator, state, attempt)
    session.facts["calls"] -= 1
    if evaluator.reads_counts:
        for counts, name in (("#tools", attempt.tool), ("#classes", attempt.class_)):
            table = session.facts.get(counts, {})
            if table.get(name):
                table[name] -= 1


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
    walk = session.walk(plan)
    if event.effect == Effect.HALT:
        by = event.violations[0] if event.violations else "policy"
        if by != HALTED:  # an ancestor's halt is over when the ancestor's is
            session.halted = session.halted or by
        forgive(evaluator, session)
    elif walk.refused is not None:
        walk.refused.refuse(event.batch)
    attempt = rebuild(session, event, plan)
    for limit, tracker in walk.limits:
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
    for limit, tracker in walk.limits:
        if limit.bans and limit.id in event.violations:
            _ban(limit, tracker, attempt, "")
    session.settle(plan)
    return expired


def tick(session: SessionState, at: int | None) -> None:
    """Time goes on, and never back."""
    if at is None:
        return
    if session.turn_started_at is None:  # a session that knows this knows when it began
        session.turn_started_at = at
        if session.started_at is None:
            session.started_at = at
    if session.now is None or at > session.now:
        session.now = at


def forgive(evaluator: Evaluator, session: SessionState) -> None:
    """A halt, a new turn, a grant: whoever is refused from now on is counted anew."""
    for id_ in evaluator.refusals:
        tracker = session.trackers.get(id_) or session.turn_trackers.get(id_)
        if tracker is not None:
            tracker.end()
            session.stirring.pop(id_, None)


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
        running.clear()


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


def _remember_call(evaluator: Evaluator, session: SessionState, attempt: Attempt) -> None:
    """Keep what expressions read: counts by tool and class, and each tool's previous arguments."""
    most = evaluator.bounds.plans
    if evaluator.reads_counts:
        for counts, name in (("#tools", attempt.tool), ("#classes", attempt.class_)):
            table = session.facts.setdefault(counts, {})
            _remember(table, name, table.get(name, 0) + 1, most)
    if evaluator.ground.reads_previous:
        _remember(session.previous, attempt.tool, attempt.args, most)


def _remember(table: dict[str, Any], name: str, value: Any, most: int) -> None:
    """Set an entry as the latest; the one that is oldest goes where there are too many."""
    table.pop(name, None)
    table[name] = value
    if len(table) > most:
        del table[next(iter(table))]
