"""`--where`: a condition in CEL over columns, read into a row filter.

date >= "2026-01-01" && agent in ["a", "b"] && !(project == "test")
"""

from __future__ import annotations

from collections.abc import Callable

from policyguard.cel.syntax import ast
from policyguard.cel.syntax.parse import parse
from policyguard.traces.containers.parquet import parse_columns
from policyguard.traces.containers.row_filter import (
    COMPARE,
    AllOf,
    AnyOf,
    Comparison,
    Condition,
    Not,
    OneOf,
    Rows,
    Value,
    parse_time,
)
from policyguard.traces.item import TraceError

OPTION = "--where"
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


def read_rows(where: str, columns: str, count: Callable[[int], None] | None = None) -> Rows:
    """Return which rows `--where` and `--columns` ask for; see `Rows`. Raises `TraceError`."""
    return Rows(parse_condition(where) if where else True, parse_columns(columns), count)


def parse_condition(text: str) -> Condition:
    """Parse a condition. Raises `TraceError` with the place of what it cannot be."""
    problems: list[str] = []

    def report(code: str, message: str, span: ast.TextSpan, hint: str | None) -> None:
        problems.append(f"{OPTION}, column {span.start + 1}: {message}")

    tree = parse(text, report)
    if tree is None or problems:
        raise TraceError(problems[0] if problems else f"{OPTION}: no condition")
    return _build(tree)


def _build(node: ast.Expr) -> Condition:
    match node:
        case ast.Logic(_, "&&", operands):
            return AllOf(tuple(map(_build, operands)))
        case ast.Logic(_, "||", operands):
            return AnyOf(tuple(map(_build, operands)))
        case ast.Unary(_, "!", operand):
            return Not(_build(operand))
        case ast.Constant(_, bool() as value):
            return value
        case ast.Identifier(_, name):
            return Comparison(name, "==", True)
        case ast.Binary(_, "in", ast.Identifier(_, name), ast.ListLiteral(_, items)):
            return OneOf(name, tuple(map(_value, items)))
        case ast.Binary(_, operator, ast.Identifier(_, name), right) if operator in COMPARE:
            return Comparison(name, operator, _value(right))
        case ast.Binary(_, operator, left, ast.Identifier(_, name)) if operator in COMPARE:
            return Comparison(name, _MIRRORED[operator], _value(left))
    raise _problem(node, "only columns compared with values, `in`, `&&`, `||` and `!` can be used")


def _value(node: ast.Expr) -> Value:
    match node:
        case ast.Constant(_, bool() | int() | float() | str() as value):
            return value
        case ast.Unary(_, "-", ast.Constant(_, int() | float() as value)) if value is not True:
            return -value
        case ast.Call(_, None, "timestamp", _, [ast.Constant(_, str() as text)]):
            try:
                return parse_time(text)
            except ValueError:
                raise _problem(node, "no time such as 2026-01-01T00:00:00Z") from None
    raise _problem(node, "a column is compared with a text, a number, a bool or timestamp('…')")


def _problem(node: ast.Expr, message: str) -> TraceError:
    return TraceError(f"{OPTION}, column {node.span.start + 1}: {message}")
