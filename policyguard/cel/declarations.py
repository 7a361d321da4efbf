"""What an expression may name: variables with their types, and functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from keyword import iskeyword
from types import MappingProxyType

import msgspec
from msgspec.structs import force_setattr

from policyguard.cel.functions.standard import STANDARD, Function
from policyguard.cel.types.types import Type

__all__ = ["Declarations"]


class Declarations(msgspec.Struct, frozen=True, eq=False):
    """The names that expressions are compiled against. Immutable; made once, used for many.

    A variable's name may be dotted (`google.cloud.project`); the longest name wins. `container`
    is the namespace in which names are looked up first (cel-spec langdef.md, "Name Resolution").

    `attributes` are for who has one object that holds all variables: by the name of each the
    attribute where it is, and by `variable.field` that of a field which the object also holds
    apart (`{"call": "call", "call.tool": "attempt.tool"}`). The generated function then takes that
    object, as its only parameter `view`, and reads of it what it needs. `ValueError` where one has
    no attribute.
    """

    variables: Mapping[str, Type]
    functions: Sequence[Function] = STANDARD
    container: str = ""
    attributes: Mapping[str, str] = MappingProxyType({})
    # What follows from these, whatever is given.
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
        # `frozen` forbids plain assignment, also here.
        force_setattr(self, "variables", MappingProxyType(dict(self.variables)))
        force_setattr(self, "attributes", MappingProxyType(dict(self.attributes)))
        force_setattr(self, "functions", tuple(self.functions))
        force_setattr(self, "overloads", MappingProxyType(overloads))
        force_setattr(self, "namespaces", namespaces)


def _validate_attributes(attributes: Mapping[str, str], variables: Iterable[str]) -> None:
    for name in variables:
        if name not in attributes:
            raise ValueError(f"no attribute holds `{name}`")
    for where in attributes.values():  # they become a part of the generated text
        if not all(part.isidentifier() and not iskeyword(part) for part in where.split(".")):
            raise ValueError(f"`{where}` is no attribute")
