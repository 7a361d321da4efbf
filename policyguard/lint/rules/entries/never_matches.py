"""A rule or budget that no call can match.

All selectors of an entry must match. No call is left if they exclude each other, if `when`
requires something the selectors rule out, or if `unless` exempts everything that `when` covers.

Avoid:

    no-reading: {tools: [read_file], classes: [delete]}        # no entry makes read_file a delete
    no-force: {tools: [git_push], when: call.tool == 'git_force_push'}

Prefer a single selector:

    no-force: {tools: [git_force_push]}
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from policyguard.compiler.build import tag_types
from policyguard.compiler.build.entry_paths import selective_entries
from policyguard.compiler.build.selectors.selector import (
    compile_own_name_selector,
    compile_selector,
)
from policyguard.engines.yaml_tree import Path
from policyguard.lint.analysis.references import is_glob
from policyguard.lint.analysis.satisfiability import Conjunction, Predicate, is_unsatisfiable
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.diagnostic import quote_text
from policyguard.model.entry import SelectiveEntry
from policyguard.model.tool_name import parse_tool_name


def check(context: LintContext) -> Iterator[Finding]:
    """Report entries whose selectors exclude each other."""
    for path, entry in selective_entries(context.policy):
        yield from _check_entry(context, path, entry)


def _check_entry(context: LintContext, path: Path, entry: SelectiveEntry) -> Iterator[Finding]:
    when = context.cel_trees.get((*path, "when"))
    unless = context.cel_trees.get((*path, "unless"))
    conditions = [(node, holds) for node, holds in ((when, True), (unless, False)) if node]
    if not conditions and (entry.tools is None or entry.classes is None):
        return
    main_classes, classes = _possible_classes(context, entry)
    if not any(map(compile_selector(entry.classes), classes)):
        if entry.tools is not None and entry.classes is not None:
            tools = ", ".join(map(quote_text, entry.tools.items))
            message = f"no call of {tools} has one of these classes, so the entry never matches"
            yield Finding(context.merged.span_of((*path, "classes")), message)
        return
    if not conditions or any(is_unsatisfiable(condition) for condition in conditions):
        return  # reported by constant-condition
    assumptions = _implied(context, entry, main_classes)
    if when is not None and is_unsatisfiable((when, True), assumptions=assumptions):
        message = "`when` is false for every call this entry selects"
        yield Finding(context.merged.span_of((*path, "when")), message)
    elif unless is not None and is_unsatisfiable((unless, False), assumptions=assumptions):
        message = "`unless` exempts every call this entry selects"
        yield Finding(context.merged.span_of((*path, "unless")), message)
    elif is_unsatisfiable(*conditions, assumptions=assumptions):
        message = "`unless` exempts every call that `when` covers"
        yield Finding(context.merged.span_of((*path, "unless")), message)


def _implied(context: LintContext, entry: SelectiveEntry, classes: frozenset[str]) -> Conjunction:
    """Return what the selectors and tag types imply for a call that the entry matches."""
    # A call may match by another class than its main one.
    assumptions: Conjunction = {"call.class": (Predicate("among", tuple(sorted(classes))),)}
    for field, selector, compile_ in (
        ("call.tool", entry.tools, compile_own_name_selector),
        ("call.agent", entry.agents, compile_selector),
    ):
        if selector is not None:
            assumptions[field] = (Predicate("where", compile_(selector)),)
    for name, tag in context.policy.tags.items():
        if tag.one_of:
            values = tuple(tag_types.convert_tag(value, tag) for value in tag.one_of)
            assumptions[f"tags.{name}"] = (Predicate("among", values),)
    return assumptions


def _possible_classes(
    context: LintContext, entry: SelectiveEntry
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the main classes, and all classes, that calls of the entry's tools can have."""
    tools = entry.tools
    if tools is None or tools.outside or any(map(is_glob, tools.items)):
        known = frozenset(("", *(entry.class_ for entry in context.policy.classify.classes)))
        return known, known
    possible = [
        classes or ("",)
        for tool, server, _ in map(parse_tool_name, tools.items)
        for classes in context.evaluator.candidates(tool, server, "").extremes()
    ]
    return frozenset(classes[0] for classes in possible), frozenset(chain(*possible))
