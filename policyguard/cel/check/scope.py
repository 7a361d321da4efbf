"""What the names in an expression mean, and which fields are known to be there."""

from __future__ import annotations

from typing import Any, Final

from policyguard.cel.check.problems import did_you_mean
from policyguard.cel.declarations import Declarations
from policyguard.cel.syntax.tree import (
    Constant,
    Expr,
    Has,
    Identifier,
    Index,
    Logic,
    Select,
    Unary,
    Variable,
    split_dotted_name,
)
from policyguard.cel.types.types import RecordType, Type
from policyguard.cel.types.values import TYPE_VALUES, TypeValue

__all__ = ["FieldPath", "Scope", "field_name"]

FieldPath = tuple[Any, ...]
"""A variable (its name, or the `Variable` of a macro) and the fields selected from it."""

_FOREIGN_CONSTANTS: Final = {
    "None": "null",
    "nil": "null",
    "undefined": "null",
    "True": "true",
    "False": "false",
}


class Scope:
    """The names that are in scope at the present place of one expression."""

    def __init__(self, declarations: Declarations) -> None:
        self.declarations = declarations
        self.references: dict[Expr, str | TypeValue] = {}
        """Identifiers and selections that name a declared variable, or a type."""
        self.macro_variables: list[tuple[Variable, Type]] = []
        """The variables of the macros around the present place."""

    def find_macro_variable(self, name: str) -> tuple[Variable, Type] | None:
        """The variable of a macro around this place that is called `name`, and its type."""
        return next(
            (bound for bound in reversed(self.macro_variables) if bound[0].name == name), None
        )

    def resolve(self, root: Identifier, fields: list[str]) -> str | TypeValue | None:
        """The variable or type that a dotted name means (cel-spec langdef.md, Name Resolution)."""
        name = ".".join((root.name, *fields))
        if self.find_macro_variable(root.name) is not None and not root.absolute:
            return None
        for namespace in ("",) if root.absolute else self.declarations.namespaces:
            if namespace + name in self.declarations.variables:
                return namespace + name
        return TYPE_VALUES.get(name)

    def suggest(self, name: str) -> str | None:
        """What was probably meant by `name`, which means nothing."""
        if name in _FOREIGN_CONSTANTS:
            return f"did you mean `{_FOREIGN_CONSTANTS[name]}`?"
        for variable, declared in self.declarations.variables.items():
            if isinstance(declared, RecordType) and name in declared.fields:
                return f"did you mean `{variable}.{name}`?"
        bound = [variable.name for variable, _ in self.macro_variables]
        return did_you_mean(name, (*self.declarations.variables, *bound))

    def field_path(self, node: Expr) -> FieldPath | None:
        """Which part of which variable `node` is, if it is nothing but that."""
        fields: list[str] = []
        while True:
            meaning = self.references.get(node)
            if meaning is not None:
                return (meaning, *reversed(fields)) if isinstance(meaning, str) else None
            if isinstance(node, Has):
                node = node.selection
            elif isinstance(node, Select):
                fields.append(node.field)
                node = node.operand
            elif isinstance(node, Index) and (key := field_name(node.key)) is not None:
                fields.append(key)
                node = node.operand
            elif (
                isinstance(node, Identifier)
                and (bound := self.find_macro_variable(node.name)) is not None
            ):
                return (bound[0], *reversed(fields))
            else:
                return None

    def dotted_path(self, node: Expr) -> str | None:
        """The dotted path of a part of a declared variable, if `node` is nothing but that."""
        place = self.field_path(node)
        if place is None or not isinstance(place[0], str):
            return None
        return ".".join(place)

    def guaranteed_fields(self, node: Expr, holds: bool) -> list[FieldPath]:
        """The fields that are certainly there if `node` is true (or false, unless `holds`)."""
        match node:
            case Has(selection=selection) if holds:
                place = self.unresolved_field_path(selection)
                return [place] if place is not None else []
            case Unary(operator="!", operand=operand):
                return self.guaranteed_fields(operand, not holds)
            case Logic(operator=operator, operands=operands) if (operator == "&&") == holds:
                return [
                    place
                    for operand in operands
                    for place in self.guaranteed_fields(operand, holds)
                ]
        return []

    def unresolved_field_path(self, node: Expr) -> FieldPath | None:
        """As `place`, for a node whose references have not been looked up yet."""
        name = split_dotted_name(node)
        if name is None:
            return None
        root, fields = name
        if not root.absolute and (bound := self.find_macro_variable(root.name)) is not None:
            return (bound[0], *fields)
        for end in range(len(fields), -1, -1):
            meaning = self.resolve(root, fields[:end])
            if meaning is not None:
                return (meaning, *fields[end:])
        return None


def field_name(node: Expr) -> str | None:
    """The field that `x[node]` reads, where that could be written `x.field` as well."""
    value = node.value if isinstance(node, Constant) else None
    return value if isinstance(value, str) and value.isidentifier() else None
