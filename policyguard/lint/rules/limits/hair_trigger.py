"""A limit so low that it refuses normal work.

`max` is how many calls are allowed. `repeat: {max: 1}` in `default` refuses to read a file again
after an edit, and `failures: {max: 1}` ends the session at the first failure; working agents do
both all the time. If a tool must never be called twice, set the limit under `tools`.

A budget holds its `reserve` for each call until its tokens or cost are known. If the reserve
exceeds the whole budget, no call is admitted unless the host estimates what it will take.

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

from policyguard.compiler.build.entry_paths import limit_path
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.effect import Effect
from policyguard.model.limits import FailuresLimit, RepeatLimit, iter_limits

_CALL_FINGERPRINTS = frozenset({"call", "call_and_result", "target"})


def check(context: LintContext) -> Iterator[Finding]:
    """Report limits without room for repetitions or failures, and reserves above the budget."""
    yield from _check_limits(context)
    for budget in context.policy.budgets:
        total = budget.tokens if budget.cost is None else budget.cost
        reserve = budget.reserve or 0
        if total is not None and reserve > total and budget.effect >= Effect.ASK:
            message = f"a reserve of {reserve:,.9g} per call exceeds the budget of {total:,.9g}"
            hint = "`reserve` is what one call may take; set it below the budget"
            yield Finding(context.merged.span_of(("budgets", budget.id, "reserve")), message, hint)


def _check_limits(context: LintContext) -> Iterator[Finding]:
    for level, limits in context.policy.limits.items():
        for kind, index, limit in iter_limits(limits):
            path = limit_path(limits, level, kind, index)
            if not isinstance(limit, RepeatLimit | FailuresLimit) or limit.effect < Effect.ASK:
                continue
            message = _message(limit, is_default=level == "default")
            if message:
                hint = "raise `max`, or write a rule to forbid a tool"
                yield Finding(context.merged.span_of((*path, "max")), message, hint)


def _message(limit: RepeatLimit | FailuresLimit, *, is_default: bool) -> str:
    if limit.max == 0:
        return "a `max` of 0 refuses the first call"
    if limit.max > 1 or not is_default:
        return ""
    if isinstance(limit, RepeatLimit):
        counts_calls = limit.key is None and limit.same in _CALL_FINGERPRINTS
        return "this refuses the first repetition of any call" if counts_calls else ""
    counts_all = limit.same is None and limit.by is None and limit.signature is None
    return "this refuses every call after one failure" if counts_all else ""
