"""A limit that refuses the first repetition of any call, or all calls.

`max` is how many get through. `repeat: {max: 1}` in `default` refuses to read a file again after an
edit, and `failures: {max: 1}` ends the session with the first failure; agents that work do both all
the time. For a tool that must never be called twice it is right, and stands under `tools`.

What a budget has in `reserve` is held for each call until its tokens or cost are known. More than
the whole budget is never free: unless the host estimates what a call will take, none is admitted.

Avoid:

    default: {repeat: {max: 1, same: call}}
    money: {cost: 2, reserve: 3}

Prefer:

    default: {repeat: {max: 4, same: call_and_result}}
    tools: {post_payment: {repeat: {max: 1, same: call, window: all}}}
    money: {cost: 2, reserve: 0.3}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.build.entry_paths import level_path
from policyguard.lint.context import LintContext
from policyguard.lint.rule import Finding
from policyguard.model.effect import Effect
from policyguard.model.limits import FailuresLimit, RepeatLimit

_OF_CALLS = frozenset({"call", "call_and_result", "target"})


def check(subject: LintContext) -> Iterator[Finding]:
    """Limits that leave no room for repetitions or failures, and reserves that no call can have."""
    yield from _limits(subject)
    for budget in subject.policy.budgets:
        whole = budget.tokens if budget.cost is None else budget.cost
        reserve = budget.reserve or 0
        if whole is not None and reserve > whole and budget.effect >= Effect.ASK:
            message = f"{reserve:,.9g} held for each call is more than the budget of {whole:,.9g}"
            hint = "`reserve` is what one call may take, a part of the budget"
            yield Finding(subject.merged.span_of(("budgets", budget.id, "reserve")), message, hint)


def _limits(subject: LintContext) -> Iterator[Finding]:
    for level, limits in subject.policy.limits.items():
        path = level_path(level)
        for kind, limit in (("repeat", limits.repeat), ("failures", limits.failures)):
            if not isinstance(limit, RepeatLimit | FailuresLimit) or limit.effect < Effect.ASK:
                continue
            message = _message(limit, is_default=level == "default")
            if message:
                hint = "to forbid a tool, write a rule; to allow some more, raise `max`"
                yield Finding(subject.merged.span_of((*path, kind, "max")), message, hint)


def _message(limit: RepeatLimit | FailuresLimit, *, is_default: bool) -> str:
    if limit.max == 0:
        return "0 lets nothing through: the first call is refused"
    if limit.max > 1 or not is_default:
        return ""
    if isinstance(limit, RepeatLimit):
        counts_calls = limit.key is None and limit.same in _OF_CALLS
        return "the first repetition of any call is refused" if counts_calls else ""
    counts_all = limit.same is None and limit.signature is None
    return "after one failure every call is refused" if counts_all else ""
