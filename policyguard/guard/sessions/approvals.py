"""What people allow in a session: calls that were asked about, and more of a budget."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from policyguard.guard import validate
from policyguard.guard.approvals.answers import build_denial, describe_approval, describe_denial
from policyguard.guard.approvals.approver import is_approved, require_comparable
from policyguard.guard.approvals.grants import grant_calls, read_request
from policyguard.guard.budgets.raises import find_budget
from policyguard.guard.sessions.lifetime import SessionLifetime
from policyguard.model.decision import Decision
from policyguard.model.effect import Effect
from policyguard.model.event import Approved, Granted
from policyguard.model.grant import GrantScope, Remember


class SessionApprovals(SessionLifetime):
    """The part of `Session` by which people allow what was refused."""

    __slots__ = ()

    def approve(
        self,
        decision: Decision,
        *,
        by: str,
        labels: Iterable[str] = (),
        remember: Remember | None = None,
        expires: float | timedelta | datetime | None = None,
        scope: GrantScope = "session",
    ) -> bool:
        """Approve a call whose effect is *ask*: check it again, and it runs.

        It waives *ask* only, not *block* or *halt*, and holds for the call's tool, server and
        arguments (as `classify.fingerprint` compares them), and for one check. A budget that asked
        is raised by its `extend`. `by` names the approver, `labels` the roles that the host gives
        them.

        `remember` makes a grant: until it `expires` (in seconds or a `timedelta`, or at an aware
        `datetime`), what asked about this call asks no more about calls like it: the same `call`;
        the same `target` (tool and targets); the same `tool`; the same `prefix` (program words of
        a command, or folder of paths). It holds for this session, or for all sessions of its
        agent, user or project (`scope`) in the same folder. Where a rule needs several people,
        each must want the same. `Guard.grants` lists grants, `Guard.revoke` takes one back.

        Returns whether the call is approved now: a rule may need several people, people with a
        label, or an answer within a time. An approval that no `check` waits for counts nowhere.
        `ClosedError` if the session is closed, `ValueError` for a call that cannot be compared, or
        has no such `target` or `prefix`, and if `by` is blank; `JournalError` or `StoreError` if it
        cannot be written.
        """
        validate.decision("decision", decision)
        _require_question(decision, self.id)
        require_comparable(decision)
        by, labels = validate.person("by", by), validate.text_list("labels", labels)
        fingerprint, times = decision.fingerprint, self._times()
        request = read_request(remember, expires, scope, times["at"], times["wall"])
        with self.guard._lock:
            approved = Approved(
                self.id, call=decision.id, fingerprint=fingerprint, by=by, labels=labels, **times
            )
            if request is None:
                self._pipeline.approve(approved)
            else:
                grant_calls(self, decision, approved, request)
            done = is_approved(self.guard._evaluator, self._state, decision, times["at"])
            if done:
                self._pipeline.advice.add_answer(fingerprint, describe_approval(decision.tool, by))
            return done

    def deny(
        self, decision: Decision, *, by: str, labels: Iterable[str] = (), message: str = ""
    ) -> bool:
        """Say no to a call whose effect is *ask*, with a `message` for the model.

        The call stays refused, and is not asked about again before the next turn begins, or the
        time has passed in which the rule wants its answers (`approval.within`). The model reads the
        message with its next result, and when it makes the call again. One no is enough; a rule
        that wants its approver to have a label wants that here too.

        Returns whether the call is denied now: not if it does not wait, has expired, was answered
        before, or `labels` lack one that is needed. Raises as `approve` does.
        """
        validate.decision("decision", decision)
        if decision.effect is not Effect.ASK or decision.session != self.id:
            raise ValueError(f"call `{decision.id}` of this session does not wait for an answer")
        by, labels = validate.person("by", by), validate.text_list("labels", labels)
        message = validate.text("message", message)
        evaluator, times = self.guard._evaluator, self._times()
        with self.guard._lock:
            denied = build_denial(evaluator, self._state, decision, by, labels, message, times)
            if denied is None:
                return False
            self._pipeline.fold(denied)
            answer = describe_denial(decision.tool, denied)
            self._pipeline.advice.add_answer(decision.fingerprint, answer)
            return True

    def grant(self, budget: str, amount: float | timedelta | None = None, *, by: str) -> None:
        """Raise a budget for this session, and lift a halt. `approve` makes grants of calls.

        `amount` is in the budget's own unit (seconds or a `timedelta` for `time`), by default the
        budget's `extend`. `KeyError` for an unknown budget, `ValueError` for a blank `by` or an
        amount that is missing, negative or not finite, `ClosedError` if the session is closed; and
        `JournalError` or `StoreError`.
        """
        id_, raised = find_budget(self.guard._evaluator.budgets, budget, amount)
        by = validate.person("by", by)
        self._pipeline.grant(Granted(self.id, budget=id_, amount=raised, by=by, **self._times()))

    def _is_approved(self, decision: Decision) -> bool:
        with self.guard._lock:
            return is_approved(self.guard._evaluator, self._state, decision, self._times()["at"])


def _require_question(decision: Decision, session: str) -> None:
    """Raise `ValueError` unless the decision asks, in this session."""
    if decision.session != session or decision.effect < Effect.ASK:
        raise ValueError(f"call `{decision.id}` of this session does not need an approval")
    if decision.effect is not Effect.ASK:
        refused = f"call `{decision.id}` is refused ({decision.effect})"
        raise ValueError(f"{refused}, and an approval waives *ask* only")
