"""A class that no call is ever given, because an earlier entry takes them all.

Classes are read first-match, and what stands before decides by itself: `words` of a tool's name
that an earlier entry has too, tools that it names, or a condition that is the same.

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
from policyguard.lint.analysis.satisfiability import value_name
from policyguard.lint.context import LintContext
from policyguard.lint.rule import Finding
from policyguard.model.policy import ClassEntry

_LOOKED_BACK = 500
"""Entries before one that are looked at."""


def check(subject: LintContext) -> Iterator[Finding]:
    """Entries of `classify.classes` that an earlier one leaves no call."""
    classes = subject.policy.classify.classes
    conditions = [_condition(subject, place) for place in range(len(classes))]
    for place, entry in enumerate(classes):
        for before, other in islice(enumerate(classes), max(0, place - _LOOKED_BACK), place):
            asks_the_same = conditions[before] in ("", conditions[place])
            if asks_the_same and _takes(other, entry):
                which = f"`{other.class_}`" if other.class_ != entry.class_ else "an earlier entry"
                message = f"no call is ever of this class: {which} takes all that it would"
                path = ("classify", "classes", place)
                hint = "put this entry before that one" if other.class_ != entry.class_ else None
                yield Finding(subject.merged.span_of((*path, "class")), message, hint)
                break


def _condition(subject: LintContext, place: int) -> str:
    tree = subject.cel_trees.get(("classify", "classes", place, "when"))
    return value_name(tree) if tree is not None else ""


def _takes(first: ClassEntry, entry: ClassEntry) -> bool:
    """Whether each tool's name that fits `entry` fits `first`; their conditions aside."""
    if first.commands is not None or (entry.words is None and entry.tools is None):
        return first.commands is None and first.words is None and first.tools is None
    return _all_words(first, entry) and _all_tools(first, entry)


def _all_words(first: ClassEntry, entry: ClassEntry) -> bool:
    """Whether all names that fit `entry` have one of the words of `first`."""
    if first.words is None:
        return True
    wanted = {word.casefold() for word in first.words}
    if entry.words is not None and {word.casefold() for word in entry.words} <= wanted:
        return True
    tools = entry.tools or ()
    return bool(tools) and all(
        not _is_glob(tool) and not wanted.isdisjoint(split_words(tool)) for tool in tools
    )


def _all_tools(first: ClassEntry, entry: ClassEntry) -> bool:
    """Whether all names that fit `entry` are among the tools of `first`."""
    if first.tools is None or "*" in first.tools:
        return True
    matches = [compile_glob(tool) for tool in first.tools]
    return bool(entry.tools) and all(
        tool in first.tools or (not _is_glob(tool) and any(fits(tool) for fits in matches))
        for tool in entry.tools or ()
    )


def _is_glob(tool: str) -> bool:
    return "*" in tool or "?" in tool
