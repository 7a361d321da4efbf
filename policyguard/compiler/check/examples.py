"""Run the examples of rules; a rule that contradicts an example is an error."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from policyguard.compiler.build.entry_paths import case_id, rule_examples
from policyguard.compiler.build.selectors.content_selectors import CONTENT_FIELDS
from policyguard.compiler.build.selectors.selector import compile_selector, compile_tool_selector
from policyguard.compiler.merge.layers import MergedPolicy
from policyguard.evaluator.activation import Expression
from policyguard.evaluator.attempt import Attempt
from policyguard.evaluator.evaluator import Evaluator
from policyguard.evaluator.marks.compiled_mark import given_changes
from policyguard.evaluator.plan import Plan
from policyguard.evaluator.session_state import SessionState
from policyguard.model.diagnostic import Diagnostic, quote_text
from policyguard.model.entry import Example
from policyguard.model.errors import ArgumentsError
from policyguard.model.event import SessionStarted
from policyguard.model.policy import Policy, Rule


def run_examples(
    policy: Policy, merged: MergedPolicy, evaluator: Evaluator
) -> Iterator[Diagnostic]:
    """Test every rule on its own examples; yield an error for each that fails.

    Tags that an example does not set have their default, or are absent.
    """
    for part, example, expected, path in rule_examples(policy):
        name = str(path[1])
        if isinstance(part, Rule):
            matched, reason = _match_example(policy, part, example, evaluator)
            shown = f"rule `{name}`"
        else:
            number = int(path[3])
            matched, reason = _match_case(policy, case_id(name, number), example, evaluator)
            shown = f"case {number + 1} of rule `{name}`"
        if matched is not expected:
            code = f"example/{'no-match' if expected else 'match'}"
            message = _failure_message(shown, example, matched=matched)
            yield merged.diagnostic(code, message, path, hint=reason or None)


def prepare_example(policy: Policy, example: Example, evaluator: Evaluator) -> tuple[Plan, Attempt]:
    """Return the plan for an example's call, and its attempt.

    Raises `ArgumentsError` for arguments that cannot be evaluated.
    """
    tags = {name: tag.default for name, tag in policy.tags.items() if tag.default is not None}
    started = SessionStarted(
        session="example",
        at=_to_nanoseconds(example.at),
        agent=example.agent,
        user=example.user,
        roles=example.roles,
        tags={**tags, **example.tags},
    )
    max_entries = policy.bounds.window_entries
    marks = evaluator.new_mark_states()
    session = SessionState(
        started, None, evaluator.activation_context, max_entries=max_entries, marks=marks
    )
    if marks is not None:
        marks.change(session, (), given_changes(evaluator.marks, example.marks), started.at)
    session.cel_session.update(example.session)
    if isinstance(session.cel_session["cost"], int):
        session.cel_session["cost"] = float(session.cel_session["cost"])
    attempt = Attempt(example.tool, _arguments(policy, example), started.at, session)
    attempt.split_tool_name()
    return evaluator.prepare(attempt).plan, attempt


def _match_example(
    policy: Policy, rule: Rule, example: Example, evaluator: Evaluator
) -> tuple[bool, str]:
    """Return whether a rule matches its example, and a reason if it is not obvious."""
    try:
        plan, attempt = prepare_example(policy, example, evaluator)
    except ArgumentsError:
        return True, ""  # refused before any rule
    compiled = next((entry for entry in plan.rules if entry.id == f"rules/{rule.id}"), None)
    if compiled is None and rule.cases:
        return False, "no case of the rule matches"
    if compiled is None:
        return False, "; ".join(_selector_mismatches(rule, example, attempt))
    if compiled.selects is not None and not compiled.selects(attempt.activation):
        return False, _content_mismatch(rule, attempt)
    matched = bool(compiled.evaluate(attempt))
    if attempt.errors:
        return matched, f"its condition failed: {attempt.errors[0].error}"
    if matched:
        return True, ""
    # `unless` can only exempt a call that `when` matches.
    exempt = rule.unless is not None and _is_true(compiled.when, attempt)
    return False, "its `unless` is true" if exempt else "its `when` is false"


def _match_case(
    policy: Policy, case: str, example: Example, evaluator: Evaluator
) -> tuple[bool, str]:
    """Return whether a case decides on its example, and what does if it is another."""
    rule = case.rpartition("/")[0]
    try:
        plan, attempt = prepare_example(policy, example, evaluator)
    except ArgumentsError:
        return True, ""  # refused before any rule
    compiled = next((entry for entry in plan.rules if entry.id == rule), None)
    found = compiled.find_case(attempt) if compiled is not None else None
    if attempt.errors:
        return found is not None and found.id == case, f"it failed: {attempt.errors[0].error}"
    if found is None:
        return False, "no case of the rule matches"
    return found.id == case, "" if found.id == case else f"`{found.id}` decides"


def _selector_mismatches(rule: Rule, example: Example, attempt: Attempt) -> Iterator[str]:
    """Yield a message for each selector of a rule that does not match an example's call."""
    if not compile_tool_selector(rule.tools)(attempt.tool, attempt.server):
        yield f"its `tools` does not match {quote_text(example.tool)}"
    for key, names, none in (
        ("servers", (attempt.server,), "write the tool as `mcp__SERVER__TOOL`"),
        ("classes", attempt.classes or ("",), "the call has no class"),
        ("agents", (example.agent,), "set an agent with `{call: …, agent: …}`"),
    ):
        if not any(map(compile_selector(getattr(rule, key)), names)):
            quoted = ", ".join(map(quote_text, names))
            mismatch = f"does not match {quoted}" if names[0] else f"cannot match: {none}"
            yield f"its `{key}` {mismatch}"


def _content_mismatch(rule: Rule, attempt: Attempt) -> str:
    """Return why the selectors on what a call says do not match an example's call."""
    keys = [key for key in CONTENT_FIELDS if getattr(rule, key) is not None]
    for key in keys:
        field = CONTENT_FIELDS[key].removeprefix("call.")
        if not getattr(attempt.activation, field):
            return f"its `{key}` cannot match: `call.{field}` is empty"
    names = " and ".join(f"`{key}`" for key in keys)
    return f"its {names} {'does' if len(keys) == 1 else 'do'} not match"


def _is_true(when: Expression | None, attempt: Attempt) -> bool:
    return when is None or when(attempt.activation) is True


def _arguments(policy: Policy, example: Example) -> dict[str, Any]:
    if example.args is not None:
        return dict(example.args)
    names = policy.classify.shell.arguments or ("command",)
    return {names[0]: example.command}


def _to_nanoseconds(at: str | None) -> int | None:
    """Convert an RFC 3339 time, validated before, to nanoseconds."""
    if at is None:
        return None
    return round(datetime.fromisoformat(at).timestamp()) * 1_000_000_000


def _failure_message(shown: str, example: Example, *, matched: bool) -> str:
    call = example.tool if example.command is None else f"{example.tool}: {example.command}"
    if matched:
        return f"{shown} matches `{call}`, but its examples say `no_match`"
    return f"{shown} does not match `{call}`, but its examples say `match`"
