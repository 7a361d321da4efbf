"""Name resolution, and the fields known to be present."""

from __future__ import annotations

from typing import Any, Final

from policyguard.cel.check.problems import did_you_mean, suggest_name
from policyguard.cel.declarations import Declarations
from policyguard.cel.syntax import ast
from policyguard.cel.syntax.ast import Expr, split_dotted_name
from policyguard.cel.types.types import RecordType, Type
from policyguard.cel.types.values import TYPE_VALUES, TypeValue

FieldPath = tuple[Any, ...]
"""A variable (its name, or the `Variable` of a macro) and the fields selected from it."""

_FOREIGN_CONSTANTS: Final = {
    "None": "null",
    "nil": "null",
    "undefined": "null",
    "True": "true",
    "False": "false",
}

_FOREIGN_MODULES: Final = {
    **dict.fromkeys(("re", "re2", "regex"), "write `text.matches('…')`"),
    **dict.fromkeys(("Date", "date", "datetime", "time"), "the time is `now`"),
    **dict.fromkeys(("env", "environ", "os"), "declare a parameter: `params: {…}`, and read it"),
}
_FOREIGN_FIELDS: Final = {
    **dict.fromkeys(("argument", "arguments", "input", "parameters", "params", "payload"), "args"),
    **dict.fromkeys(("function", "name", "tool_name", "toolname"), "tool"),
    **dict.fromkeys(("call_count", "count", "num_calls"), "calls"),
    **dict.fromkeys(("cmd", "shell"), "command"),
    **dict.fromkeys(("result", "output", "response"), "outcome.text"),
    **dict.fromkeys(("passed", "succeeded", "success"), "outcome.ok"),
    **dict.fromkeys(("category", "kind", "type"), "class"),
    "timestamp": "now",
}
"""What other tools call fields, and what they are called here."""


class Scope:
    """The names in scope at the current node."""

    def __init__(self, declarations: Declarations) -> None:
        self.declarations = declarations
        self.references: dict[Expr, str | TypeValue] = {}
        """Identifiers and selections that name a declared variable or a type."""
        self.macro_variables: list[tuple[ast.Variable, Type]] = []
        """The variables of the enclosing macros, with their types."""

    def find_macro_variable(self, name: str) -> tuple[ast.Variable, Type] | None:
        """Return the variable of an enclosing macro called `name`, and its type."""
        return next(
            (entry for entry in reversed(self.macro_variables) if entry[0].name == name), None
        )

    def resolve(self, root: ast.Identifier, fields: list[str]) -> str | TypeValue | None:
        """Resolve a dotted name to a variable or type (cel-spec langdef.md, "Name Resolution")."""
        name = ".".join((root.name, *fields))
        if self.find_macro_variable(root.name) is not None and not root.absolute:
            return None
        for namespace in ("",) if root.absolute else self.declarations.namespaces:
            if namespace + name in self.declarations.variables:
                return namespace + name
        return TYPE_VALUES.get(name)

    def suggest(self, name: str, *, is_path: bool = False) -> str | None:
        """Return help for the unknown variable `name`; a `path` goes on behind it."""
        if name in _FOREIGN_CONSTANTS:
            return f"did you mean `{_FOREIGN_CONSTANTS[name]}`?"
        if name in _FOREIGN_MODULES:
            return _FOREIGN_MODULES[name]
        if (path := self._find_field(name)) is not None:
            return f"did you mean `{path}`?"
        macro_names = [variable.name for variable, _ in self.macro_variables]
        known = (*self.declarations.variables, *macro_names)
        closest = did_you_mean(name, known)
        if closest or is_path or len(name) == 1:  # a macro's variable
            return closest
        return f"if it is a text, quote it: `'{name}'`"

    def suggest_field(self, record: RecordType, name: str) -> str | None:
        """Return help for a field that a record does not have: its own, or another variable's."""
        own = _FOREIGN_FIELDS.get(name.casefold(), "").removeprefix(f"{record}.")
        if own in record.fields:
            return f"did you mean `{own}`?"
        is_variable = str(record) in self.declarations.variables
        if is_variable and (path := self._find_field(name)) is not None:
            return f"did you mean `{path}`?"
        return suggest_name(name, record.fields)

    def _find_field(self, name: str) -> str | None:
        """Return the path of a declared field of this name, or of what other tools call so."""
        for meant in (name, _FOREIGN_FIELDS.get(name.casefold(), "")):
            root, _, field = meant.rpartition(".")
            for variable, declared in self.declarations.variables.items():
                fields = declared.fields if isinstance(declared, RecordType) else ()
                if field in fields and root in ("", variable):
                    return f"{variable}.{field}"
            if meant != name and meant in self.declarations.variables:
                return meant
        return None

    def field_path(self, node: Expr) -> FieldPath | None:
        """Return the variable and fields that `node` selects, or None for any other node."""
        fields: list[str] = []
        while True:
            referent = self.references.get(node)
            if referent is not None:
                return (referent, *reversed(fields)) if isinstance(referent, str) else None
            if isinstance(node, ast.Has):
                node = node.selection
            elif isinstance(node, ast.Select):
                fields.append(node.field)
                node = node.operand
            elif isinstance(node, ast.Index) and (key := field_name(node.key)) is not None:
                fields.append(key)
                node = node.operand
            elif isinstance(node, ast.Identifier):
                entry = self.find_macro_variable(node.name)
                return None if entry is None else (entry[0], *reversed(fields))
            else:
                return None

    def dotted_path(self, node: Expr) -> str | None:
        """Return the dotted path that `node` selects from a declared variable, or None."""
        path = self.field_path(node)
        return ".".join(path) if path is not None and isinstance(path[0], str) else None

    def guaranteed_fields(self, node: Expr, holds: bool) -> list[FieldPath]:
        """Return the fields that must be present if `node` is true (false, unless `holds`)."""
        match node:
            case ast.Has(selection=selection) if holds:
                path = self.unresolved_field_path(selection)
                return [path] if path is not None else []
            case ast.Unary(operator="!", operand=operand):
                return self.guaranteed_fields(operand, not holds)
            case ast.Logic(operator=operator, operands=operands) if (operator == "&&") == holds:
                return [path for each in operands for path in self.guaranteed_fields(each, holds)]
        return []

    def unresolved_field_path(self, node: Expr) -> FieldPath | None:
        """Return the `field_path` of a node whose references are not resolved yet."""
        name = split_dotted_name(node)
        if name is None:
            return None
        root, fields = name
        if not root.absolute and (entry := self.find_macro_variable(root.name)) is not None:
            return (entry[0], *fields)
        for end in range(len(fields), -1, -1):
            referent = self.resolve(root, fields[:end])
            if referent is not None:
                return (referent, *fields[end:])
        return None


def field_name(node: Expr) -> str | None:
    """Return the field that `x[node]` reads if `x.field` could be written instead."""
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) and value.isidentifier() else None
