"""Source text to a syntax tree.

The concrete syntax tree of cel-python's grammar has ten levels between an expression and a name.
This module reduces it to the tree of `ast`, with macros expanded and depth limited. Surprises of
the grammar of cel-python 0.5, besides its tokens (see `literals.py`): reserved words and `x{a: 1}`
parse without an error, and `1.` is a number.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from policyguard.cel.runtime.cost_limits import COST_LIMITS
from policyguard.cel.syntax import ast
from policyguard.cel.syntax.ast import Expr, Operator, Report, TextSpan
from policyguard.cel.syntax.grammar import TableCache, load_parser
from policyguard.cel.syntax.literals import QuotedName, read_literals
from policyguard.cel.syntax.macros import MACROS, RESERVED_WORDS, Macro
from policyguard.cel.syntax.syntax_help import explain_unexpected
from policyguard.cel.syntax.trailing_commas import blank_trailing_commas
from policyguard.cel.types.uint import INT_MAX, INT_MIN, UINT_MAX
from policyguard.engines.operating_system import after_fork_in_child

if TYPE_CHECKING:
    from lark import Lark, Token, Tree

_Problem = tuple[str, str, TextSpan, str | None]
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
_lock = threading.Lock()
_parser: Lark | None = None
_table_cache: TableCache | None = None


def _replace_lock() -> None:
    """Replace the lock in a forked child: a thread that does not exist there may hold it."""
    global _lock
    _lock = threading.Lock()


after_fork_in_child(_replace_lock)


def keep_table(cache: TableCache) -> None:
    """Let the parser, which the first expression loads, keep its table here."""
    global _table_cache
    _table_cache = cache


def parse(source: str, report: Report) -> Expr | None:
    """Parse `source`; return None if it is not CEL at all.

    Every problem goes to `report(code, message, span, help)`, and a `BadExpr` takes its place in
    the tree.
    """
    tree, problems = _parse_once(source)
    for problem in problems:
        report(*problem)
    return tree


@lru_cache(256)
def _parse_once(source: str) -> tuple[Expr | None, list[_Problem]]:
    """Parse what policies have in common once: it takes 20 ms for an expression."""
    problems: list[_Problem] = []
    tree = _parse(source, lambda *problem: problems.append(problem))
    return tree, problems


def _parse(source: str, report: Report) -> Expr | None:
    if len(source) > COST_LIMITS.max_source_length:
        allowed = f"{COST_LIMITS.max_source_length} are allowed"
        message = f"the expression has {len(source)} characters; {allowed}"
        report("too-long", message, TextSpan(0, len(source)), None)
        return None
    literals = read_literals(source, report)
    report_syntax = report if literals.is_complete else _ignore_problem
    masked = blank_trailing_commas(literals.masked_source)
    concrete = _parse_concrete_tree(source, masked, report_syntax)
    return None if concrete is None else _TreeBuilder(literals.values, report).build(concrete, 1)


def _ignore_problem(code: str, message: str, span: TextSpan, help_: str | None) -> None:
    """Drop a syntax error that only follows from an unreadable literal."""


def _parse_concrete_tree(source: str, masked: str, report: Report) -> Tree[Token] | None:
    global _parser
    from lark.exceptions import LexError, ParseError  # slow import

    with _lock:
        if _parser is None:
            _parser = load_parser(_table_cache)
        try:
            return _parser.parse(masked)
        except (LexError, ParseError) as error:
            _report_syntax(error, source, report)
            return None


def _report_syntax(error: Any, source: str, report: Report) -> None:
    """Report lark's `UnexpectedToken` or `UnexpectedCharacters` with its position and a hint."""
    token = getattr(error, "token", None)
    if token is not None and token.type != "$END":
        start, word = token.start_pos, source[token.start_pos : token.end_pos]
    elif token is None and 0 <= getattr(error, "pos_in_stream", -1) < len(source):
        start = error.pos_in_stream
        word = source[start]
    else:
        end = len(source.rstrip())
        message = "the expression is empty" if not end else "unexpected end of expression"
        report("syntax", message, TextSpan(end, end + 1), None)
        return
    start, word, help_ = explain_unexpected(source, start, word)
    printable = word if word.isprintable() else word.encode("unicode_escape").decode("ascii")
    shown = "a string" if word[0] in "\"'" else f"`{printable}`"
    report("syntax", f"unexpected {shown}", TextSpan(start, start + len(word)), help_)


class _TreeBuilder:
    """Converts one concrete tree. Recursion is limited by `COST_LIMITS.max_depth`."""

    def __init__(
        self, literals: dict[int, str | bytes | bool | QuotedName], report: Report
    ) -> None:
        self.literals = literals
        self.report = report
        self.nesting = 0
        self.too_deep = False

    def build(self, tree: Tree[Token], depth: int) -> Expr:
        while len(tree.children) == 1 and tree.data in _PASS_THROUGH_RULES:
            tree = tree.children[0]  # type: ignore[assignment]  # these rules have rules below them
        span = _tree_span(tree)
        if depth > COST_LIMITS.max_depth:
            if not self.too_deep:
                self.too_deep = True
                message = f"the expression is nested deeper than {COST_LIMITS.max_depth} levels"
                self.report("too-deep", message, span, None)
            return ast.BadExpr(span)
        rule: str = tree.data
        method = getattr(self, f"build_{_METHODS_BY_RULE.get(rule, rule)}")
        node: Expr = method(tree, span, depth + 1)
        return node

    def build_all(self, trees: Sequence[Any], depth: int) -> list[Expr]:
        return [self.build(tree, depth) for tree in trees]

    def reject(
        self, code: str, message: str, span: TextSpan, help_: str | None = None
    ) -> ast.BadExpr:
        self.report(code, message, span, help_)
        return ast.BadExpr(span)

    # Operators

    def build_conditional(self, tree: Any, span: TextSpan, depth: int) -> Expr:
        condition, then, otherwise = self.build_all(tree.children, depth)
        return ast.Conditional(span, condition, then, otherwise)

    def build_logic(self, tree: Any, span: TextSpan, depth: int) -> Expr:
        rule = tree.data
        operands = []
        # The grammar nests a chain to the left. Without recursion all operands stay at one level,
        # and `(a && b) && c` becomes the same chain.
        while tree.data == rule and len(tree.children) == 2:
            operands.append(tree.children[1])
            tree = tree.children[0]
            while len(tree.children) == 1 and tree.data in _PASS_THROUGH_RULES:
                tree = tree.children[0]
        operands.append(tree)
        operands.reverse()
        nodes = self.build_all(operands, depth)
        return ast.Logic(span, "||" if rule == "conditionalor" else "&&", nodes)

    def build_binary(self, tree: Any, span: TextSpan, depth: int) -> Expr:
        operator, right = tree.children
        left = operator.children[0]
        name = _OPERATORS[operator.data]
        return ast.Binary(span, name, self.build(left, depth), self.build(right, depth))

    def build_unary(self, tree: Any, span: TextSpan, depth: int) -> Expr:
        operator, operand = tree.children
        rule = operator.data
        count = 1
        while operand.data == "unary" and len(operand.children) == 2:
            if operand.children[0].data != rule:
                break
            count += 1
            operand = operand.children[1]
        # Pairs cancel: `!!!x` is `!x`. One pair is kept, so that `!!x` still fails if x is not
        # bool, and `--x` still overflows.
        node = self.build(operand, depth)
        for _ in range(2 - count % 2):
            node = ast.Unary(span, "!" if rule == "unary_not" else "-", node)
        return node

    # Names, fields, calls

    def build_ident(self, tree: Any, span: TextSpan, depth: int, absolute: bool = False) -> Expr:
        name = tree.children[0]
        if isinstance(self.literals.get(name.start_pos), QuotedName):
            message = "a name in backticks is only valid after a dot"
            return self.reject("syntax", message, span, "put a text in quotes: `'…'`")
        if name in RESERVED_WORDS:
            help_ = explain_unexpected(name, 0, name).help
            return self.reject("syntax", f"`{name}` is a reserved word", span, help_)
        return ast.Identifier(span, str(name), absolute)

    def build_dot_ident(self, tree: Any, span: TextSpan, depth: int) -> Expr:
        return self.build_ident(tree, span, depth, absolute=True)

    def build_member_dot(self, tree: Any, span: TextSpan, depth: int) -> Expr:
        operand, field = tree.children
        quoted = self.literals.get(field.start_pos)
        name = quoted.name if isinstance(quoted, QuotedName) else str(field)
        return ast.Select(span, self.build(operand, depth), name, _token_span(field))

    def build_member_index(self, tree: Any, span: TextSpan, depth: int) -> Expr:
        operand, key = tree.children
        return ast.Index(span, self.build(operand, depth), self.build(key, depth))

    def build_member_object(self, tree: Any, span: TextSpan, depth: int) -> Expr:
        help_ = "write a map: {'field': value}"
        return self.reject("syntax", "messages are not supported", span, help_)

    def build_member_dot_arg(self, tree: Any, span: TextSpan, depth: int) -> Expr:
        receiver, name, *rest = tree.children
        if name.start_pos in self.literals:
            message = "a function name cannot be in backticks"
            return self.reject("syntax", message, _token_span(name))
        arguments = rest[0].children if rest else []
        if macro := MACROS.get((str(name), len(arguments))):
            return self.build_macro(receiver, str(name), macro, arguments, span, depth)
        return ast.Call(
            span,
            self.build(receiver, depth),
            str(name),
            _token_span(name),
            self.build_all(arguments, depth),
        )

    def build_ident_arg(self, tree: Any, span: TextSpan, depth: int) -> Expr:
        name, *rest = tree.children
        if name.start_pos in self.literals:
            message = "a function name cannot be in backticks"
            return self.reject("syntax", message, _token_span(name))
        arguments = self.build_all(rest[0].children if rest else [], depth)
        if name == "has" and tree.data == "ident_arg":
            if len(arguments) == 1 and isinstance(arguments[0], ast.Select):
                return ast.Has(span, arguments[0])
            return self.reject("bad-macro", "`has` needs a field, such as `has(a.b)`", span)
        return ast.Call(span, None, str(name), _token_span(name), arguments)

    def build_macro(
        self,
        receiver: Any,
        name: str,
        macro: Macro,
        arguments: list[Any],
        span: TextSpan,
        depth: int,
    ) -> Expr:
        source = self.build(receiver, depth)
        variables: list[ast.Variable] = []
        for argument in arguments[: macro.variable_count]:
            node = self.build(argument, depth)
            if not isinstance(node, ast.Identifier) or node.absolute:
                return self.reject("bad-macro", f"`{name}` needs a plain name here", node.span)
            if any(node.name == variable.name for variable in variables):
                return self.reject("bad-macro", f"`{node.name}` is bound twice", node.span)
            variables.append(ast.Variable(node.name, node.span))
        self.nesting += 1
        if self.nesting > COST_LIMITS.max_macro_nesting:
            self.nesting -= 1
            message = f"macros are nested deeper than {COST_LIMITS.max_macro_nesting} levels"
            return self.reject("too-deep", message, span)
        body = self.build_all(arguments[macro.variable_count :], depth)
        self.nesting -= 1
        condition = body[0] if macro.has_condition else None
        result = body[-1] if macro.has_result else None
        return ast.Comprehension(span, macro.kind, source, variables, condition, result)

    # Values

    def build_list_lit(self, tree: Any, span: TextSpan, depth: int) -> Expr:
        items = tree.children[0].children if tree.children else []
        return ast.ListLiteral(span, self.build_all(items, depth))

    def build_map_lit(self, tree: Any, span: TextSpan, depth: int) -> Expr:
        parts = self.build_all(tree.children[0].children if tree.children else [], depth)
        return ast.MapLiteral(span, list(zip(parts[::2], parts[1::2], strict=True)))

    def build_literal(self, tree: Any, span: TextSpan, depth: int) -> Expr:
        token = tree.children[0]
        text = str(token)
        match token.type:
            case "INT_LIT":
                value = int(text, 16 if "x" in text.lower() else 10)
                if INT_MIN <= value <= INT_MAX:
                    return ast.Constant(span, value)
                return self.reject("number-range", f"`{text}` does not fit into 64 bits", span)
            case "UINT_LIT":
                digits = text[:-1].removeprefix("-")
                value = int(digits, 16 if "x" in digits.lower() else 10)
                if value > UINT_MAX:
                    return self.reject("number-range", f"`{text}` does not fit into 64 bits", span)
                number = ast.Constant(span, value, unsigned=True)
                # The sign is an operator, and there is no `-` for unsigned integers.
                return ast.Unary(span, "-", number) if text.startswith("-") else number
            case "FLOAT_LIT":
                if text.endswith(".") or ".e" in text.lower():
                    return self.reject("syntax", f"`{text}` needs a digit after the point", span)
                return ast.Constant(span, float(text))
            case "NULL_LIT":
                return ast.Constant(span, None)
        if text[0] in "bBrR":  # masked literals have no prefix: it belongs to the word before
            help_ = f"put a space before `{text[0]}`"
            return self.reject("syntax", "a word runs into a literal", span, help_)
        literal = self.literals.get(token.start_pos)
        return (
            ast.Constant(span, literal)
            if isinstance(literal, str | bytes | bool)
            else ast.BadExpr(span)
        )


# The methods of grammar rules whose names differ.
_METHODS_BY_RULE: Final = {
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
