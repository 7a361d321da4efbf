"""A rule or budget that no call can match.

All keys of an entry must match: selectors that exclude each other, a `when` that asks for something
else than the selectors, or an `unless` that exempts all that `when` is about, leave no call.

Avoid:

    no-reading: {tools: [read_file], classes: [delete]}        # read_file is a file_read
    no-force: {tools: [git_push], when: call.tool == 'git_force_push'}

Prefer one key that says it:

    no-force: {tools: [git_force_push]}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.build import tag_types
from policyguard.compiler.build.selectors import compile_selector
from policyguard.engines.yaml_tree import Path
from policyguard.lint.analysis.satisfiability import Conjunction, Predicate, is_unsatisfiable
from policyguard.lint.context import LintContext
from policyguard.lint.rule import Finding
from policyguard.model.diagnostic import quote_text
from policyguard.model.entry import SelectiveEntry


def check(subject: LintContext) -> Iterator[Finding]:
    """Entries whose keys exclude each other. What one condition says by itself is not said here."""
    policy = subject.policy
    for section, entries in (("rules", policy.rules), ("budgets", policy.budgets)):
        for entry in entries:
            yield from _entry(subject, (section, entry.id), entry)


def _entry(subject: LintContext, path: Path, entry: SelectiveEntry) -> Iterator[Finding]:
    when = subject.cel_trees.get((*path, "when"))
    unless = subject.cel_trees.get((*path, "unless"))
    conditions = [(node, wanted) for node, wanted in ((when, True), (unless, False)) if node]
    if not conditions and (entry.tools is None or entry.classes is None):
        return
    classes = _classes(subject, entry)
    if not classes:
        if entry.tools is not None and entry.classes is not None:
            tools = ", ".join(map(quote_text, entry.tools.items))
            message = f"no call of {tools} is of these classes: the entry matches nothing"
            yield Finding(subject.merged.span_of((*path, "classes")), message)
        return
    if not conditions or any(is_unsatisfiable(condition) for condition in conditions):
        return  # constant-condition has said it
    given = _given(subject, entry, classes)
    if when is not None and is_unsatisfiable((when, True), assumptions=given):
        message = "no call that this entry selects can meet its `when`"
        yield Finding(subject.merged.span_of((*path, "when")), message)
    elif unless is not None and is_unsatisfiable((unless, False), assumptions=given):
        message = "`unless` exempts every call that this entry selects"
        yield Finding(subject.merged.span_of((*path, "unless")), message)
    elif is_unsatisfiable(*conditions, assumptions=given):
        message = "`unless` exempts every call that `when` is about"
        yield Finding(subject.merged.span_of((*path, "unless")), message)


def _given(subject: LintContext, entry: SelectiveEntry, classes: frozenset[str]) -> Conjunction:
    """What the selectors, and the types of tags, say of a call that the entry may match."""
    given: Conjunction = {"call.class": (Predicate("among", tuple(sorted(classes))),)}
    for field, selector in (("call.tool", entry.tools), ("call.agent", entry.agents)):
        if selector is not None:
            given[field] = (Predicate("where", compile_selector(selector)),)
    for name, tag in subject.policy.tags.items():
        if tag.one_of:
            values = tuple(tag_types.convert_tag(value, tag) for value in tag.one_of)
            given[f"tags.{name}"] = (Predicate("among", values),)
    return given


def _classes(subject: LintContext, entry: SelectiveEntry) -> frozenset[str]:
    """The classes that a call of the entry's tools may have, of those that it selects."""
    known = {"", *(one.class_ for one in subject.policy.classify.classes)}
    tools = entry.tools
    if tools is not None and not tools.outside and not any(map(_is_glob, tools.items)):
        known = set()
        for tool in tools.items:
            options = subject.evaluator.candidates(tool, "").options
            known |= {name for name, _ in options}
            if not options or options[-1][1] is not None:
                known.add("")
    return frozenset(filter(compile_selector(entry.classes), known))


def _is_glob(item: str) -> bool:
    return "*" in item or "?" in item
