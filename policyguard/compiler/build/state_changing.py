"""What the policy says of calls that may change state (`classify.state_changing`)."""

from __future__ import annotations

from collections.abc import Callable

from policyguard.compiler.build.expressions import Expressions
from policyguard.evaluator.activation import Expression
from policyguard.model.policy import Policy

_KIND_FIELDS = ("tool", "server", "class", "classes", "agent", "hints", "args", "command")
"""Fields of `call` that all calls of one plan share, but for hints, arguments and command."""


def reads_kind_only(expressions: Expressions) -> bool:
    """Return whether the condition reads only the kind of call, hints and arguments."""
    for read in expressions.reads("classify", "state_changing"):
        root, _, field = read.partition(".")
        if root == "call" and field.partition(".")[0] not in _KIND_FIELDS:
            return False
        if root not in ("call", "lists", "params"):
            return False
    return True


def build_state_changing(
    policy: Policy, expressions: Expressions
) -> Callable[[tuple[str, ...]], Expression | bool]:
    """Return a function of the classes: the condition, or whether calls may change state."""
    changing = policy.classify.state_changing
    if isinstance(changing, str):
        condition = expressions.get("classify", "state_changing") or True
        return lambda classes: condition
    if changing is None:
        return lambda classes: True
    named = frozenset(changing)
    return lambda classes: not classes or not named.isdisjoint(classes)
