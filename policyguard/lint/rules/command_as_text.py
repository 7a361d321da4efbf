"""A rule that reads a shell command as text.

A shell reads `rm -fr x`, `rm  -r -f x`, `'rm' -rf x`, `/bin/rm -rf x` and `sh -c "rm -rf x"` as
one and the same; a text that is looked for is found in one of them. As an exemption it is worse:
what begins with `git log` may go on with `; curl … | sh`.

Such a rule is good advice and no guard. The key `commands` reads a command as a shell does.

Avoid:

    no-force: {tools: [bash], when: call.command.contains('git push --force')}

Prefer (with step 4 of the language):

    no-force: {tools: [bash], commands: [git push --force|-f]}
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.cel.syntax.tree import Binary, Call, Constant, Expr, iter_children
from policyguard.compiler.load import language_version
from policyguard.lint.analysis.satisfiability import value_name
from policyguard.lint.context import LintContext
from policyguard.lint.rule import Finding
from policyguard.model.effect import Effect

_READING = frozenset({"matches", "contains", "startsWith", "endsWith", "indexOf", "split"})
_COMMANDS_COME = 4
"""The step of the language with which `commands` come to life."""


def check(subject: LintContext) -> Iterator[Finding]:
    """Conditions of rules that refuse, and look for a text in a command."""
    shell = subject.policy.classify.shell.arguments
    commands = {"call.command", *(f"call.args.{argument}" for argument in shell)}
    for rule in subject.policy.rules:
        for key in ("when", "unless"):
            path = ("rules", rule.id, key)
            tree = subject.cel_trees.get(path)
            found = next(_reading(tree, commands), None) if tree is not None else None
            if found is None or rule.effect < Effect.ASK:
                continue
            message = "a shell command is read as text here, and can be written in other ways"
            if key == "unless":
                message = "a shell command is read as text here: what else is in it is exempt too"
            yield Finding(subject.subspan(path, found.span), message, _hint())


def _hint() -> str:
    if language_version.SUPPORTED_STEP >= _COMMANDS_COME:
        return "name the programs and options in `commands`, which reads as a shell does"
    return f"`commands` will read it as a shell does (step {_COMMANDS_COME}); this is advice only"


def _reading(node: Expr, commands: set[str]) -> Iterator[Expr]:
    """The parts of a condition that compare a command with a text, or look into it."""
    match node:
        case Call(receiver=receiver, name=function) if receiver is not None:
            if function in _READING and value_name(receiver) in commands:
                yield node
        case Binary(operator="==" | "!=" | "in", left=left, right=right):
            if value_name(left) in commands and not _is_empty(right):
                yield node
    for child in iter_children(node):
        yield from _reading(child, commands)


def _is_empty(node: Expr) -> bool:
    return isinstance(node, Constant) and node.value == ""
