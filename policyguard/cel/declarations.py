"""Declarations: the variables and functions that an expression may use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from keyword import iskeyword
from types import MappingProxyType

import msgspec
from msgspec.structs import force_setattr

from policyguard.cel.functions.function import Function
from policyguard.cel.functions.standard import STANDARD
from policyguard.cel.types.types import Type


class Declarations(msgspec.Struct, frozen=True, eq=False):
    """The variables and functions that expressions are compiled against. Immutable and reusable.

    A variable's name may be dotted (`google.cloud.project`); the longest name wins. `container` is
    the namespace that is searched first (cel-spec langdef.md, "Name Resolution").

    `attributes` is for callers with one object, the activation, that holds all variables. It maps
    each variable to an attribute path, and optionally `variable.field` to the path of a field that
    the activation also holds directly (`{"call": "call", "call.tool": "attempt.tool"}`). The
    generated function then takes the activation as its only parameter. Raises `ValueError` if a
    variable has no attribute.
    """

    variables: Mapping[str, Type]
    functions: Sequence[Function] = STANDARD
    container: str = ""
    attributes: Mapping[str, str] = MappingProxyType({})
    # Derived from the fields above.
    overloads: Mapping[str, tuple[Function, ...]] = MappingProxyType({})
    namespaces: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.attributes:
            _validate_attributes(self.attributes, self.variables)
        overloads: dict[str, tuple[Function, ...]] = {}
        for function in self.functions:
            overloads[function.name] = (*overloads.get(function.name, ()), function)
        parts = self.container.split(".") if self.container else []
        namespaces = (*(".".join(parts[:n]) + "." for n in range(len(parts), 0, -1)), "")
        force_setattr(self, "variables", MappingProxyType(dict(self.variables)))
        force_setattr(self, "attributes", MappingProxyType(dict(self.attributes)))
        force_setattr(self, "functions", tuple(self.functions))
        force_setattr(self, "overloads", MappingProxyType(overloads))
        force_setattr(self, "namespaces", namespaces)


def _validate_attributes(attributes: Mapping[str, str], variables: Iterable[str]) -> None:
    for name in variables:
        if name not in attributes:
            raise ValueError(f"no attribute for the variable `{name}`")
    for path in attributes.values():  # generated code contains them
        if not all(part.isidentifier() and not iskeyword(part) for part in path.split(".")):
            raise ValueError(f"`{path}` is not an attribute path")
