"""State is a fold over events: live calls, replays, restores and audits all come through here."""

from __future__ import annotations

from policyguard.evaluator.account import UNIT
from policyguard.evaluator.approvals import Asked, Yes
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.bans import Ban
from policyguard.evaluator.evaluator import Evaluator
from policyguard.evaluator.limits import Limit
from policyguard.evaluator.no_progress import NoProgress
from policyguard.evaluator.plan import Plan
from policyguard.evaluator.session import Flight, SessionState
from policyguard.evaluator.state import State
from policyguard.model.effect import Effect
from policyguard.model.event import (
    Admitted,
    Approved,
    Charge,
    Closed,
    Completed,
    Event,
    Granted,
    Refused,
    Released,
    Spent,
    Started,
    TurnStarted,
)
from policyguard.model.outcome import Outcome


def fold(evaluator: Evaluator, state: State, event: Event) -> None:
    """Bring the state up to date with one event that carries its derived fields.

    An event of a session that never started is ignored, as is the result of a call that is not in
    flight (it was reported before, or its admission has been reclaimed).
    """
    if isinstance(event, Started):
        start(evaluator, state, event)
        return
    session = state.sessions.get(event.session)
    if session is None:
        return
    match event:
        case Admitted():
            plan = evaluator.plan(event.tool, event.server, session.agent, event.class_)
            admit(evaluator, state, session, event, rebuild(event), plan)
        case Completed():
            flight = session.flights.get(event.call)
            if flight is not None:
                complete(evaluator, state, session, event, flight, recall(event))
        case Refused():
            refuse(evaluator, session, event)
        case Released():
            release(evaluator, state, session, event)
        case TurnStarted():
            turn(evaluator, state, session, event)
        case Spent():
            spend(evaluator, state, session, event)
        case Granted():
            grant(evaluator, state, session, event)
        case Approved():
            approve(session, event)
        case Closed():
            close(state, session)


def start(
    evaluator: Evaluator, state: State, event: Started, *, apart: bool = False
) -> SessionState:
    """A session begins; one with the same id that was still open goes on. See `SessionState`."""
    session = state.sessions.get(event.session)
    if session is None:
        parent = state.sessions.get(event.parent)
        most = evaluator.bounds.window_entries
        session = SessionState(event, parent, most=most, apart=apart)
        state.sessions[event.session] = session
        if parent is not None:
            parent.facts["children"] += 1
    return session


def rebuild(event: Admitted | Refused) -> Attempt:
    """The attempt that was recorded as admitted or refused."""
    attempt = Attempt()
    attempt.at = event.at
    attempt.tool = event.tool
    attempt.args = event.args or {}
    attempt.server = event.server
    attempt.batch = event.batch
    attempt.tags = event.tags
    attempt.hints = event.hints
    attempt.estimate = event.estimate
    attempt.fingerprint = event.fingerprint
    attempt.like = event.like
    attempt.numbers = event.numbers
    attempt.targets = event.targets
    attempt.keys = event.keys
    attempt.charges = []
    attempt.faults = []
    attempt.previous = {}
    attempt.class_ = event.class_
    attempt.timeout, attempt.timeout_by = None, ""
    if isinstance(event, Admitted):
        attempt.charges = list(event.charges)
        attempt.changing = event.changing
        attempt.trials = event.trials
        attempt.radius = event.radius
    return attempt


def recall(event: Completed) -> Outcome:
    """The outcome that a recorded completion had, as far as state depends on it."""
    failed = event.ok is False
    return Outcome(
        ok=not failed,
        state="failure" if failed else event.state or "success",
        signature=event.signature,
        blame=event.blame,
        tokens=event.tokens,
        cost=event.cost,
        result=event.result_fingerprint,
        failure=event.error_fingerprint,
        retry_after=event.retry_after,
        advancing=event.advancing,
        infra=event.infra,
    )


def admit(
    evaluator: Evaluator,
    state: State,
    session: SessionState,
    event: Admitted,
    attempt: Attempt,
    plan: Plan,
) -> None:
    """A call takes its place in windows and budgets."""
    attempt.id = event.call
    _tick(session, event.at)
    flights = session.flights
    if flights:
        _reclaim(evaluator, state, session, event.at)
    limits = plan.limits
    marks = [limit.admit(session.keep_tracker(limit), attempt) for limit in limits]
    for charge in attempt.charges:
        _draw(evaluator, state, session, charge, event.at)
    if attempt.like:
        _anchor(evaluator, session, attempt)
    flights[event.call] = Flight(attempt, limits, marks)
    facts = session.facts
    facts["calls"] += 1
    if evaluator.reads_counts:
        for counts, name in (("#tools", attempt.tool), ("#classes", attempt.class_)):
            table = facts.setdefault(counts, {})
            table[name] = table.pop(name, 0) + 1
            if len(table) > evaluator.bounds.plans:
                del table[next(iter(table))]
    if evaluator.reads_previous:
        session.previous.pop(attempt.tool, None)
        session.previous[attempt.tool] = attempt.args
        if len(session.previous) > evaluator.bounds.plans:
            del session.previous[next(iter(session.previous))]
    session.approvals.use(attempt.fingerprint)
    if session.insisted:
        for limit in plan.climbing:
            if limit.id in session.insisted:
                session.insisted[limit.id].forget(limit.subject(attempt))
    if plan.refusals is not None:
        refused = session.tracker(plan.refusals)
        if refused.count:
            refused.end()


def complete(
    evaluator: Evaluator,
    state: State,
    session: SessionState,
    event: Completed,
    flight: Flight,
    outcome: Outcome,
) -> None:
    """A call in flight has its result."""
    _tick(session, event.at)
    attempt = flight.attempt
    attempt.ended = event.at
    del session.flights[event.call]
    changes = session.changes
    changes.seq += 1
    for limit, mark in zip(flight.limits, flight.marks, strict=True):
        limit.complete(session.keep_tracker(limit), mark, attempt, outcome, changes.seq)
    if outcome.state == "success":
        session.successes += 1
        if session.bans.held and outcome.advancing:
            _advance(session, outcome)
    if outcome.ok:
        if attempt.changing:
            changes.note(attempt.fingerprint)
    else:
        session.facts["failures"] += 1
    for limit in flight.limits:
        if limit.bans:
            _ban(session, limit, attempt, outcome.result)
    _free(evaluator, state, attempt)
    for charge in event.charges:
        # What was reserved too much was drawn at admission.
        at = event.at if charge.amount > 0 else attempt.at
        _draw(evaluator, state, session, charge, at)
    if outcome.tokens:
        session.facts["tokens"] += outcome.tokens
    if outcome.cost:
        session.facts["cost"] += outcome.cost
    if evaluator.reads_changed:
        results = session.results
        results.pop(attempt.fingerprint, None)
        results[attempt.fingerprint] = outcome.result
        if len(results) > evaluator.bounds.window_entries:
            del results[next(iter(results))]


def refuse(evaluator: Evaluator, session: SessionState, event: Refused) -> None:
    """A refused call counts in no window; one that halts stops the session.

    It counts as an attempt: steps and `refusals` see that the agent insists.
    """
    _tick(session, event.at)
    plan = evaluator.plan(event.tool, event.server, session.agent, event.class_)
    if event.effect == Effect.HALT:
        session.halted = session.halted or (event.violations[0] if event.violations else "policy")
        _end_refusals(evaluator, session)
    elif plan.refusals is not None:
        session.keep_tracker(plan.refusals).refuse(event.batch)
    attempt = rebuild(event)
    for limit in plan.climbing:
        session.insist(limit.id, limit.subject(attempt))
    for charge in event.insisted:
        session.insist(charge.budget, charge.key)
    if event.effect == Effect.ASK:
        terms = [evaluator.approvals[id_] for id_ in event.violations if id_ in evaluator.approvals]
        within = min((one.within for one in terms), default=None)
        asked = Asked(event.at, event.asks)
        session.approvals.ask(event.fingerprint, asked, within)
    for limit in plan.banning:
        if limit.id in event.violations:
            _ban(session, limit, attempt, "")


def release(evaluator: Evaluator, state: State, session: SessionState, event: Released) -> None:
    """An admitted call did not run: it leaves windows and budgets."""
    _tick(session, event.at)
    flight = session.flights.pop(event.call, None)
    if flight is None:
        return
    attempt = flight.attempt
    for limit, mark in zip(flight.limits, flight.marks, strict=True):
        limit.release(session.keep_tracker(limit), mark, attempt)
    _free(evaluator, state, attempt)
    for charge in attempt.charges:
        account = state.book.get(charge.budget, charge.key)
        budget = evaluator.budgets.get(charge.budget)
        if account is not None and charge.amount and budget is not None:
            if budget.kind != "at_once":
                account.give_back(charge.amount, attempt.at, budget.within)
    session.facts["calls"] -= 1


def turn(evaluator: Evaluator, state: State, session: SessionState, event: TurnStarted) -> None:
    """A new turn: what was counted per turn begins anew, and a halt is over."""
    _tick(session, event.at)
    session.turn += 1
    session.facts["turn"] = session.turn
    session.turn_started_at = event.at
    session.turn_trackers = {}
    session.bans.end_turn()
    session.insisted.clear()
    _end_refusals(evaluator, session)
    session.halted = ""
    for budget, key in session.turn_accounts:
        state.book.close(budget, key)
    session.turn_accounts.clear()


def spend(evaluator: Evaluator, state: State, session: SessionState, event: Spent) -> None:
    """The model itself used tokens and money."""
    _tick(session, event.at)
    session.facts["tokens"] += event.tokens
    session.facts["cost"] += event.cost
    for charge in event.charges:
        _draw(evaluator, state, session, charge, event.at)


def grant(evaluator: Evaluator, state: State, session: SessionState, event: Granted) -> None:
    """A budget is raised where this session draws on it, and a halt is over."""
    _tick(session, event.at)
    session.halted = ""
    session.insisted.clear()
    _end_refusals(evaluator, session)
    budget = evaluator.budgets.get(event.budget)
    if budget is None:
        return
    keys = [event.key] if event.key else [key for _, key in budget.scopes(session)]
    for key in keys:
        _own(session, budget.scope, event.budget, key)
        state.book.open(event.budget, key).granted += round(event.amount * UNIT)
        break  # the nearest owner: a parent's budget is raised through the parent


def approve(session: SessionState, event: Approved) -> None:
    """One call, known by its fingerprint, may be made once although the policy asks."""
    _tick(session, event.at)
    session.approvals.give(event.fingerprint, Yes(event.by, frozenset(event.labels), event.at))


def close(state: State, session: SessionState) -> None:
    """The session is over; what was counted for it alone is forgotten."""
    for budget, key in session.accounts | session.turn_accounts:
        state.book.close(budget, key)
    state.sessions.pop(session.id, None)


def _advance(session: SessionState, outcome: Outcome) -> None:
    """Something new has come: what is refused until then may be tried again."""
    for ban in session.bans.advance(outcome):
        limit = ban.limit
        if isinstance(limit, NoProgress):
            limit.relent(session.tracker(limit), ban.subject)


def _ban(session: SessionState, limit: Limit, attempt: Attempt, result: str) -> None:
    """Shut off what has reached its limit, where the policy wants more than the call refused."""
    found = limit.judge(session.tracker(limit), attempt, session.changes, 0)
    if found is not None and found.used is not None and found.used >= limit.max:
        session.bans.put(Ban(limit, attempt, found.text, result))


def _end_refusals(evaluator: Evaluator, session: SessionState) -> None:
    """A halt, a new turn, a grant: whoever is refused from now on is counted anew."""
    for id_ in evaluator.refusals:
        tracker = session.trackers.get(id_) or session.turn_trackers.get(id_)
        if tracker is not None:
            tracker.end()


def _tick(session: SessionState, at: int | None) -> None:
    if at is None:
        return
    if session.started_at is None:
        session.started_at = at
    if session.turn_started_at is None:
        session.turn_started_at = at
    if session.now is None or at > session.now:
        session.now = at


def _kind(evaluator: Evaluator, charge: Charge) -> str:
    budget = evaluator.budgets.get(charge.budget)
    return budget.kind if budget is not None else ""


def _own(session: SessionState, scope: str, budget: str, key: str) -> None:
    """Remember which accounts end with the session or turn that owns them."""
    if scope not in ("session", "turn"):
        return
    name = key.partition("\x1f")[0].partition("\x1e")[0]
    owner: SessionState | None = session
    while owner is not None and owner.id != name:
        owner = owner.parent
    if owner is not None:
        (owner.accounts if scope == "session" else owner.turn_accounts).add((budget, key))


def _draw(
    evaluator: Evaluator, state: State, session: SessionState, charge: Charge, at: int | None
) -> None:
    budget = evaluator.budgets.get(charge.budget)
    if budget is None:
        return
    account = state.book.get(charge.budget, charge.key)
    if account is None:
        account = state.book.open(charge.budget, charge.key)
        _own(session, budget.scope, charge.budget, charge.key)
    if budget.kind == "at_once":
        account.open += 1
    else:
        account.draw(charge.amount, at, budget.within, budget.most)


def _free(evaluator: Evaluator, state: State, attempt: Attempt) -> None:
    """A call that is no longer running gives its places in `at_once` budgets back."""
    for charge in attempt.charges:
        if _kind(evaluator, charge) == "at_once":
            account = state.book.get(charge.budget, charge.key)
            if account is not None and account.open:
                account.open -= 1


def _reclaim(evaluator: Evaluator, state: State, session: SessionState, at: int | None) -> None:
    """Forget calls in flight that nobody has reported for too long, or that are too many.

    They stay counted; only their places in `at_once` budgets are given back. Where there are too
    many, one that holds no such place goes first: it may still be running.
    """
    flights = session.flights
    oldest = next(iter(flights.values()))
    began = oldest.attempt.at
    if at is not None and began is not None and at - began > evaluator.bounds.unreported:
        _free(evaluator, state, oldest.attempt)
        del flights[oldest.attempt.id]
    elif len(flights) >= evaluator.bounds.in_flight:
        for name, flight in flights.items():
            if all(_kind(evaluator, charge) != "at_once" for charge in flight.attempt.charges):
                del flights[name]
                return
        _free(evaluator, state, oldest.attempt)
        del flights[oldest.attempt.id]


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
