"""A class that no call can get, because an earlier entry takes all its calls.

The first matching entry assigns the class. An earlier entry takes all calls of this one if it has
the same words, tools or condition.

Avoid:

    classes:
      - {class: file_edit, words: [write, edit]}
      - {class: report, tools: [write_report]}

Prefer the narrower one first:

    classes:
      - {class: report, tools: [write_report]}
      - {class: file_edit, words: [write, edit]}
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from policyguard.compiler.build.selectors import compile_glob, split_words
from policyguard.lint.analysis.references import is_glob
from policyguard.lint.analysis.satisfiability import value_name
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.policy import ClassEntry

_MAX_EARLIER = 500
"""Earlier entries to compare an entry with."""


def check(context: LintContext) -> Iterator[Finding]:
    """Report entries of `classify.classes` whose calls an earlier entry takes."""
    classes = context.policy.classify.classes
    conditions = [_condition(context, index) for index in range(len(classes))]
    for index, entry in enumerate(classes):
        for other_index, other in islice(enumerate(classes), max(0, index - _MAX_EARLIER), index):
            same_condition = conditions[other_index] in ("", conditions[index])
            if same_condition and _shadows(other, entry):
                is_same = other.class_ == entry.class_
                shadowing = "an earlier entry" if is_same else f"`{other.class_}`"
                hint = None if is_same else "move this entry before it"
                message = f"no call can get this class: {shadowing} matches all its calls first"
                path = ("classify", "classes", index, "class")
                yield Finding(context.merged.span_of(path), message, hint)
                break


def _condition(context: LintContext, index: int) -> str:
    tree = context.cel_trees.get(("classify", "classes", index, "when"))
    return value_name(tree) if tree is not None else ""


def _shadows(first: ClassEntry, entry: ClassEntry) -> bool:
    """Return whether `first` matches each tool name that `entry` matches, conditions aside."""
    if first.commands is not None or (entry.words is None and entry.tools is None):
        return first.commands is None and first.words is None and first.tools is None
    return _covers_words(first, entry) and _covers_tools(first, entry)


def _covers_words(first: ClassEntry, entry: ClassEntry) -> bool:
    """Return whether each name that `entry` matches contains a word of `first`."""
    if first.words is None:
        return True
    words = {word.casefold() for word in first.words}
    if entry.words is not None and {word.casefold() for word in entry.words} <= words:
        return True
    tools = entry.tools or ()
    return bool(tools) and all(
        not is_glob(tool) and not words.isdisjoint(split_words(tool)) for tool in tools
    )


def _covers_tools(first: ClassEntry, entry: ClassEntry) -> bool:
    """Return whether each name that `entry` matches is one of the tools of `first`."""
    if first.tools is None or "*" in first.tools:
        return True
    globs = [compile_glob(tool) for tool in first.tools]
    return bool(entry.tools) and all(
        tool in first.tools or (not is_glob(tool) and any(matches(tool) for matches in globs))
        for tool in entry.tools or ()
    )
