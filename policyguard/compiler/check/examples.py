"""The examples beside rules are run at load: a rule that does not do what it shows is an error."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from policyguard.compiler.build.selectors import compile_selector
from policyguard.compiler.merge.layers import MergedPolicy
from policyguard.evaluator.activation import Expression
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.evaluator import Evaluator
from policyguard.evaluator.plan import Plan
from policyguard.evaluator.session_state import SessionState
from policyguard.model.diagnostic import Diagnostic, quote_text
from policyguard.model.entry import Example
from policyguard.model.errors import ArgumentsError
from policyguard.model.event import Started
from policyguard.model.policy import Policy, Rule


def run_examples(
    policy: Policy, merged: MergedPolicy, evaluator: Evaluator
) -> Iterator[Diagnostic]:
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
                matched, why = _match_example(policy, rule, example, evaluator)
                if matched is not wanted:
                    span = merged.span_of(("rules", rule.id, "examples", kind, number))
                    yield Diagnostic(
                        code=f"example/{'no-match' if wanted else 'match'}",
                        severity="error",
                        message=_failure_message(rule, example, matched=matched),
                        span=span,
                        help=why or None,
                        lines=merged.lines(span),
                    )


def prepare_example(policy: Policy, example: Example, evaluator: Evaluator) -> tuple[Plan, Attempt]:
    """What applies to the call of an example, and the call.

    Raises `ArgumentsError` for arguments that cannot be judged.
    """
    tags = {name: tag.default for name, tag in policy.tags.items() if tag.default is not None}
    started = Started(
        session="example",
        at=_to_nanoseconds(example.at),
        agent=example.agent,
        user=example.user,
        roles=example.roles,
        tags={**tags, **example.tags},
    )
    most = policy.bounds.window_entries
    session = SessionState(started, None, evaluator.activation_context, max_entries=most)
    session.cel_session.update(example.session)
    if isinstance(session.cel_session["cost"], int):
        session.cel_session["cost"] = float(session.cel_session["cost"])
    attempt = Attempt(example.tool, _arguments(policy, example), started.at, session)
    return evaluator.prepare(attempt).plan, attempt


def _match_example(
    policy: Policy, rule: Rule, example: Example, evaluator: Evaluator
) -> tuple[bool, str]:
    """Whether a rule matches its example, and why, where that needs to be told."""
    try:
        plan, attempt = prepare_example(policy, example, evaluator)
    except ArgumentsError:
        return True, ""  # refused before any rule is asked
    judge = next((one for one in plan.rules if one.id == f"rules/{rule.id}"), None)
    if judge is None:
        return False, "; ".join(_selector_mismatches(rule, example, plan.class_))
    matched = judge.evaluate(attempt) is not None
    if attempt.errors:
        return matched, f"its condition failed: {attempt.errors[0].error}"
    if matched:
        return True, ""
    # What `unless` exempts, `when` has let through.
    exempt = rule.unless is not None and _is_true(judge.when, attempt)
    return False, "its `unless` is true of this call" if exempt else "its `when` is false here"


def _selector_mismatches(rule: Rule, example: Example, class_: str) -> Iterator[str]:
    """Which keys of a rule are not about an example's call."""
    for key, name, none in (
        ("tools", example.tool, ""),
        ("servers", "", "an example's call is from no server"),
        ("classes", class_, "the call has no class"),
        ("agents", example.agent, "an agent is given as `{call: …, agent: …}`"),
    ):
        if not compile_selector(getattr(rule, key))(name):
            yield f"its `{key}` does not fit {quote_text(name)}" if name else f"its `{key}`: {none}"


def _is_true(when: Expression | None, attempt: Attempt) -> bool:
    return when is None or when(attempt.activation) is True


def _arguments(policy: Policy, example: Example) -> dict[str, Any]:
    if example.args is not None:
        return dict(example.args)
    names = policy.classify.shell.arguments or ("command",)
    return {names[0]: example.command}


def _to_nanoseconds(at: str | None) -> int | None:
    """An RFC 3339 time as nanoseconds; the schema has checked its form."""
    if at is None:
        return None
    return round(datetime.fromisoformat(at).timestamp()) * 1_000_000_000


def _failure_message(rule: Rule, example: Example, *, matched: bool) -> str:
    call = example.tool if example.command is None else f"{example.tool}: {example.command}"
    if matched:
        return f"rule `{rule.id}` matches `{call}`, which its examples say it does not"
    return f"rule `{rule.id}` does not match `{call}`, which its examples say it does"
