"""A message with a placeholder whose value is absent.

The model sees `(absent)` in place of the value, which tells it nothing.

Avoid:

    named-only:
      tools: [transfer]
      unless: has(call.args.reference)
      message: "{call.args.reference} is no reference"

Prefer:

    named-only:
      tools: [transfer]
      unless: has(call.args.reference)
      message: a transfer needs a `reference`
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from policyguard.cel.syntax.ast import Has, Identifier, Select, TextSpan
from policyguard.compiler.build.messages import Placeholder, parse_message
from policyguard.engines.yaml_tree import Path, ScalarNode
from policyguard.evaluator.activation import Activation
from policyguard.lint.analysis.sample_calls import example_activation
from policyguard.lint.analysis.satisfiability import (
    Conjunction,
    Predicate,
    is_unsatisfiable,
    value_name,
)
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.policy import Rule

_NO_SPAN = TextSpan(0, 0)


def check(context: LintContext) -> Iterator[Finding]:
    """Report placeholders that are absent in every example, or whenever the rule matches."""
    for rule in context.policy.rules:
        for key, text in (("message", rule.message), ("instead", rule.instead)):
            for placeholder in parse_message(text or "").placeholders:
                reason = _absence_reason(context, rule, placeholder.name)
                if reason is not None:
                    yield _report(context, ("rules", rule.id, key), placeholder, reason)
    for budget in context.policy.budgets:
        for key, text in (("message", budget.message), ("instead", budget.instead)):
            for placeholder in parse_message(text or "").placeholders:
                if placeholder.name == "retry_after" and budget.within is None:
                    reason = "only a budget with `within` frees up again"
                    yield _report(context, ("budgets", budget.id, key), placeholder, reason)


def _report(context: LintContext, path: Path, placeholder: Placeholder, reason: str) -> Finding:
    node = context.merged.node(path)
    span = context.merged.span_of(path)
    if isinstance(node, ScalarNode):
        span = node.subspan(placeholder.start, placeholder.end)
    message = f"`{{{placeholder.name}}}` is absent here: {reason}"
    return Finding(span, message, "the model would see `(absent)`; remove the placeholder")


def _absence_reason(context: LintContext, rule: Rule, field: str) -> str | None:
    """Return why a value is absent when the rule matches, or None if it may be present."""
    root, *fields = field.split(".")
    if root != "call" or len(fields) < 2 or fields[0] != "args":
        return None
    args = Select(_NO_SPAN, Identifier(_NO_SPAN, "call"), "args", _NO_SPAN)
    has_argument = Has(_NO_SPAN, Select(_NO_SPAN, args, fields[1], _NO_SPAN))
    assumptions: Conjunction = {value_name(has_argument): (Predicate("among", (True,)),)}
    for key, holds in (("when", True), ("unless", False)):
        tree = context.cel_trees.get(("rules", rule.id, key))
        if tree is not None and is_unsatisfiable((tree, holds), assumptions=assumptions):
            return (
                f"`{key}` matches calls without it" if holds else "`unless` exempts calls with it"
            )
    activations = [example_activation(context, example) for example in rule.examples.match]
    if activations and all(
        activation is not None and _is_absent(activation, fields) for activation in activations
    ):
        return f"no example of `{rule.id}` has it"
    return None


def _is_absent(activation: Activation, fields: list[str]) -> bool:
    value: Any = activation.call
    for part in fields:
        if not isinstance(value, Mapping) or part not in value:
            return True
        value = value[part]
    return False
