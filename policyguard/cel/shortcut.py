"""Decide simple conditions without compiling them.

Most processes evaluate few expressions, and each once: whether a call has an argument, whether its
command only reads. To compile the first takes longer than the rest of a check, mostly to import
what compiles. So the first evaluation of an expression that comes from the cache is tried here.

A shortcut is plain data, made from the tree once and cached with it: nested lists, and None for
what only the compiled expression decides. It is not trusted: whatever it contains, `decide` calls
no function and reads no variable but those it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from policyguard.cel.syntax.ast import Expr

Shortcut: TypeAlias = list[Any] | None
Tests: TypeAlias = Mapping[str, Callable[..., bool]]
"""Functions of a text, and of further texts: what they have no value for raises `ValueError`."""


def find_shortcut(tree: Expr) -> Shortcut:
    """Return the shortcut of an expression; None if it has none."""
    from policyguard.cel.syntax import ast  # slow import

    match tree:
        case ast.Logic(operator=operator, operands=operands):
            return _require_first([operator, *map(find_shortcut, operands)])
        case ast.Unary(operator="!", operand=operand):
            return _require_first(["!", find_shortcut(operand)])
        case ast.Conditional(condition=condition, then=then, otherwise=otherwise):
            return _require_first(["?", *map(find_shortcut, (condition, then, otherwise))])
        case ast.Has(selection=ast.Select(operand=operand, field=field)):
            return _require_first(["has", _dotted_name(operand), field])
        case ast.Binary(operator="==", left=left, right=right):
            return _of_texts(["in"], left, [right])
        case ast.Binary(operator="in", left=left, right=ast.ListLiteral(items=items)):
            return _of_texts(["in"], left, items)
        case ast.Call(name=name, receiver=receiver, arguments=arguments) if receiver is not None:
            return _of_texts(["call", name], receiver, arguments)
    return _require_first(["is", _dotted_name(tree)])


def decide(shortcut: Shortcut, read: Callable[[str], Any], tests: Tests) -> bool | None:
    """Return the value of the expression; None if only the compiled one tells.

    `read` returns a variable or a field of one by its dotted name. It raises `LookupError` for
    others, and where a field is absent.
    """
    try:
        return _decide(shortcut, read, tests)
    except (LookupError, TypeError, ValueError):
        return None


def _decide(shortcut: Shortcut, read: Callable[[str], Any], tests: Tests) -> bool | None:
    match shortcut:
        case ["&&" | "||" as operator, *parts]:
            decisive = operator == "||"
            for part in parts:  # from left to right, as the compiled expression
                value = _decide(part, read, tests)
                if value is None or value is decisive:
                    return value
            return not decisive
        case ["!", part]:
            value = _decide(part, read, tests)
            return None if value is None else not value
        case ["?", condition, then, otherwise]:
            value = _decide(condition, read, tests)
            return None if value is None else _decide(then if value else otherwise, read, tests)
        case ["is", str(name)]:
            value = read(name)
            return value if value.__class__ is bool else None
        case ["has", str(name), str(field)]:
            value = read(name)
            return field in value if value.__class__ is dict else None
        case ["in", str(name), *texts]:
            value = read(name)
            return value in texts if value.__class__ is str else None
        case ["call", str(test), str(name), *texts]:
            value = read(name)
            return tests[test](value, *texts) if value.__class__ is str else None
    return None


def _require_first(shortcut: list[Any]) -> Shortcut:
    """Return nothing for what cannot even begin."""
    return None if shortcut[1] is None else shortcut


def _of_texts(test: list[Any], subject: Expr, operands: Sequence[Expr]) -> Shortcut:
    """Return a test of a named text against literal ones."""
    from policyguard.cel.syntax.ast import Constant  # slow import

    name = _dotted_name(subject)
    texts = [one.raw_value if isinstance(one, Constant) else None for one in operands]
    is_plain = name is not None and all(isinstance(text, str) for text in texts)
    return [*test, name, *texts] if is_plain else None


def _dotted_name(node: Expr) -> str | None:
    """Return `a.b.c` for the node of these fields; None for anything else."""
    from policyguard.cel.syntax.ast import split_dotted_name  # slow import

    found = split_dotted_name(node)
    if found is None or found[0].absolute:
        return None
    return ".".join((found[0].name, *found[1]))
