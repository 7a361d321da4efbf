"""A mark that no call can set.

Its condition needs the mark itself, or another that is never set. A rule with `unless: mark.…` then
refuses every call, and one with `when: mark.…` none. If the program sets it with `session.mark`,
say so: `set: host`.

Avoid:

    marks:
      tested: {set: {commands: [pytest], when: outcome.ok && mark.reviewed}}
      reviewed: {set: {tools: [review], when: mark.tested}}

Prefer:

    marks:
      tested: {set: {commands: [pytest], when: outcome.ok}}
      reviewed: {set: {tools: [review], when: outcome.ok && mark.tested}}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.compiler.build.entry_paths import mark_events
from policyguard.engines.yaml_tree import Path
from policyguard.lint.analysis.satisfiability import Conjunction, Predicate, is_unsatisfiable
from policyguard.lint.rule import Finding, LintContext


def check(context: LintContext) -> Iterator[Finding]:
    """Report marks whose conditions need marks that are never set."""
    marks = {mark.id: mark for mark in context.policy.marks}
    unset = {name for name, mark in marks.items() if mark.set != "host"}
    settable = {""}
    while settable:
        needed: Conjunction = {
            f"mark.{name}": (Predicate("among", (False,)),)
            for name in unset
            if not marks[name].is_keyed
        }
        settable = {
            mark.id
            for mark, kind, _, path in mark_events(context.policy)
            if kind == "set" and mark.id in unset and _may_match(context, path, needed)
        }
        unset -= settable
    for name in sorted(unset):
        if _is_reported(context, name):
            continue
        span = context.merged.span_of(("marks", name), key=True)
        message = f"no call can set the mark `{name}`: its condition needs a mark that is never set"
        yield Finding(span, message, "if the program sets it, write `set: host`")


def _may_match(context: LintContext, path: Path, assumptions: Conjunction) -> bool:
    trees = [
        (tree, holds)
        for key, holds in (("when", True), ("unless", False))
        if (tree := context.cel_trees.get((*path, key))) is not None
    ]
    return not (trees and is_unsatisfiable(*trees, assumptions=assumptions))


def _is_reported(context: LintContext, name: str) -> bool:
    """Whether the conditions alone say so, which `constant-condition` reports."""
    return not any(
        _may_match(context, path, {})
        for mark, kind, _, path in mark_events(context.policy)
        if kind == "set" and mark.id == name
    )
