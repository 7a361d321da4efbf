"""What the policy has to say on one kind of call, looked up once and then walked at each call."""

from __future__ import annotations

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.budget import Budget
from policyguard.evaluator.limits import Limit
from policyguard.evaluator.refusals import Refusals
from policyguard.evaluator.repeat import Repeat
from policyguard.evaluator.rule import Rules
from policyguard.evaluator.view import Expression
from policyguard.model.errors import ExpressionError


class Plan:
    """Class, limits, budgets and rules of calls of one tool, by one kind of agent.

    `keyed` are the limits that need a key beside the fingerprint. `changing` tells whether a
    success may change state: a fixed answer, or an expression. All calls without hints and without
    the arguments that are named by `variable` have one answer; where it is None, none have.
    `refusals` is asked about attempts
    that something else refuses. `timeout` is how long a call may take (ns), and who says so.
    """

    __slots__ = (
        "_known",
        "budgets",
        "changing",
        "class_",
        "climbing",
        "keyed",
        "limits",
        "refusals",
        "rules",
        "timeout",
        "timeout_by",
        "tool",
        "variable",
    )

    def __init__(
        self,
        *,
        tool: str,
        class_: str,
        limits: tuple[Limit, ...],
        budgets: tuple[Budget, ...],
        rules: Rules,
        changing: bool | Expression,
        variable: frozenset[str] | None = frozenset(),
        refusals: Refusals | None = None,
        timeout: int | None = None,
        timeout_by: str = "",
    ) -> None:
        self.tool = tool
        self.class_ = class_
        self.limits = limits
        self.budgets = budgets
        self.rules = rules
        self.changing = changing
        self.variable = variable
        self.refusals = refusals
        self.timeout = timeout
        self.timeout_by = timeout_by
        self.climbing = tuple(limit for limit in limits if limit.climbs)
        self._known = changing if isinstance(changing, bool) else None
        self.keyed: tuple[Repeat, ...] = tuple(
            limit for limit in limits if isinstance(limit, Repeat) and limit.key is not None
        )

    def changes(self, attempt: Attempt) -> bool:
        """Whether a success of this call may change state. What cannot be told may."""
        changing = attempt.changing
        if changing is None:
            known, variable = self._known, self.variable
            plain = not attempt.hints and variable is not None and variable.isdisjoint(attempt.args)
            changing = known if plain and known is not None else self._asked(attempt, plain)
            attempt.changing = changing
        return changing

    def _asked(self, attempt: Attempt, plain: bool) -> bool:
        changing = self.changing
        if changing is True or changing is False:
            return changing
        try:
            answer = changing(attempt.view) is not False
        except ExpressionError:
            return True
        if plain:
            self._known = answer
        return answer


class Candidates:
    """The classes that calls of one tool may have, first match first.

    Each is a class and a condition on the call; the last may have none. Where the first has none,
    the class is the tool's, whatever the arguments.
    """

    __slots__ = ("fixed", "options")

    def __init__(self, options: tuple[tuple[str, Expression | None], ...]) -> None:
        self.options = options
        self.fixed: str | None = None
        if not options:
            self.fixed = ""
        elif options[0][1] is None:
            self.fixed = options[0][0]

    def choose(self, attempt: Attempt) -> str:
        """The first class whose condition holds, or cannot be decided; empty where none does."""
        for name, condition in self.options:
            if condition is None:
                return name
            try:
                if condition(attempt.view) is not False:
                    return name
            except ExpressionError as error:
                attempt.fault(f"classify/classes/{name}", error)
                return name
        return ""
