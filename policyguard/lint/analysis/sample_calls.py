"""Sample calls to evaluate expressions on: examples, and a call without arguments."""

from __future__ import annotations

from itertools import islice
from typing import Any

from policyguard.compiler.build.selectors.selector import compile_class_selector
from policyguard.compiler.check.examples import prepare_example
from policyguard.evaluator.activation import Activation
from policyguard.lint.rule import LintContext
from policyguard.model.entry import Example, Selector
from policyguard.model.errors import ArgumentsError

_TIME = "2026-01-01T00:00:00Z"
_MAX_TOOLS = 200
"""Tool names to try in search of one with a given class."""
_UNKNOWN_TOOL = "a_tool_that_no_entry_names"
_TAGS: dict[str, Any] = {"string": "", "int": 0, "double": 0.0, "bool": False, "list(string)": []}


def example_activation(context: LintContext, example: Example) -> Activation | None:
    """Return the activation of an example's call, or None if its arguments are invalid."""
    try:
        return prepare_example(context.policy, example, context.evaluator)[1].activation
    except ArgumentsError:
        return None


def argumentless_activation(context: LintContext, classes: Selector | None) -> Activation | None:
    """Return the activation of a call without arguments, of a tool that no entry names.

    The call has one of `classes`. Return None if no such tool is found.
    """
    policy = context.policy
    tags: dict[str, Any] = {
        name: tag.one_of[0] if tag.one_of else _TAGS.get(tag.type, _TIME)
        for name, tag in policy.tags.items()
        if tag.default is None
    }
    is_selected = compile_class_selector(classes)
    words = (word for entry in policy.classify.classes for word in entry.words or ())
    for tool in (_UNKNOWN_TOOL, *islice(words, _MAX_TOOLS)):
        activation = example_activation(context, Example(tool=tool, args={}, tags=tags, at=_TIME))
        if activation is not None and is_selected(tuple(activation.attempt.classes)):
            return activation
    return None
