"""The examples beside rules are run at load: a rule that does not do what it shows is an error."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from policyguard.compiler.layers import Layered
from policyguard.compiler.selectors import selects
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.evaluator import Evaluator
from policyguard.evaluator.plan import Plan
from policyguard.evaluator.session import SessionState
from policyguard.evaluator.view import Expression
from policyguard.model.diagnostic import Diagnostic, quoted
from policyguard.model.entry import Example
from policyguard.model.errors import ArgumentsError
from policyguard.model.event import Started
from policyguard.model.policy import Policy, Rule


def run_examples(policy: Policy, layered: Layered, evaluator: Evaluator) -> Iterator[Diagnostic]:
    """Try every rule on its own examples; yield one error for each that fails.

    An example judges its own rule only. A tag that it does not give has its default, else is
    absent.
    """
    for rule in policy.rules:
        for kind, examples, wanted in (
            ("match", rule.examples.match, True),
            ("no_match", rule.examples.no_match, False),
        ):
            for number, example in enumerate(examples):
                matched, why = _matches(policy, rule, example, evaluator)
                if matched is not wanted:
                    span = layered.where(("rules", rule.id, "examples", kind, number))
                    yield Diagnostic(
                        code=f"example/{'no-match' if wanted else 'match'}",
                        severity="error",
                        message=_message(rule, example, matched=matched),
                        span=span,
                        help=why or None,
                        lines=layered.lines(span),
                    )


def prepared(policy: Policy, example: Example, evaluator: Evaluator) -> tuple[Plan, Attempt]:
    """What applies to the call of an example, and the call.

    Raises `ArgumentsError` for arguments that cannot be judged.
    """
    tags = {name: tag.default for name, tag in policy.tags.items() if tag.default is not None}
    started = Started(
        session="example",
        at=_nanoseconds(example.at),
        agent=example.agent,
        user=example.user,
        roles=example.roles,
        tags={**tags, **example.tags},
    )
    most = policy.bounds.window_entries
    session = SessionState(started, None, evaluator.ground, most=most)
    session.facts.update(example.session)
    if isinstance(session.facts["cost"], int):
        session.facts["cost"] = float(session.facts["cost"])
    attempt = Attempt(example.tool, _arguments(policy, example), started.at, session)
    return evaluator.prepare(attempt).plan, attempt


def _matches(
    policy: Policy, rule: Rule, example: Example, evaluator: Evaluator
) -> tuple[bool, str]:
    """Whether a rule matches its example, and why, where that needs to be told."""
    try:
        plan, attempt = prepared(policy, example, evaluator)
    except ArgumentsError:
        return True, ""  # refused before any rule is asked
    judge = next((one for one in plan.rules if one.id == f"rules/{rule.id}"), None)
    if judge is None:
        return False, "; ".join(_misfits(rule, example, plan.class_))
    matched = judge.judge(attempt) is not None
    if attempt.faults:
        return matched, f"its condition failed: {attempt.faults[0].error}"
    if matched:
        return True, ""
    # What `unless` exempts, `when` has let through.
    exempt = rule.unless is not None and _holds(judge.when, attempt)
    return False, "its `unless` is true of this call" if exempt else "its `when` is false here"


def _misfits(rule: Rule, example: Example, class_: str) -> Iterator[str]:
    """Which keys of a rule are not about an example's call."""
    for key, name, none in (
        ("tools", example.tool, ""),
        ("servers", "", "an example's call is from no server"),
        ("classes", class_, "the call has no class"),
        ("agents", example.agent, "an agent is given as `{call: …, agent: …}`"),
    ):
        if not selects(getattr(rule, key))(name):
            yield f"its `{key}` does not fit {quoted(name)}" if name else f"its `{key}`: {none}"


def _holds(when: Expression | None, attempt: Attempt) -> bool:
    return when is None or when(attempt.view) is True


def _arguments(policy: Policy, example: Example) -> dict[str, Any]:
    if example.args is not None:
        return dict(example.args)
    names = policy.classify.shell.arguments or ("command",)
    return {names[0]: example.command}


def _nanoseconds(at: str | None) -> int | None:
    """An RFC 3339 time as nanoseconds; the schema has checked its form."""
    if at is None:
        return None
    return round(datetime.fromisoformat(at).timestamp()) * 1_000_000_000


def _message(rule: Rule, example: Example, *, matched: bool) -> str:
    call = example.tool if example.command is None else f"{example.tool}: {example.command}"
    if matched:
        return f"rule `{rule.id}` matches `{call}`, which its examples say it does not"
    return f"rule `{rule.id}` does not match `{call}`, which its examples say it does"
