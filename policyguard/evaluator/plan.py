"""What the policy has to say on one kind of call, looked up once and then walked at each call."""

from __future__ import annotations

from policyguard.evaluator.activation import Activation, Expression
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.budgets.budget import CompiledBudget
from policyguard.evaluator.limits.base import LimitChecker
from policyguard.evaluator.limits.refusals import RefusalsChecker
from policyguard.evaluator.limits.repeat import RepeatChecker
from policyguard.evaluator.rule import RuleSet
from policyguard.model.errors import ExpressionError


class Plan:
    """Class, limits, budgets and rules of calls of one tool, by one kind of agent.

    `keyed` are the limits that need a key beside the fingerprint. `changing` tells whether a
    success may change state: a fixed answer, or an expression. Where they are `alike`, it reads
    nothing of calls that is not the same for all of this kind, but for their hints and command.
    `steady` is the answer to all calls without hints, from when it has been found without a look
    at the command: then it will be so again. `refusals` is asked about attempts that something
    else refuses. `timeout` is how long a call may take (ns), and who says so. With `further` there
    is more to find out about a call than its class.
    """

    __slots__ = (
        "_reads_command",
        "budgets",
        "cached_answer",
        "class_",
        "escalating_limits",
        "keyed_limits",
        "kind_only",
        "limits",
        "needs_more",
        "refusals",
        "rules",
        "state_changing",
        "timeout",
        "timeout_by",
        "tool",
    )

    def __init__(
        self,
        *,
        tool: str,
        class_: str,
        limits: tuple[LimitChecker, ...],
        budgets: tuple[CompiledBudget, ...],
        rules: RuleSet,
        state_changing: bool | Expression,
        kind_only: bool = True,
        refusals: RefusalsChecker | None = None,
        timeout: int | None = None,
        timeout_by: str = "",
    ) -> None:
        self.tool = tool
        self.class_ = class_
        self.limits = limits
        self.budgets = budgets
        self.rules = rules
        self.state_changing = state_changing
        self.kind_only = kind_only
        self.refusals = refusals
        self.timeout = timeout
        self.timeout_by = timeout_by
        self.escalating_limits = tuple(limit for limit in limits if limit.escalates)
        self.cached_answer = state_changing if isinstance(state_changing, bool) else None
        self._reads_command = False
        self.keyed_limits: tuple[RepeatChecker, ...] = tuple(
            limit for limit in limits if isinstance(limit, RepeatChecker) and limit.key is not None
        )
        self.needs_more = not kind_only or bool(self.keyed_limits) or timeout is not None

    def is_state_changing(self, attempt: Attempt) -> bool:
        """Whether a success of this call may change state. What cannot be told may."""
        changing = attempt.state_changing
        if changing is None:
            changing = self.cached_answer
            if changing is None or attempt.hints:
                changing = self._evaluate_state_changing(attempt)
            attempt.state_changing = changing
        return changing

    def _evaluate_state_changing(self, attempt: Attempt) -> bool:
        changing = self.state_changing
        if changing is True or changing is False:
            return changing
        telling = self.kind_only and not (attempt.hints or self._reads_command)
        # A view of its own says what has been read.
        view = (
            Activation(attempt, attempt.session.activation_context, attempt.at)
            if telling
            else attempt.activation
        )
        try:
            answer = changing(view) is not False
        except ExpressionError:
            return True
        if telling:
            self._reads_command = view.has_read("command")
            if not self._reads_command:
                self.cached_answer = answer
        return answer


class ClassCandidates:
    """The classes that calls of one tool may have, first match first.

    Each is a class and a condition on the call; the last may have none. Where the first has none,
    the class is the tool's, whatever the arguments.
    """

    __slots__ = ("fixed_class", "options")

    def __init__(self, options: tuple[tuple[str, Expression | None], ...]) -> None:
        self.options = options
        self.fixed_class: str | None = None
        if not options:
            self.fixed_class = ""
        elif options[0][1] is None:
            self.fixed_class = options[0][0]

    def classify(self, attempt: Attempt) -> str:
        """The first class whose condition holds, or cannot be decided; empty where none does."""
        for name, condition in self.options:
            if condition is None:
                return name
            try:
                if condition(attempt.activation) is not False:
                    return name
            except ExpressionError as error:
                attempt.add_error(f"classify/classes/{name}", error)
                return name
        return ""
