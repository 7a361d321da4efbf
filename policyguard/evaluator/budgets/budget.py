"""`budgets`: how much of something a scope may use, in total or per window of time.

Calls, slots and the `sum` of an argument are charged at admission, so parallel calls cannot
overshoot. Tokens, cost and whatever reads the outcome are known only afterwards: such a call is
admitted while usage is below the limit, and charged when it completes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from policyguard.evaluator.activation import Expression, Selects
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.budgets.distinct import VALUE_MARK, digest_values
from policyguard.evaluator.budgets.texts import CORRECT, STOP, describe, describe_unit
from policyguard.evaluator.budgets.usage import BudgetUsage, UsageLedger
from policyguard.evaluator.exceptions import ExceptionSet
from policyguard.evaluator.limits.escalation import Escalation
from policyguard.evaluator.messages import MessageTemplate, quote_call
from policyguard.model.amounts import MAX_AMOUNT, SCALE, to_units
from policyguard.model.decision import Violation
from policyguard.model.effect import Effect
from policyguard.model.errors import ExpressionError
from policyguard.model.event import Charge
from policyguard.model.outcome import Outcome

if TYPE_CHECKING:
    from policyguard.evaluator.session_state import SessionState

_LOCAL_SCOPES = ("batch", "turn", "session")
"""Scopes that belong to one session."""


class CompiledBudget(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A budget.

    `kind` is calls, tokens, cost, time, concurrent, model_calls, sum or distinct; `max` is in units
    of 1e-9 (time: ns), as are `reserve`, held per call until its tokens or cost are known, and
    `extend`, added by an approval or a grant. `scope` is batch, turn, session, agent, user, project
    or global; of the further `keys` of `per`, and of `distinct` values, only a `digest` is kept.
    `selects` are the selectors on what a call says. `is_owned_by` says whether agents of a name own
    it. `max_charges` caps the charges kept for a window, `max_keys` the keys. `exceptions` may
    waive it, and then stop no call when time is over.
    """

    id: str
    kind: str
    max: int
    scope: str
    keys: tuple[Expression, ...]
    within: int | None
    selects: Selects | None
    when: Expression | None
    when_post_paid: bool
    sum: Expression | None
    distinct: Expression | None
    post_paid: bool
    is_owned_by: Callable[[str], bool]
    selective: bool
    escalation: Escalation
    reserve: int
    extend: int | None
    message: MessageTemplate | None
    instead: MessageTemplate | None
    observe: bool
    reads_time: bool
    digest: Callable[[str], str]
    max_charges: int
    max_keys: int
    exceptions: ExceptionSet | None = None

    @property
    def is_shared(self) -> bool:
        """Whether several sessions charge it."""
        return self.scope not in _LOCAL_SCOPES

    @property
    def unit(self) -> str:
        """The words behind an amount that is left."""
        return describe_unit(self.kind)

    @property
    def extension(self) -> float:
        """What an approval adds, in the budget's own unit."""
        return (self.extend or 0) / SCALE

    def evaluate(self, ledger: UsageLedger, attempt: Attempt) -> Violation | None:
        """Return the attempt's violation, if any; add what it charges to the attempt.

        An error in `when` counts as true, one in `sum` or a key refuses.
        """
        if self.reads_time and attempt.at is None:
            return None  # a record without times has no windows; the report says so
        if self.selects is not None and not self.selects(attempt.activation):
            return None
        if self.when is not None and not self.when_post_paid and not self._applies_to(attempt):
            return None
        try:
            amount = self._upfront_amount(attempt)
            values = self._values(attempt)
            suffix = self._key_suffix(attempt)
        except ExpressionError as error:
            text = f"the budget cannot be computed: {attempt.add_error(self.id, error)}"
            return self._violation(attempt, None, 0, self.escalation.effect, (text, CORRECT))
        found: Violation | None = None
        for owner, scope in self.owners(attempt.session, attempt.batch):
            key = scope + suffix
            usage = ledger.get(self.id, key)
            if usage is None and suffix and self._has_too_many_keys(ledger, owner):
                text = "the budget has too many different keys"
                return self._violation(attempt, None, 0, self.escalation.effect, (text, STOP))
            granted = self._granted_amount(ledger, scope, suffix)
            if values is not None:
                amount = SCALE * _count_new(values, usage, attempt.at, self.within)
            charge = Charge(self.id, key, amount)
            violation = self._evaluate_scope(usage, granted, charge, owner, attempt)
            if violation is not None:
                if found is None or violation.effect > found.effect:
                    found = violation
                if violation.effect is Effect.ASK and self.extend is not None:
                    attempt.approval_charges = (*attempt.approval_charges, charge)
            if self.kind == "calls" and self.escalation.thresholds:
                attempt.attempt_charges = (*attempt.attempt_charges, charge)
            if self.scope == "batch" and not attempt.batch:
                continue  # a call alone: nothing is added to it
            # Also where it is exceeded: with the effect *advise* the call runs, and is charged.
            if values is None:
                attempt.charges = (*attempt.charges, charge)
            else:
                of_values = [Charge(self.id, f"{key}{VALUE_MARK}{one}", SCALE) for one in values]
                attempt.charges = (*attempt.charges, *of_values)
        return found

    def _applies_to(self, attempt: Attempt) -> bool:
        assert self.when is not None  # noqa: S101 - both callers check
        try:
            answer = self.when(attempt.activation)
        except ExpressionError as error:
            attempt.add_error(self.id, error)
            return True
        if answer is False:
            return False
        if answer is not True:
            attempt.add_error(self.id, "`when` is not a bool")
        return True

    def _upfront_amount(self, attempt: Attempt) -> int:
        """Return what the call charges at admission."""
        if self.kind in ("calls", "concurrent"):
            return 0 if self.post_paid else SCALE
        if self.kind == "sum" and self.sum is not None and not self.post_paid:
            return _to_units(self.sum(attempt.activation))
        if self.kind in ("tokens", "cost"):
            estimate = attempt.estimate.get(self.kind)
            return self.reserve if estimate is None else _to_units(estimate)
        return 0

    def _values(self, attempt: Attempt) -> tuple[str, ...] | None:
        """Return the digests of a call's values; None if the budget counts no values."""
        if self.distinct is None:
            return None
        return digest_values(self.distinct(attempt.activation), self.digest)

    def _key_suffix(self, attempt: Attempt) -> str:
        parts = []
        for key in self.keys:
            value = key(attempt.activation)
            if not isinstance(value, str):
                raise ExpressionError("a key of `per` is not a string")
            parts.append(f"\x1f{self.digest(value)}")
        return "".join(parts)

    def owners(self, session: SessionState, batch: str = "") -> Iterator[tuple[SessionState, str]]:
        """Yield the sessions that pay for a session's calls of a batch, each with its key.

        For turn and session these are the session and all ancestors whose agent owns the budget.
        """
        if self.scope in ("session", "turn"):
            owner: SessionState | None = session
            while owner is not None:
                if self.is_owned_by(owner.agent):
                    turn = "" if self.scope == "session" else f"\x1e{owner.turn}"
                    yield owner, owner.id + turn
                owner = owner.parent
        elif not self.is_owned_by(session.agent):
            return
        elif self.scope == "batch":
            yield session, f"{session.id}\x1e{session.turn}\x1e{self.digest(batch)}"
        else:
            yield session, session.scope_keys[self.scope]

    def _has_too_many_keys(self, ledger: UsageLedger, owner: SessionState) -> bool:
        """Whether there is no room for one more key, of the owner or in total."""
        if self.scope == "batch":
            return False  # the oldest are forgotten
        if self.scope not in ("session", "turn"):
            return ledger.key_count(self.id) >= self.max_keys
        owned = owner.usage_keys if self.scope == "session" else owner.turn_usage_keys
        if len(owned) < self.max_keys:
            return False
        return sum(budget == self.id for budget, _ in owned) >= self.max_keys

    def _granted_amount(self, ledger: UsageLedger, scope: str, suffix: str) -> int:
        usage = ledger.get(self.id, scope) if suffix else None
        return usage.granted if usage is not None else 0

    def _evaluate_scope(
        self,
        usage: BudgetUsage | None,
        granted: int,
        charge: Charge,
        owner: SessionState,
        attempt: Attempt,
    ) -> Violation | None:
        extended = granted + (usage.granted if usage is not None else 0)
        limit = self.max + extended
        used = self._used_amount(usage, owner, attempt)
        if used is None:  # the time has not begun, or is unknown
            return None if limit else self._violation(attempt, 0, limit, self.escalation.effect)
        amount = charge.amount
        count = used
        if self.kind == "time":
            exceeded = used >= limit
            stops = self.escalation.effect >= Effect.BLOCK and not self.observe
            if stops and not exceeded and not self._is_waived(attempt):
                attempt.cap_timeout(limit - used, self.id)
        elif self.post_paid:
            exceeded = used + amount > limit or used >= limit
        elif self.kind == "distinct":
            if not amount:
                return None  # the values were there before
            exceeded = used + amount > limit
            count += amount
        else:
            exceeded = used + amount > limit
            count += amount
            if self.kind == "calls" and attempt.session.refused_attempts:
                count += SCALE * attempt.session.count_refusals_of(self.id, charge.key)
        # A grant raises the thresholds as it raises the limit.
        effect = self.escalation.effect_at(count - extended, limit_reached=exceeded)
        if effect is None:
            return None
        retry_after = None
        within = self.within if self.kind != "distinct" else None
        if exceeded and usage is not None and within is not None and attempt.at is not None:
            fits_at = usage.fits_at(used + max(amount, 1) - limit, within, attempt.at)
            retry_after = (fits_at - attempt.at) / 1e9 if fits_at is not None else None
        if effect < Effect.ASK and self.kind != "time" and not self.post_paid:
            used += amount  # the advice goes with this call's own result
        return self._violation(
            attempt,
            used,
            limit,
            effect,
            retry_after=retry_after,
            exceeded=exceeded,
            amount=amount,
        )

    def _is_waived(self, attempt: Attempt) -> bool:
        return self.exceptions is not None and bool(self.exceptions.find(self.id, attempt))

    def _used_amount(
        self, usage: BudgetUsage | None, owner: SessionState, attempt: Attempt
    ) -> int | None:
        """Return what counts now; None for an unknown time."""
        if self.kind == "time":
            start = self._started_at(usage, owner)
            return None if attempt.at is None or start is None else attempt.at - start
        if usage is None:
            return 0
        if self.kind == "distinct":
            return SCALE * (usage.values.count(attempt.at, self.within) if usage.values else 0)
        if self.kind == "concurrent":
            return usage.running * SCALE
        return usage.used_at(attempt.at, self.within)

    def remaining(self, ledger: UsageLedger, attempt: Attempt) -> float | None:
        """Return what remains for a call like this, in the budget's unit (seconds for `time`)."""
        try:
            suffix = self._key_suffix(attempt)
        except ExpressionError:
            return None
        least: int | None = None
        for owner, scope in self.owners(attempt.session, attempt.batch):
            usage = ledger.get(self.id, scope + suffix)
            limit = self.max + self._granted_amount(ledger, scope, suffix)
            limit += usage.granted if usage is not None else 0
            amount = max(0, limit - (self._used_amount(usage, owner, attempt) or 0))
            least = amount if least is None else min(least, amount)
        return None if least is None else least / 1e9

    def _started_at(self, usage: BudgetUsage | None, owner: SessionState) -> int | None:
        if self.keys or self.scope not in ("session", "turn"):
            return usage.started_at if usage is not None else None
        return owner.started_at if self.scope == "session" else owner.turn_started_at

    def _violation(
        self,
        attempt: Attempt,
        used: int | None,
        limit: int,
        effect: Effect,
        texts: tuple[str, str] | None = None,
        retry_after: float | None = None,
        *,
        exceeded: bool = True,
        amount: int = 0,
    ) -> Violation:
        shown_used = used / 1e9 if used is not None else None
        shown_limit = limit / 1e9
        text, instead = texts or describe(
            self, attempt.session, used or 0, limit, exceeded=exceeded, amount=amount
        )
        if self.message is not None or self.instead is not None:
            values = {
                "call": attempt.template_call,
                "tags": attempt.activation.tags,
                "rule": self.id,
                "limit": shown_limit,
                "used": shown_used,
                "left": max(0.0, shown_limit - (shown_used or 0.0)),
                "retry_after": retry_after,
            }
            text = self.message.render(values) if self.message is not None else text
            instead = self.instead.render(values) if self.instead is not None else instead
        return Violation(
            self.id,
            effect,
            "budget",
            text,
            instead,
            shown_used,
            shown_limit,
            retry_after,
            quotes=quote_call(self.message, self.instead),
        )

    def settle(self, charge: Charge, attempt: Attempt, outcome: Outcome) -> Charge | None:
        """Return what a completed call charges beyond its charge at admission; None for nothing.

        Nothing is refunded to a call that was cancelled, or that goes on after its time: what it
        uses is unknown.
        """
        if not self.post_paid or self.kind == "model_calls":
            return None
        is_cancelled = outcome.state == "cancelled"
        if is_cancelled and self.kind == "sum":
            return None  # there is no result to add up
        if (
            self.when is not None
            and self.when_post_paid
            and not (is_cancelled or self._applies_to(attempt))
        ):
            return Charge(self.id, charge.key, -charge.amount) if charge.amount else None
        try:
            amount = self._final_amount(attempt, outcome)
        except ExpressionError as error:
            attempt.add_error(self.id, error)
            amount = self.max  # an invalid amount uses up the budget
        difference = amount - charge.amount
        if difference < 0 and (is_cancelled or outcome.report.still_running):
            return None
        return Charge(self.id, charge.key, difference) if difference else None

    def _final_amount(self, attempt: Attempt, outcome: Outcome) -> int:
        if self.kind == "calls":
            return SCALE
        if self.kind == "sum" and self.sum is not None:
            return _to_units(self.sum(attempt.activation))
        return _to_units((outcome.tokens if self.kind == "tokens" else outcome.cost) or 0)


def _to_units(value: Any) -> int:
    """Convert an amount: a negative one would let a call refill a budget."""
    units = to_units(value)
    if units is None:
        raise ExpressionError(f"the amount is not a number from 0 to {MAX_AMOUNT:g}")
    return units


def _count_new(
    values: tuple[str, ...], usage: BudgetUsage | None, at: int | None, within: int | None
) -> int:
    """Return how many of a call's values do not count yet."""
    known = usage.values if usage is not None else None
    if known is None:
        return len(values)
    return sum(not known.has(value, at, within) for value in values)
