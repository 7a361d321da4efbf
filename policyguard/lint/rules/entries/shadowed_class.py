"""A class that is never the main class of its calls, because an earlier entry takes them all.

A call has every class whose entry matches it. The first is its main class, by which limits by class
and `call.class` go. An earlier entry takes all calls of this one if it has the same words, tools or
condition; then what is meant for this class as the main one never applies. The earlier entry may be
yours and the later one inherited. Then it is also reported if it takes only some calls, such as
those for which its `when` holds, and a limit, `ban: class`, `except` or `call.class` in a file of
yours depends on the inherited class.

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

from policyguard.compiler.build.selectors.selector import compile_glob, list_words
from policyguard.compiler.inputs import PACK_PREFIX
from policyguard.engines.yaml_tree import Path
from policyguard.lint.analysis.class_uses import (
    ClassUse,
    ClassUses,
    find_lost,
    find_uses,
    join_uses,
    may_overlap,
)
from policyguard.lint.analysis.references import is_glob
from policyguard.lint.analysis.satisfiability import value_name
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.diagnostic import quote_text
from policyguard.model.policy import ClassEntry

_MAX_EARLIER = 500
"""Earlier entries to compare an entry with."""
_HINT = "match fewer calls, or define for this class what is lost"


def check(context: LintContext) -> Iterator[Finding]:
    """Report entries of `classify.classes` whose calls an earlier entry takes."""
    classes = context.policy.classify.classes
    conditions = [_condition(context, index) for index in range(len(classes))]
    uses = find_uses(context)
    shadowed: dict[int, int] = {}
    for index, entry in enumerate(classes):
        for other_index, other in islice(enumerate(classes), max(0, index - _MAX_EARLIER), index):
            same_condition = conditions[other_index] in ("", conditions[index])
            if same_condition and _shadows(other, entry):
                shadowed[index] = other_index
                break
    taken: dict[int, list[tuple[str, ClassUse]]] = {}
    for index, other_index in shadowed.items():
        name, other_name = classes[index].class_, classes[other_index].class_
        lost = find_lost(uses, name, other_name)
        if context.owns(_path(index)):
            yield from _report(context, index, other_name, lost)
        elif lost:
            taken.setdefault(other_index, []).extend((name, use) for use in lost)
    for index, found in taken.items():
        message = f"calls of the inherited {_quote_names(found)} have this as their main class; "
        yield _finding(context, index, message, found)
    for index in range(len(classes)):
        if index not in shadowed and context.owns(_path(index)):
            yield from _check_part(context, uses, index, shadowed)


def _check_part(
    context: LintContext, uses: ClassUses, index: int, shadowed: dict[int, int]
) -> Iterator[Finding]:
    """Report an own entry that takes some calls of an inherited class, and with them its uses.

    Uses in packs are left out: a class of one's own is how to tune them.
    """
    first, *others = context.policy.classify.classes[index : index + _MAX_EARLIER]
    names = {
        entry.class_: None
        for other_index, entry in enumerate(others, index + 1)
        if other_index not in shadowed
        and not context.owns(_path(other_index))
        and may_overlap(first, entry)
    }
    found = [
        (name, use)
        for name in names
        for use in find_lost(uses, name, first.class_)
        if not context.merged.origin(use.path).startswith(PACK_PREFIX)
    ]
    if found:
        quoted = _quote_names(found)
        message = f"for calls that match, this is the main class before the inherited {quoted}; "
        yield _finding(context, index, message, found)


def _finding(
    context: LintContext, index: int, message: str, lost: list[tuple[str, ClassUse]]
) -> Finding:
    message += "lost: " + join_uses(use for _, use in lost)
    return Finding(context.merged.span_of(_path(index)), message, _HINT)


def _quote_names(lost: list[tuple[str, ClassUse]]) -> str:
    return ", ".join(quote_text(name) for name in dict.fromkeys(name for name, _ in lost))


def _path(index: int) -> Path:
    return ("classify", "classes", index, "class")


def _report(
    context: LintContext, index: int, other: str, lost: list[ClassUse]
) -> Iterator[Finding]:
    """Report an own entry that another shadows, if anything is lost by that."""
    if other == context.policy.classify.classes[index].class_:
        message = "this entry has no effect: an earlier one of its class matches all its calls"
        yield Finding(context.merged.span_of(_path(index)), message)
    elif lost:
        message = f"never a main class: `{other}` matches all its calls first; lost: "
        hint = "move this entry before it"
        yield Finding(context.merged.span_of(_path(index)), message + join_uses(lost), hint)


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
    is_comparable = entry.words is not None and (entry.leading or not first.leading)
    if is_comparable and {word.casefold() for word in entry.words or ()} <= words:
        return True
    tools = entry.tools or ()
    limit = 1 if first.leading else None
    return bool(tools) and all(
        not is_glob(tool) and not words.isdisjoint(list_words(tool)[:limit]) for tool in tools
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
