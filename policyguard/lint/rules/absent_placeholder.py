"""A message that names a value that is not there.

A placeholder whose value is absent is shown as `(absent)`: the model is told nothing by it.

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

from policyguard.cel.syntax.tree import Has, Identifier, Select, TextSpan
from policyguard.compiler.build.message_parsing import Placeholder, parse_message
from policyguard.engines.yaml_tree import Path, ScalarNode
from policyguard.evaluator.activation import Activation
from policyguard.lint.analysis.sample_calls import example_activation
from policyguard.lint.analysis.satisfiability import (
    Conjunction,
    Predicate,
    is_unsatisfiable,
    value_name,
)
from policyguard.lint.context import LintContext
from policyguard.lint.rule import Finding
from policyguard.model.policy import Rule

_AT = TextSpan(0, 0)


def check(subject: LintContext) -> Iterator[Finding]:
    """Placeholders that are absent in an example, or whenever the rule matches."""
    for rule in subject.policy.rules:
        for key, text in (("message", rule.message), ("instead", rule.instead)):
            for placeholder in parse_message(text or "").placeholders:
                why = _why(subject, rule, placeholder.name)
                if why is not None:
                    yield _finding(subject, ("rules", rule.id, key), placeholder, why)
    for budget in subject.policy.budgets:
        for key, text in (("message", budget.message), ("instead", budget.instead)):
            for placeholder in parse_message(text or "").placeholders:
                if placeholder.name == "retry_after" and budget.within is None:
                    why = "only a budget with `within` frees again"
                    yield _finding(subject, ("budgets", budget.id, key), placeholder, why)


def _finding(subject: LintContext, path: Path, placeholder: Placeholder, why: str) -> Finding:
    node = subject.merged.node(path)
    span = subject.merged.span_of(path)
    if isinstance(node, ScalarNode):
        span = node.subspan(placeholder.start, placeholder.end)
    message = f"`{{{placeholder.name}}}` is absent here: {why}"
    return Finding(span, message, "the model would read `(absent)`; take it out of the message")


def _why(subject: LintContext, rule: Rule, field: str) -> str | None:
    """Why a value is not there when the rule matches; None where it may be."""
    root, *fields = field.split(".")
    if root != "call" or len(fields) < 2 or fields[0] != "args":
        return None
    asked = Has(_AT, Select(_AT, Select(_AT, Identifier(_AT, "call"), "args", _AT), fields[1], _AT))
    given: Conjunction = {value_name(asked): (Predicate("among", (True,)),)}
    for key, holds in (("when", True), ("unless", False)):
        tree = subject.cel_trees.get(("rules", rule.id, key))
        if tree is not None and is_unsatisfiable((tree, holds), assumptions=given):
            return (
                f"`{key}` matches calls without it" if holds else "`unless` exempts calls with it"
            )
    views = [example_activation(subject, example) for example in rule.examples.match]
    if views and all(view is not None and _is_absent(view, fields) for view in views):
        return f"no example that `{rule.id}` matches has one"
    return None


def _is_absent(view: Activation, fields: list[str]) -> bool:
    value: Any = view.call
    for part in fields:
        if not isinstance(value, Mapping) or part not in value:
            return True
        value = value[part]
    return False
