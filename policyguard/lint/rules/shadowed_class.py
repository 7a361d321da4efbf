"""A class that is never the main class of its calls, because an earlier entry takes them all.

A call has every class whose entry matches it. The first is its main class, by which limits by class
and `call.class` go. An earlier entry takes all calls of this one if it has the same words, tools or
condition; then what is meant for this class as the main one never applies. The earlier entry may be
yours and the later one inherited.

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

from policyguard.compiler.build.entry_paths import learn_sections
from policyguard.compiler.build.expressions import reads_field
from policyguard.compiler.build.selectors import compile_glob, split_words
from policyguard.engines.yaml_tree import Path
from policyguard.lint.analysis.references import constant_texts, is_glob
from policyguard.lint.analysis.satisfiability import value_name
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.diagnostic import quote_text
from policyguard.model.policy import ClassEntry

_MAX_EARLIER = 500
"""Earlier entries to compare an entry with."""


def check(context: LintContext) -> Iterator[Finding]:
    """Report entries of `classify.classes` whose calls an earlier entry takes."""
    classes = context.policy.classify.classes
    conditions = [_condition(context, index) for index in range(len(classes))]
    by_main_class = _find_losses(context)
    taken: dict[int, dict[str, None]] = {}
    for index, entry in enumerate(classes):
        for other_index, other in islice(enumerate(classes), max(0, index - _MAX_EARLIER), index):
            same_condition = conditions[other_index] in ("", conditions[index])
            if same_condition and _shadows(other, entry):
                if context.owns(_path(index)):
                    yield from _report(context, index, other, by_main_class.get(entry.class_))
                elif other.class_ != entry.class_ and entry.class_ in by_main_class:
                    taken.setdefault(other_index, {})[entry.class_] = None
                break
    for index, names in taken.items():
        lost = ", ".join(dict.fromkeys(use for name in names for use in by_main_class[name]))
        quoted = ", ".join(map(quote_text, names))
        message = f"calls of the inherited {quoted} have this as their main class; lost: {lost}"
        hint = "match fewer calls, or define for this class what is lost"
        yield Finding(context.merged.span_of(_path(index)), message, hint)


def _path(index: int) -> Path:
    return ("classify", "classes", index, "class")


def _report(
    context: LintContext, index: int, other: ClassEntry, losses: list[str] | None
) -> Iterator[Finding]:
    """Report an own entry that another shadows, if anything is lost by that."""
    if other.class_ == context.policy.classify.classes[index].class_:
        message = "this entry has no effect: an earlier one of its class matches all its calls"
        yield Finding(context.merged.span_of(_path(index)), message)
    elif losses:
        message = f"never a main class: `{other.class_}` matches all its calls first; lost: "
        hint = "move this entry before it"
        yield Finding(context.merged.span_of(_path(index)), message + ", ".join(losses), hint)


def _find_losses(context: LintContext) -> dict[str, list[str]]:
    """Return what a policy defines for each class as the main class of a call."""
    found: dict[str, dict[str, None]] = {}
    policy = context.policy
    for level in policy.limits:
        group, _, name = level.partition(":")
        if group == "classes":
            found.setdefault(name, {})[f"`limits.classes.{name}`"] = None
    for learn, path in learn_sections(policy):
        for name in learn.except_ or ():
            found.setdefault(name, {})[f"`{path[0]}: {{except: [{name}]}}`"] = None
    for path, tree in context.cel_trees.items():
        reads = context.expressions.reads(*path)
        if not reads_field(reads, "call.class"):
            continue
        names = constant_texts(tree)
        names |= {
            str(item)
            for list_name, items in policy.lists.items()
            if reads_field(reads, f"lists.{list_name}")
            for item in items
        }
        for name in names & {entry.class_ for entry in policy.classify.classes}:
            where = ".".join(str(part) for part in path if not isinstance(part, int))
            found.setdefault(name, {})[f"`call.class` in `{where}`"] = None
    return {name: list(uses) for name, uses in found.items()}


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
