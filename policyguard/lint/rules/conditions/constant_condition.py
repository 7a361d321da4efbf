"""A condition, or a part of one, that is always or never true.

`x != 'a' || x != 'b'` is true for every `x`, `x > 10 && x < 5` for none. If a rule's `when` is
never true, or its `unless` always is, the rule refuses only calls whose condition cannot be
evaluated. A class with a condition that is never true is never assigned. Parts of dates count from
0: `getHours()` is 0 to 23, `getMonth()` 0 to 11, `getDayOfWeek()` 0 (Sunday) to 6; only `getDate()`
begins at 1.

Avoid:

    when: call.tool != 'read_file' || call.tool != 'list_files'

Prefer:

    when: call.tool != 'read_file' && call.tool != 'list_files'
    when: "!(call.tool in ['read_file', 'list_files'])"
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.cel.syntax.ast import Call, Expr, Logic, iter_children
from policyguard.engines.yaml_tree import Path
from policyguard.lint.analysis.satisfiability import DATE_PARTS, HAS_TOOL, is_unsatisfiable
from policyguard.lint.rule import Finding, LintContext

_SETTINGS = frozenset({"state_changing", "failed_when"})
"""Keys where a constant is a legitimate setting."""


def check(context: LintContext) -> Iterator[Finding]:
    """Report constant conditions, or else their constant parts."""
    for path, tree in context.cel_trees.items():
        program = context.expressions.program(*path)
        is_setting = path[-1] in _SETTINGS
        if program is not None and program.type.kind == "bool" and not is_setting:
            yield from _find_constant(context, path, tree, whole=True)


def _find_constant(
    context: LintContext, path: Path, node: Expr, *, whole: bool
) -> Iterator[Finding]:
    if is_unsatisfiable((node, True)):
        always = False
    elif is_unsatisfiable((node, False), assumptions=HAS_TOOL):
        always = True
    else:
        if isinstance(node, Logic):
            for operand in node.operands:
                yield from _find_constant(context, path, operand, whole=False)
        return
    part = "this condition" if whole else "this part of the condition"
    message = f"{part} is {'always' if always else 'never'} true"
    help_text = _date_hint(node) or _hint(path, always, whole)
    yield Finding(context.subspan(path, node.span), message, help_text)


def _date_hint(node: Expr) -> str | None:
    """Say which numbers a part of a date can be, if the condition reads one."""
    if isinstance(node, Call) and node.name in DATE_PARTS:
        lowest, highest = DATE_PARTS[node.name]
        first = {"getMonth": " (January)", "getDayOfWeek": " (Sunday)"}.get(node.name, "")
        return f"`{node.name}()` is {lowest}{first} to {highest}"
    return next((hint for child in iter_children(node) if (hint := _date_hint(child))), None)


def _hint(path: Path, always: bool, whole: bool) -> str | None:
    if not whole:
        return "remove it" if always else None
    if path[0] != "rules":
        return "remove `when` to cover all calls" if always else None
    if path[-1] == "unless":
        return "this exempts every call" if always else "this exempts no call"
    return "to cover all calls, write `tools: ['*']`" if always else None
