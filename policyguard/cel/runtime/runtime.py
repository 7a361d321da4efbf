"""The names that generated functions may use, and how they report errors."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final

from policyguard.cel.errors import CelLimitError, OperationError, quote_short
from policyguard.cel.runtime import containers, operators, strings
from policyguard.cel.runtime.read_meter import ReadMeter
from policyguard.cel.types.values import describe_type

__all__ = ["ERRORS", "RUNTIME"]

ERRORS: Final = (
    OperationError,
    KeyError,
    TypeError,
    IndexError,
    AttributeError,
    ValueError,
    ZeroDivisionError,
    OverflowError,
)
"""What `&&`, `||`, `all` and `exists` absorb. Generated code lets Python itself find most errors:
a subscript raises `KeyError` for a field that is not there and `TypeError` for what is no map."""

UNDECIDED: Final = (*ERRORS, CelLimitError)
"""Why a condition has no value."""


def describe_error(error: Exception) -> tuple[str, str]:
    """Kind and message of an error that was raised where an operator may absorb it.

    A tuple, because an exception kept in a variable keeps the frame alive that keeps it.
    """
    if isinstance(error, OperationError):
        return error.kind, str(error)
    if isinstance(error, KeyError):
        key = error.args[0] if error.args else ""
        return "no-such-key", f"there is no {quote_short(str(key))}"
    if isinstance(error, AttributeError) and error.name in _CEL_METHODS:
        message = f"`{_CEL_METHODS[error.name]}` is not defined for {describe_type(error.obj)}"
        return "no-such-overload", message
    if isinstance(error, TypeError | AttributeError):
        # What Python says about its own subscripts means nothing to an author.
        subscript = any(word in str(error) for word in ("subscript", "indices", "index"))
        what = "a field is read of what is no map" if subscript else "an operand has a wrong type"
        return "no-such-overload", what
    return "invalid-argument", str(error)[:200]


# Methods of Python that generated code calls without knowing what they are called on.
_CEL_METHODS: Final = {"startswith": "startsWith", "endswith": "endsWith", "encode": "matches"}


def absorbed_error(why: tuple[str, str]) -> OperationError:
    """The error that `reason` has taken down."""
    return OperationError(*why)


def raise_undeclared(what: str) -> Any:
    """Stands for a name that is not declared, in expressions compiled without checking."""
    raise OperationError("undeclared-reference", f"`{what}` is not declared")


def require_class(classes: frozenset[type], value: Any) -> Any:
    """`value`, if it is of one of the classes: an argument of a function that relies on them."""
    if value.__class__ in classes:
        return value
    raise OperationError("no-such-overload", f"an argument cannot be a {describe_type(value)}")


Signature = tuple[frozenset[type] | None, ...]


def dispatch(overloads: tuple[tuple[Signature, Callable[..., Any]], ...]) -> Callable[..., Any]:
    """One function out of several that differ in the classes of their operands."""

    def call(*operands: Any) -> Any:
        for signature, implementation in overloads:
            if all(
                classes is None or operand.__class__ in classes
                for classes, operand in zip(signature, operands, strict=True)
            ):
                return implementation(*operands)
        types = ", ".join(map(describe_type, operands))
        raise OperationError("no-such-overload", f"the function is not defined for {types}")

    return call


RUNTIME: Final[MappingProxyType[str, Any]] = MappingProxyType(
    {
        "ERRORS": ERRORS,
        "Meter": ReadMeter,
        "UNDECIDED": UNDECIDED,
        "add": operators.add,
        "contains": strings.contains,
        "divide": operators.divide,
        "elements": containers.elements,
        "ends_with": strings.ends_with,
        "equals": operators.equals,
        "expect": require_class,
        "failed": absorbed_error,
        "greater": operators.greater,
        "greater_or_equal": operators.greater_or_equal,
        "has_field": containers.has_field,
        "index": containers.index,
        "is_in": operators.is_in,
        "len": len,
        "less": operators.less,
        "less_or_equal": operators.less_or_equal,
        "make_map": containers.make_map,
        "modulo": operators.modulo,
        "multiply": operators.multiply,
        "negate": operators.negate,
        "not_": operators.not_,
        "not_bool": operators.reject_non_bool,
        "pairs": containers.pairs,
        "reason": describe_error,
        "size": containers.size,
        "starts_with": strings.starts_with,
        "subtract": operators.subtract,
        "too_many_iterations": containers.too_many_iterations,
        "undeclared": raise_undeclared,
        # Classes, under the names that CEL gives them: generated code compares classes often.
        "bool": bool,
        "bytes": bytes,
        "dict": dict,
        "float": float,
        "int": int,
        "list": list,
        "str": str,
    }
)
"""The global names of every generated function. It gets no builtins besides these."""
