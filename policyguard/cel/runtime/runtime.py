"""The names available to generated functions, and how they report errors."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final

from policyguard.cel.errors import CelLimitError, OperationError, quote_short
from policyguard.cel.runtime import containers, operators, strings
from policyguard.cel.runtime.read_meter import ReadMeter
from policyguard.cel.types.values import describe_type

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
"""What `&&`, `||`, `all` and `exists` absorb. Python itself raises most of them: a subscript raises
`KeyError` for a missing field and `TypeError` for a value that is not a map."""

UNDECIDED: Final = (*ERRORS, CelLimitError)
"""The errors that leave a condition without a value."""


def describe_error(error: Exception) -> tuple[str, str]:
    """Return the kind and message of an error that an operator may absorb.

    A tuple, because an exception kept in a variable keeps its own frame alive.
    """
    if isinstance(error, OperationError):
        return error.kind, str(error)
    if isinstance(error, KeyError):
        key = error.args[0] if error.args else ""
        return "no-such-key", f"no such key: {quote_short(str(key))}"
    if isinstance(error, AttributeError) and error.name in _CEL_METHODS:
        message = f"`{_CEL_METHODS[error.name]}` is not defined for {describe_type(error.obj)}"
        return "no-such-overload", message
    if isinstance(error, TypeError | AttributeError):
        # Python's messages about its own subscripts do not help an author.
        if any(word in str(error) for word in ("subscript", "indices", "index")):
            return "no-such-overload", "only a map has fields"
        return "no-such-overload", "an operand has the wrong type"
    return "invalid-argument", str(error)[:200]


# CEL names of the Python methods that generated code calls on operands of any type.
_CEL_METHODS: Final = {"startswith": "startsWith", "endswith": "endsWith", "encode": "matches"}


def absorbed_error(description: tuple[str, str]) -> OperationError:
    """Return the error that `describe_error` described."""
    return OperationError(*description)


def raise_undeclared(name: str) -> Any:
    """Raise for an undeclared name, in expressions compiled without checking."""
    raise OperationError("undeclared-reference", f"`{name}` is not declared")


def require_class(classes: frozenset[type], value: Any) -> Any:
    """Return `value`, the argument of a function that relies on its class, or raise."""
    if value.__class__ in classes:
        return value
    raise OperationError("no-such-overload", f"an argument cannot be a {describe_type(value)}")


Signature = tuple[frozenset[type] | None, ...]


def dispatch(overloads: tuple[tuple[Signature, Callable[..., Any]], ...]) -> Callable[..., Any]:
    """Return one function that selects among overloads by the classes of the operands."""

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
        "ReadMeter": ReadMeter,
        "UNDECIDED": UNDECIDED,
        "absorbed_error": absorbed_error,
        "add": operators.add,
        "contains": strings.contains,
        "describe_error": describe_error,
        "divide": operators.divide,
        "elements": containers.elements,
        "ends_with": strings.ends_with,
        "equals": operators.equals,
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
        "pairs": containers.pairs,
        "raise_undeclared": raise_undeclared,
        "reject_non_bool": operators.reject_non_bool,
        "require_class": require_class,
        "size": containers.size,
        "starts_with": strings.starts_with,
        "subtract": operators.subtract,
        "too_many_iterations": containers.too_many_iterations,
        "bool": bool,
        "bytes": bytes,
        "dict": dict,
        "float": float,
        "int": int,
        "list": list,
        "str": str,
    }
)
"""The global names of every generated function. It has no other builtins."""
