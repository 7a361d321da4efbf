"""A condition, or a part of one, that is always true or never.

`x != 'a' || x != 'b'` is true of any `x`, `x > 10 && x < 5` of none. A rule whose `when` is never
true refuses nothing (but calls for which it cannot be evaluated), and one whose `unless` is always
true neither; a class with such a condition is never given.

Avoid:

    when: call.tool != 'read_file' || call.tool != 'list_files'

Prefer:

    when: call.tool != 'read_file' && call.tool != 'list_files'
    when: "!(call.tool in ['read_file', 'list_files'])"
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.cel.syntax.tree import Expr, Logic
from policyguard.engines.yaml_tree import Path
from policyguard.lint.analysis.satisfiability import is_unsatisfiable
from policyguard.lint.context import LintContext
from policyguard.lint.rule import Finding

_SWITCHES = frozenset({"state_changing", "failed_when"})
"""Keys in which a constant is a setting: no call changes anything, no result is a failure."""


def check(subject: LintContext) -> Iterator[Finding]:
    """Conditions that are constant; else their parts that are."""
    for path, tree in subject.cel_trees.items():
        program = subject.expressions.program(*path)
        is_setting = path[-1] in _SWITCHES
        if program is not None and program.type.kind == "bool" and not is_setting:
            yield from _constant(subject, path, tree, whole=True)


def _constant(subject: LintContext, path: Path, node: Expr, *, whole: bool) -> Iterator[Finding]:
    if is_unsatisfiable((node, True)):
        always = False
    elif is_unsatisfiable((node, False)):
        always = True
    else:
        if isinstance(node, Logic):
            for operand in node.operands:
                yield from _constant(subject, path, operand, whole=False)
        return
    what = "this condition" if whole else "this part of the condition"
    message = f"{what} is {'always' if always else 'never'} true"
    yield Finding(subject.subspan(path, node.span), message, _hint(path, always, whole))


def _hint(path: Path, always: bool, whole: bool) -> str | None:
    if not whole:
        return "it can be taken out" if always else None
    if path[0] != "rules":
        return "take `when` out if it is to hold for all calls" if always else None
    if path[-1] == "unless":
        return "all calls are exempt" if always else "no call is exempt"
    return "if all calls are meant, write `tools: ['*']`" if always else None
