"""Mutants of a module: small changes of its code, each of which a test should notice.

Left out is what no test should pin: docstrings, annotations, texts of messages, `__repr__`, and
the bodies of protocols.
"""

from __future__ import annotations

import ast
import copy
import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
CALCULATED = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult, ast.Mod: ast.FloorDiv, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
RENAMED = {"min": "max", "max": "min", "any": "all", "all": "any"}
TEXT_METHODS = {"__repr__", "__str__"}


@dataclass(frozen=True)
class Mutant:
    """A change of one place of a module."""

    file: str
    """Path below the project's root."""
    function: str
    """Qualified name of the function or class that is changed; empty for the module."""
    lines: tuple[int, int]
    """First and last line of what is changed, and of the statement's start."""
    affected_lines: tuple[int, int]
    """First and last line of what it changes: of a default, the function; of a constant, the class
    or module. These lines themselves run at import, so few tests cover them."""
    span: tuple[int, int]
    """Bytes of the source that are replaced."""
    replacement: str

    def apply(self, source: bytes) -> bytes:
        """Return the module with the change."""
        start, end = self.span
        return source[:start] + self.replacement.encode() + source[end:]

    def diff(self, source: bytes) -> list[str]:
        """Return the removed and the added lines, with `-` or `+` before each."""
        before, after = source.decode().splitlines(), self.apply(source).decode().splitlines()
        changed = difflib.unified_diff(before, after, lineterm="", n=0)
        return [line for line in changed if line[:3] not in ("---", "+++") and line[0] in "-+"]


def find_mutants(root: Path, file: Path) -> list[Mutant]:
    """Return the mutants of a module, in the order of its lines."""
    source = file.read_bytes()
    finder = _Finder(source, file.relative_to(root).as_posix())
    return list(finder.walk(ast.parse(source), "", (1, source.count(b"\n"))))


class _Finder:
    """Mutants of one module's syntax tree."""

    def __init__(self, source: bytes, file: str) -> None:
        self._file = file
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._statement_line = 1
        self._conditions: set[ast.AST] = set()

    def walk(
        self, node: ast.AST, function: str, import_lines: tuple[int, int] | None
    ) -> Iterator[Mutant]:
        """Yield the mutants of a node and of what is below it.

        `import_lines` are those affected by code that runs at import; None inside functions.
        """
        if _is_left_out(node):
            return
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function or isinstance(node, ast.ClassDef):
            function = f"{function}.{node.name}".lstrip(".")
            if import_lines is not None:
                import_lines = (node.lineno, node.end_lineno)
        if isinstance(node, ast.stmt):
            self._statement_line = node.lineno
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            self._conditions.add(node.test)
        replacements = [*_replacements(node)]
        if node in self._conditions and not replacements:
            replacements = [f"(not {ast.unparse(node)})"]
        for replacement in replacements:
            lines = (self._statement_line, node.end_lineno)
            span = (
                self._starts[node.lineno - 1] + node.col_offset,
                self._starts[node.end_lineno - 1] + node.end_col_offset,
            )
            yield Mutant(self._file, function, lines, import_lines or lines, span, replacement)
        for child in _children(node):
            is_run_later = is_function and isinstance(child, ast.stmt)
            yield from self.walk(child, function, None if is_run_later else import_lines)


def _is_left_out(node: ast.AST) -> bool:
    match node:
        case ast.FunctionDef(name=name) if name in TEXT_METHODS:
            return True
        case ast.ClassDef(bases=bases):
            return any("Protocol" in ast.unparse(base) for base in bases)
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
    return isinstance(node, ast.JoinedStr | ast.Assert | ast.Import | ast.ImportFrom)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Raise():
            return
        case ast.AnnAssign(value=value):
            yield from [value] if value else []
        case ast.Call(func=ast.Name(id="cast"), args=[_, value]):
            yield value
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from (one for one in [*node.args.defaults, *node.args.kw_defaults] if one)
            yield from node.body
        case ast.ClassDef():
            yield from node.body
        case _:
            yield from ast.iter_child_nodes(node)


def _replacements(node: ast.AST) -> Iterator[str]:
    """Yield what a node may be replaced with."""
    match node:
        case ast.Compare(ops=[operator, *_]) if type(operator) in COMPARED:
            yield _changed(node, ops=[COMPARED[type(operator)](), *node.ops[1:]])
        case ast.BoolOp(op=operator, values=values):
            other = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield _changed(node, op=other)
            for index in range(len(values)):
                rest = values[:index] + values[index + 1 :]
                yield _changed(node, values=rest) if len(rest) > 1 else f"({ast.unparse(rest[0])})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield f"({ast.unparse(operand)})"
        case ast.BinOp(op=operator) if type(operator) in CALCULATED and not _is_text(node):
            yield _changed(node, op=CALCULATED[type(operator)]())
        case ast.AugAssign(op=operator) if type(operator) in CALCULATED:
            yield ast.unparse(_with(node, op=CALCULATED[type(operator)]()))
            yield "pass"
        case ast.Constant(value=bool(value)):
            yield str(not value)
        case ast.Constant(value=int(value)):
            yield str(value + 1)
        case ast.Name(id=name) if name in RENAMED and isinstance(node.ctx, ast.Load):
            yield RENAMED[name]
        case ast.Continue():
            yield "break"
        case ast.Break():
            yield "continue"
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield "return None"
        case ast.Raise():
            yield "pass"
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Delete():
            yield "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
            yield "pass"


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _changed(node: ast.AST, **fields: object) -> str:
    return f"({ast.unparse(_with(node, **fields))})"


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(
        isinstance(side, ast.JoinedStr)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
        for side in sides
    )
