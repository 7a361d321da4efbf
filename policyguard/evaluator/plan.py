"""What the policy has to say on one kind of call, looked up once and then walked at each call."""

from __future__ import annotations

from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.budget import Budget
from policyguard.evaluator.limits import Limit
from policyguard.evaluator.refusals import Refusals
from policyguard.evaluator.repeat import Repeat
from policyguard.evaluator.rule import Rules
from policyguard.evaluator.view import Expression, View
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
        "_looks",
        "alike",
        "budgets",
        "changing",
        "class_",
        "climbing",
        "further",
        "keyed",
        "limits",
        "refusals",
        "rules",
        "steady",
        "timeout",
        "timeout_by",
        "tool",
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
        alike: bool = True,
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
        self.alike = alike
        self.refusals = refusals
        self.timeout = timeout
        self.timeout_by = timeout_by
        self.climbing = tuple(limit for limit in limits if limit.climbs)
        self.steady = changing if isinstance(changing, bool) else None
        self._looks = False
        self.keyed: tuple[Repeat, ...] = tuple(
            limit for limit in limits if isinstance(limit, Repeat) and limit.key is not None
        )
        self.further = not alike or bool(self.keyed) or timeout is not None

    def changes(self, attempt: Attempt) -> bool:
        """Whether a success of this call may change state. What cannot be told may."""
        changing = attempt.changing
        if changing is None:
            changing = self.steady
            if changing is None or attempt.hints:
                changing = self._asked(attempt)
            attempt.changing = changing
        return changing

    def _asked(self, attempt: Attempt) -> bool:
        changing = self.changing
        if changing is True or changing is False:
            return changing
        telling = self.alike and not (attempt.hints or self._looks)
        # A view of its own says what has been read.
        view = View(attempt, attempt.session.ground, attempt.at) if telling else attempt.view
        try:
            answer = changing(view) is not False
        except ExpressionError:
            return True
        if telling:
            self._looks = view.has_read("command")
            if not self._looks:
                self.steady = answer
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
