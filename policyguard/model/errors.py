"""What may go wrong while a call is judged."""

from __future__ import annotations

from policyguard.model.decision import Decision


class ExpressionError(Exception):
    """An expression of the policy has no value for this call: a key is missing, types do not fit.

    Never seen by a caller: the rule's `on_error` says what it means, `Decision.errors` names it.
    """


class ArgumentsError(Exception):
    """A call's arguments cannot be judged: not JSON, too large, or nested too deep."""


class CallRefused(Exception):  # noqa: N818 - a refusal is an answer, not an error of the program
    """A call made through `Session.run` or a guarded tool was refused; `decision` says why.

    `str()` of it is the text for the model.
    """

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        super().__init__(decision.message)
