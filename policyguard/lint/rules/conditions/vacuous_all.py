"""An exemption by `all` that also exempts calls without any items.

`all` is true of an empty list. So `unless: call.targets.all(…)` exempts a call of which the policy
sees no targets: because it has none, or because they are in arguments that `classify.targets` does
not name.

Avoid:

    tmp-only: {classes: [delete], unless: "call.targets.all(t, t.inside('/tmp'))"}

Prefer:

    tmp-only:
      classes: [delete]
      unless: size(call.targets) > 0 && call.targets.all(t, t.inside('/tmp'))
"""

from __future__ import annotations

from collections.abc import Iterator

from policyguard.cel.syntax.ast import (
    Binary,
    Call,
    Comprehension,
    Conditional,
    Constant,
    Expr,
    Unary,
    iter_children,
)
from policyguard.compiler.build.entry_paths import rule_parts
from policyguard.lint.analysis.satisfiability import value_name
from policyguard.lint.rule import Finding, LintContext
from policyguard.model.effect import Effect

_LISTS = ("call.targets", "call.strings", "call.args.")


def check(context: LintContext) -> Iterator[Finding]:
    """Report `all` over a call's targets, texts or arguments where it exempts the call."""
    for own, rule in rule_parts(context.policy):
        paths = [(*own, key) for key in ("when", "unless")]
        trees = [context.cel_trees.get(path) for path in paths]
        sized = {name for tree in trees if tree is not None for name in _sized(tree)}
        for path, tree in zip(paths, trees, strict=True):
            is_allowed = rule.effect is Effect.ALLOW  # by a case
            if tree is None or (rule.effect < Effect.ASK and not is_allowed):
                continue
            for node in _exempting(tree, exempts=(path[-1] == "unless") is not is_allowed):
                name = value_name(node.source)
                if name not in sized:
                    shown = name.removeprefix("call.")
                    message = f"`all` is true of an empty list: a call without `{shown}` is exempt"
                    hint = f"write `size({name}) > 0 && …`"
                    yield Finding(context.subspan(path, node.span), message, hint)


def _exempting(node: Expr, *, exempts: bool) -> Iterator[Comprehension]:
    """Yield each `all` whose truth makes the rule pass a call."""
    match node:
        case Comprehension(macro="all", source=source) if exempts:
            if value_name(source).startswith(_LISTS):
                yield node
        case Unary(operator="!", operand=operand):
            yield from _exempting(operand, exempts=not exempts)
        case Conditional(then=then, otherwise=otherwise):
            yield from _exempting(then, exempts=exempts)
            yield from _exempting(otherwise, exempts=exempts)
        case Comprehension() | Binary():
            return
        case _:
            for child in iter_children(node):
                yield from _exempting(child, exempts=exempts)


def _sized(node: Expr) -> Iterator[str]:
    """Yield the names of values whose size is read, or that are compared with an empty list."""
    match node:
        case Call(name="size", receiver=receiver, arguments=arguments):
            yield value_name(receiver if receiver is not None else arguments[0])
        case Comprehension(macro="exists" | "exists_one", source=source):
            yield value_name(source)
        case Binary(operator="==" | "!=" | "in", left=left, right=right):
            yield value_name(left)
            if not isinstance(right, Constant):
                yield value_name(right)
    for child in iter_children(node):
        yield from _sized(child)
