"""Calls to try a policy's expressions on: its examples, and one that gives no argument at all."""

from __future__ import annotations

from itertools import islice
from typing import Any

from policyguard.compiler.build.selectors import compile_selector
from policyguard.compiler.check.examples import prepare_example
from policyguard.evaluator.activation import Activation
from policyguard.lint.context import LintContext
from policyguard.model.entry import Example, Selector
from policyguard.model.errors import ArgumentsError

_TIME = "2026-01-01T00:00:00Z"
_MAX_TOOLS = 200
"""Names of tools that are tried until one is of the class that is looked for."""
_UNKNOWN_TOOL = "a_tool_that_no_entry_names"
_TAGS: dict[str, Any] = {
    "string": "",
    "int": 0,
    "double": 0.0,
    "bool": False,
    "list(string)": [],
}


def example_activation(subject: LintContext, example: Example) -> Activation | None:
    """What expressions see of the call of an example; None where it cannot be judged."""
    try:
        return prepare_example(subject.policy, example, subject.evaluator)[1].activation
    except ArgumentsError:
        return None


def argumentless_activation(subject: LintContext, classes: Selector | None) -> Activation | None:
    """What expressions see of a call without arguments, of a tool that no entry names.

    It is of one of `classes`; None where no tool is found whose calls are.
    """
    policy = subject.policy
    tags: dict[str, Any] = {
        name: tag.one_of[0] if tag.one_of else _TAGS.get(tag.type, _TIME)
        for name, tag in policy.tags.items()
        if tag.default is None
    }
    wanted = compile_selector(classes)
    words = (word for entry in policy.classify.classes for word in entry.words or ())
    for tool in (_UNKNOWN_TOOL, *islice(words, _MAX_TOOLS)):
        view = example_activation(subject, Example(tool=tool, args={}, tags=tags, at=_TIME))
        if view is not None and wanted(view.call["class"]):
            return view
    return None
