"""The text of an expression → its tree. The only module that imports cel-python (`celpy`).

cel-python gives a concrete syntax tree with ten levels between an expression and a name; here it
becomes the tree of `tree.py`, with macros expanded and the bounds on depth applied. What surprised
us about cel-python 0.5: see `literals.py` for its lexer; besides, importing it takes 90 ms (so it
is imported when the first expression is compiled), making an `Environment` raises the
interpreter's recursion limit (parsing does not need that: it is put back), reserved words and
`x{a: 1}` parse without complaint, and `1.` is a number to it.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from policyguard.cel.runtime.cost_limits import COST_LIMITS
from policyguard.cel.syntax.literals import QuotedName, read_literals
from policyguard.cel.syntax.macros import MACROS, RESERVED_WORDS, Macro
from policyguard.cel.syntax.tree import (
    BadExpr,
    Binary,
    Call,
    Comprehension,
    Conditional,
    Constant,
    Expr,
    Has,
    Identifier,
    Index,
    ListLiteral,
    Logic,
    MapLiteral,
    Operator,
    Select,
    TextSpan,
    Unary,
    Variable,
)
from policyguard.cel.types.uint import INT_MAX, INT_MIN, UINT_MAX

if TYPE_CHECKING:
    from lark import Token, Tree

__all__ = ["Report", "parse"]

Report = Callable[[str, str, TextSpan, str | None], None]
"""Takes a problem: its code, its message, its place, and help or None."""

_PASS_THROUGH_RULES: Final = frozenset(
    {
        "addition",
        "conditionaland",
        "conditionalor",
        "expr",
        "member",
        "multiplication",
        "paren_expr",
        "primary",
        "relation",
        "unary",
    }
)
_OPERATORS: Final[dict[str, Operator]] = {
    "relation_lt": "<",
    "relation_le": "<=",
    "relation_gt": ">",
    "relation_ge": ">=",
    "relation_eq": "==",
    "relation_ne": "!=",
    "relation_in": "in",
    "addition_add": "+",
    "addition_sub": "-",
    "multiplication_mul": "*",
    "multiplication_div": "/",
    "multiplication_mod": "%",
}
_HELP_BY_WORD: Final = {
    "and": "write `&&`",
    "or": "write `||`",
    "not": "write `!`",
    "=": "write `==` to compare",
    "&": "write `&&`",
    "|": "write `||`",
    "is": "write `==`",
    "if": "write `condition ? value : other`",
}

_POLICY_DURATION: Final = re.compile(r"(?<![\w.])([0-9]{1,9})(ms|[smhd])\Z")
"""A time as the rest of a policy has it."""

_lock = threading.Lock()
_environment: Any = None


def _replace_lock() -> None:
    """The lock may be held by a thread that a forked child has not."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_replace_lock)


def parse(source: str, report: Report) -> Expr | None:
    """The tree of `source`, or None where it is not CEL at all.

    Every mistake goes to `report(code, message, span, help)`; the tree has `Broken` in its place.
    """
    if len(source) > COST_LIMITS.max_source_length:
        message = f"the expression has {len(source)} characters; {COST_LIMITS.max_source_length} are allowed"
        report("too-long", message, TextSpan(0, len(source)), None)
        return None
    literals = read_literals(source, report)
    concrete = _parse_concrete_tree(
        source, literals.masked_source, report if literals.is_complete else _ignore_problem
    )
    return None if concrete is None else _TreeBuilder(literals.values, report).read(concrete, 1)


def _ignore_problem(code: str, message: str, span: TextSpan, help_: str | None) -> None:
    """Swallow a syntax error that only follows from a literal that could not be read."""


def _parse_concrete_tree(source: str, masked: str, report: Report) -> Tree[Token] | None:
    global _environment
    import celpy  # 90 ms, which a run without any expression need not pay
    from celpy.celparser import CELParseError

    try:
        # The parser keeps the text that it reads as an attribute: one at a time.
        with _lock:
            if _environment is None:
                limit = sys.getrecursionlimit()
                try:
                    _environment = celpy.Environment()
                finally:
                    sys.setrecursionlimit(limit)
            tree: Tree[Token] = _environment.compile(masked)
            return tree
    except CELParseError as error:
        _report_syntax(error.__context__, source, report)
        return None


def _report_syntax(error: Any, source: str, report: Report) -> None:
    """Say where lark's `UnexpectedToken` or `UnexpectedCharacters` stands, and what may help."""
    token = getattr(error, "token", None)
    if token is not None and token.start_pos is None and token.type != "$END":
        # The lexer could not go on (`1utrue`): its own complaint, behind the parser's, has a place.
        error, token = error.__context__, None
    if token is not None and token.type != "$END":
        start, word = token.start_pos, source[token.start_pos : token.end_pos]
    elif token is None and 0 <= getattr(error, "pos_in_stream", -1) < len(source):
        start = error.pos_in_stream
        word = source[start]
    else:
        end = len(source.rstrip())
        what = "the expression is empty" if not end else "the expression ends too early"
        report("syntax", what, TextSpan(end, end + 1), None)
        return
    help_ = _HELP_BY_WORD.get(word)
    before = source[:start].split()
    if help_ is None and before and before[-1] in _HELP_BY_WORD:
        # `not x`: the parser takes `not` for a name, and stumbles over what follows.
        word = before[-1]
        start = source.rindex(word, 0, start)
        help_ = _HELP_BY_WORD[word]
    if (
        help_ is None
        and (span := _POLICY_DURATION.search(source, 0, start + len(word))) is not None
    ):
        count, unit = span.groups()
        written = f"{24 * int(count)}h" if unit == "d" else span[0]
        help_ = f"write `duration('{written}')`"
    printable = word if word.isprintable() else word.encode("unicode_escape").decode("ascii")
    shown = "a string" if word[0] in "\"'" else f"`{printable}`"
    report("syntax", f"unexpected {shown}", TextSpan(start, start + len(word)), help_)


class _TreeBuilder:
    """Reads one concrete tree. Recursion is as deep as the tree of ours: at most `BOUNDS.depth`."""

    def __init__(
        self, literals: dict[int, str | bytes | bool | QuotedName], report: Report
    ) -> None:
        self.literals = literals
        self.report = report
        self.nesting = 0
        self.too_deep = False

    def read(self, tree: Tree[Token], depth: int) -> Expr:
        while len(tree.children) == 1 and tree.data in _PASS_THROUGH_RULES:
            tree = tree.children[0]  # type: ignore[assignment]  # these rules have rules below them
        span = _tree_span(tree)
        if depth > COST_LIMITS.max_depth:
            if not self.too_deep:
                self.too_deep = True
                message = f"the expression is nested deeper than {COST_LIMITS.max_depth} levels"
                self.report("too-deep", message, span, None)
            return BadExpr(span)
        kind: str = tree.data
        node: Expr = getattr(self, f"read_{_READERS.get(kind, kind)}")(tree, span, depth + 1)
        return node

    def read_all(self, trees: Sequence[Any], depth: int) -> list[Expr]:
        return [self.read(tree, depth) for tree in trees]

    def broken(self, code: str, message: str, span: TextSpan, help_: str | None = None) -> BadExpr:
        self.report(code, message, span, help_)
        return BadExpr(span)

    # Operators

    def read_conditional(self, tree: Any, span: TextSpan, depth: int) -> Expr:
        condition, then, otherwise = self.read_all(tree.children, depth)
        return Conditional(span, condition, then, otherwise)

    def read_logic(self, tree: Any, span: TextSpan, depth: int) -> Expr:
        rule = tree.data
        operands = []
        # The grammar nests a chain to the left. Walking down it without recursion keeps twenty
        # operands at one level, and `(a && b) && c` becomes the same chain, which it equals.
        while tree.data == rule and len(tree.children) == 2:
            operands.append(tree.children[1])
            tree = tree.children[0]
            while len(tree.children) == 1 and tree.data in _PASS_THROUGH_RULES:
                tree = tree.children[0]
        operands.append(tree)
        operands.reverse()
        nodes = self.read_all(operands, depth)
        return Logic(span, "||" if rule == "conditionalor" else "&&", nodes)

    def read_binary(self, tree: Any, span: TextSpan, depth: int) -> Expr:
        operator, right = tree.children
        left = operator.children[0]
        name = _OPERATORS[operator.data]
        return Binary(span, name, self.read(left, depth), self.read(right, depth))

    def read_unary(self, tree: Any, span: TextSpan, depth: int) -> Expr:
        operator, operand = tree.children
        rule = operator.data
        count = 1
        while operand.data == "unary" and len(operand.children) == 2:
            if operand.children[0].data != rule:
                break
            count += 1
            operand = operand.children[1]
        # Two of a kind undo each other: `!!!x` is `!x`. Two are kept, so that `!!x` is still
        # refused where x is no bool, and `--x` still overflows.
        node = self.read(operand, depth)
        for _ in range(2 - count % 2):
            node = Unary(span, "!" if rule == "unary_not" else "-", node)
        return node

    # Names, fields, calls

    def read_ident(self, tree: Any, span: TextSpan, depth: int, absolute: bool = False) -> Expr:
        name = tree.children[0]
        if isinstance(self.literals.get(name.start_pos), QuotedName):
            return self.broken("syntax", "a name in backticks stands only after a dot", span)
        if name in RESERVED_WORDS:
            help_ = _HELP_BY_WORD.get(name)
            return self.broken("syntax", f"`{name}` is a reserved word", span, help_)
        return Identifier(span, str(name), absolute)

    def read_dot_ident(self, tree: Any, span: TextSpan, depth: int) -> Expr:
        return self.read_ident(tree, span, depth, absolute=True)

    def read_member_dot(self, tree: Any, span: TextSpan, depth: int) -> Expr:
        operand, field = tree.children
        quoted = self.literals.get(field.start_pos)
        name = quoted.name if isinstance(quoted, QuotedName) else str(field)
        return Select(span, self.read(operand, depth), name, _token_span(field))

    def read_member_index(self, tree: Any, span: TextSpan, depth: int) -> Expr:
        operand, key = tree.children
        return Index(span, self.read(operand, depth), self.read(key, depth))

    def read_member_object(self, tree: Any, span: TextSpan, depth: int) -> Expr:
        help_ = "write a map: {'field': value}"
        return self.broken("syntax", "messages are not supported", span, help_)

    def read_member_dot_arg(self, tree: Any, span: TextSpan, depth: int) -> Expr:
        receiver, name, *rest = tree.children
        if name.start_pos in self.literals:
            return self.broken("syntax", "a name in backticks is no function", _token_span(name))
        arguments = rest[0].children if rest else []
        if macro := MACROS.get((str(name), len(arguments))):
            return self.read_macro(receiver, str(name), macro, arguments, span, depth)
        return Call(
            span,
            self.read(receiver, depth),
            str(name),
            _token_span(name),
            self.read_all(arguments, depth),
        )

    def read_ident_arg(self, tree: Any, span: TextSpan, depth: int) -> Expr:
        name, *rest = tree.children
        if name.start_pos in self.literals:
            return self.broken("syntax", "a name in backticks is no function", _token_span(name))
        arguments = self.read_all(rest[0].children if rest else [], depth)
        if name == "has" and tree.data == "ident_arg":
            if len(arguments) == 1 and isinstance(arguments[0], Select):
                return Has(span, arguments[0])
            return self.broken("bad-macro", "`has` takes a field, such as `has(a.b)`", span)
        return Call(span, None, str(name), _token_span(name), arguments)

    def read_macro(
        self,
        receiver: Any,
        name: str,
        macro: Macro,
        arguments: list[Any],
        span: TextSpan,
        depth: int,
    ) -> Expr:
        source = self.read(receiver, depth)
        variables: list[Variable] = []
        for argument in arguments[: macro.variable_count]:
            node = self.read(argument, depth)
            if not isinstance(node, Identifier) or node.absolute:
                return self.broken("bad-macro", f"`{name}` takes a plain name here", node.span)
            if any(node.name == variable.name for variable in variables):
                return self.broken("bad-macro", f"`{node.name}` is bound twice", node.span)
            variables.append(Variable(node.name, node.span))
        self.nesting += 1
        if self.nesting > COST_LIMITS.max_macro_nesting:
            self.nesting -= 1
            message = f"macros are nested deeper than {COST_LIMITS.max_macro_nesting} levels"
            return self.broken("too-deep", message, span)
        body = self.read_all(arguments[macro.variable_count :], depth)
        self.nesting -= 1
        condition = body[0] if macro.has_condition else None
        result = body[-1] if macro.has_result else None
        return Comprehension(span, macro.kind, source, variables, condition, result)

    # Values

    def read_list_lit(self, tree: Any, span: TextSpan, depth: int) -> Expr:
        items = tree.children[0].children if tree.children else []
        return ListLiteral(span, self.read_all(items, depth))

    def read_map_lit(self, tree: Any, span: TextSpan, depth: int) -> Expr:
        parts = self.read_all(tree.children[0].children if tree.children else [], depth)
        return MapLiteral(span, list(zip(parts[::2], parts[1::2], strict=True)))

    def read_literal(self, tree: Any, span: TextSpan, depth: int) -> Expr:
        token = tree.children[0]
        text = str(token)
        match token.type:
            case "INT_LIT":
                value = int(text, 16 if "x" in text.lower() else 10)
                if INT_MIN <= value <= INT_MAX:
                    return Constant(span, value)
                return self.broken("number-range", f"`{text}` does not fit into 64 bits", span)
            case "UINT_LIT":
                digits = text[:-1].removeprefix("-")
                value = int(digits, 16 if "x" in digits.lower() else 10)
                if value > UINT_MAX:
                    return self.broken("number-range", f"`{text}` does not fit into 64 bits", span)
                number = Constant(span, value, unsigned=True)
                # The sign is an operator, and there is no `-` for unsigned integers.
                return Unary(span, "-", number) if text.startswith("-") else number
            case "FLOAT_LIT":
                if text.endswith(".") or ".e" in text.lower():
                    return self.broken("syntax", f"`{text}` needs a digit after the point", span)
                return Constant(span, float(text))
            case "NULL_LIT":
                return Constant(span, None)
        literal = self.literals.get(token.start_pos)
        return Constant(span, literal) if isinstance(literal, str | bytes | bool) else BadExpr(span)


# Which reader reads which of the grammar's rules, where the names differ.
_READERS: Final = {
    "expr": "conditional",
    "conditionalor": "logic",
    "conditionaland": "logic",
    "relation": "binary",
    "addition": "binary",
    "multiplication": "binary",
    "dot_ident_arg": "ident_arg",
}


def _tree_span(tree: Any) -> TextSpan:
    meta = tree.meta
    return TextSpan(meta.start_pos, meta.end_pos)


def _token_span(token: Any) -> TextSpan:
    return TextSpan(token.start_pos, token.end_pos)
