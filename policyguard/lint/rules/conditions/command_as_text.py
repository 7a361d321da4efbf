"""A rule, budget or class that compares a shell command as text.

To a shell, `rm -fr x`, `rm -r -f x`, `'rm' -rf x`, `/bin/rm -rf x` and `sh -c "rm -rf x"` are the
same command, but a text comparison finds only one of them. An exemption is worse: a command that
starts with `git log` may continue with `; curl … | sh`.

Such a rule catches accidents, not intent. The `commands` selector, and `call.command.runs('…')`,
read a command as a shell does.

Avoid:

    no-force: {tools: [bash], when: call.command.contains('git push --force')}

Prefer:

    no-force: {tools: [bash], commands: [git push --force|-f]}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.cel.syntax.ast import Binary, Call, Constant, Expr, iter_children
from policyguard.compiler.build.entry_paths import call_entries
from policyguard.engines.yaml_tree import Path
from policyguard.lint.analysis.satisfiability import value_name
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.effect import Effect

_TEXT_FUNCTIONS = frozenset({"matches", "contains", "startsWith", "endsWith", "indexOf", "split"})


def check(context: LintContext) -> Iterator[Finding]:
    """Report conditions of refusing entries, and of their classes, that look for such text."""
    shell = context.policy.classify.shell.arguments
    commands = {"call.command", *(f"call.args.{argument}" for argument in shell)}
    for path in _condition_paths(context):
        tree = context.cel_trees.get(path)
        found = next(_text_comparisons(tree, commands), None) if tree is not None else None
        if found is None:
            continue
        consequence = "; the command can be written in other ways"
        if path[-1] == "unless":
            consequence = ": anything after the match is exempt too"
        message = f"this compares a shell command as text{consequence}"
        yield Finding(context.subspan(path, found.span), message, _hint(path))


def _condition_paths(context: LintContext) -> Iterator[Path]:
    """Yield the paths of conditions that decide whether a call is refused."""
    policy = context.policy
    selected: set[str] = set()
    for path, entry in call_entries(policy):
        if entry.effect >= Effect.ASK or path[-2] == "cases":
            yield *path, "when"
            yield *path, "unless"
            if entry.classes is not None:
                selected.update(entry.classes.items)
    for index, one in enumerate(policy.classify.classes):
        if one.class_ in selected:
            yield "classify", "classes", index, "when"


def _hint(path: Path) -> str:
    if path[-1] == "unless":
        return "use `call.command.only_runs([…])`, which reads the command as a shell does"
    return "use `commands: [program word… -flag…]`, which reads the command as a shell does"


def _text_comparisons(node: Expr, commands: set[str]) -> Iterator[Expr]:
    """Yield the parts of a condition that compare a command with text or search it."""
    match node:
        case Call(receiver=receiver, name=function) if receiver is not None:
            if function in _TEXT_FUNCTIONS and value_name(receiver) in commands:
                yield node
        case Binary(operator="==" | "!=" | "in", left=left, right=right):
            if value_name(left) in commands and not _is_empty(right):
                yield node
    for child in iter_children(node):
        yield from _text_comparisons(child, commands)


def _is_empty(node: Expr) -> bool:
    return isinstance(node, Constant) and node.value == ""
