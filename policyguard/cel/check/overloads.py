"""Which function a call means, and what is wrong where it means none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from policyguard.cel.check.problems import Problems, did_you_mean
from policyguard.cel.declarations import Declarations
from policyguard.cel.errors import OperationError
from policyguard.cel.functions.standard import UNAVAILABLE, Function
from policyguard.cel.syntax.macros import MACRO_NAMES
from policyguard.cel.syntax.tree import BadExpr, Call, Constant, Expr
from policyguard.cel.types.types import DYN, Type, is_assignable
from policyguard.engines.regex import RegexError

__all__ = ["NOT_COMPUTED", "ResolvedCall", "resolve_call"]

NOT_COMPUTED: Final = object()
"""Stands where nothing has been computed at compile time."""

# What other languages call functions of CEL.
_FOREIGN_NAMES: Final = {
    "float": "double(…)",
    "len": "size(…)",
    "length": "size(…)",
    "lower": ".lowerAscii()",
    "str": "string(…)",
    "strip": ".trim()",
    "toLower": ".lowerAscii()",
    "toUpper": ".upperAscii()",
    "upper": ".upperAscii()",
}
# Conversions of a literal whose failure is a mistake in the policy: done at compile time.
_FOLDED_CONVERSIONS: Final = {"duration": "'90s' or '1h30m'", "timestamp": "'2026-01-31T09:30:00Z'"}


class ResolvedCall(msgspec.Struct, frozen=True):
    """The signatures that fit a call: more than one only where a type is not known."""

    overloads: tuple[Function, ...]
    result_type: Type
    prepared_argument: Any = NOT_COMPUTED
    """What the last argument, a literal, has been prepared to."""
    constant_value: Any = NOT_COMPUTED
    """The value of the whole call, where it is known already."""


def resolve_call(
    call: Call,
    receiver: Type | None,
    arguments: Sequence[Type],
    declarations: Declarations,
    problems: Problems,
    *,
    strict: bool,
) -> ResolvedCall | None:
    """The function that `call` means; None, and a problem noted, where there is none."""
    named = declarations.overloads.get(call.name, ())
    called = [function for function in named if (function.receiver is None) == (receiver is None)]
    counted = [function for function in called if len(function.parameters) == len(arguments)]
    fitting = tuple(
        function
        for function in counted
        if (receiver is None or is_assignable(function.receiver or DYN, receiver))
        and all(map(is_assignable, function.parameters, arguments))
    )
    if not fitting:
        if strict:
            _report_mismatch(
                call, receiver, arguments, named, called, counted, declarations, problems
            )
        return None
    results = {function.result for function in fitting}
    result = results.pop() if len(results) == 1 else DYN
    if (
        strict
        and call.name in _FOLDED_CONVERSIONS
        and len(call.arguments) == 1
        and receiver is None
    ):
        return ResolvedCall(fitting, result, constant_value=_fold_constant(call, fitting, problems))
    return ResolvedCall(
        fitting, result, prepared_argument=_prepare_literal(call, fitting, problems)
    )


def _prepare_literal(call: Call, fitting: Sequence[Function], problems: Problems) -> Any:
    """What the functions that take a literal make of it at compile time."""
    function = next(
        (function for function in fitting if function.prepare_literal is not None), None
    )
    if function is None or function.prepare_literal is None:
        return NOT_COMPUTED
    literal = call.arguments[-1]
    if isinstance(literal, BadExpr):
        return NOT_COMPUTED
    if not isinstance(literal, Constant) or not isinstance(literal.value, str):
        if not function.requires_literal:
            return NOT_COMPUTED
        message = f"`{call.name}` takes a string that stands in the expression"
        problems.error("not-constant", message, literal.span)
        return NOT_COMPUTED
    try:
        prepared = function.prepare_literal(literal.value)
    except RegexError as error:
        message = f"the pattern is not RE2: {error.reason}"
        problems.error("bad-regex", message, literal.span, error.help)
    except ValueError as error:
        problems.error("bad-argument", str(error), literal.span)
    else:
        return NOT_COMPUTED if prepared is None else prepared
    return NOT_COMPUTED


def _fold_constant(call: Call, fitting: Sequence[Function], problems: Problems) -> Any:
    literal = call.arguments[0]
    if not isinstance(literal, Constant) or literal.value.__class__ not in (str, int):
        return NOT_COMPUTED
    try:
        return fitting[0].implementation(literal.value)
    except OperationError as error:
        help_ = (
            f"write it as {_FOLDED_CONVERSIONS[call.name]}"
            if error.kind == "invalid-argument"
            else None
        )
        problems.error("bad-literal", str(error), literal.span, help_)
        return NOT_COMPUTED


def _report_mismatch(
    call: Call,
    receiver: Type | None,
    arguments: Sequence[Type],
    named: Sequence[Function],
    called: Sequence[Function],
    counted: Sequence[Function],
    declarations: Declarations,
    problems: Problems,
) -> None:
    """Note why no function fits."""
    name = call.name
    if counted:
        operands = ", ".join(map(str, arguments))
        shown = f"{receiver}.{name}({operands})" if receiver is not None else f"{name}({operands})"
        known = ", ".join(f"`{function}`" for function in counted[:4])
        span = _find_mismatched_operand(call, receiver, arguments, counted).span
        problems.error("no-such-overload", f"there is no `{shown}`", span, f"there is {known}")
    elif called:
        counts = sorted({len(function.parameters) for function in called})
        takes = " or ".join(map(str, counts))
        plural = "" if counts == [1] else "s"
        message = f"`{name}` takes {takes} argument{plural}, not {len(arguments)}"
        problems.error("wrong-argument-count", message, call.name_span)
    elif named:
        form = f"value.{name}(…)" if receiver is None else f"{name}(value)"
        message = f"`{name}` is not called like this"
        problems.error("no-such-overload", message, call.name_span, f"write `{form}`")
    elif name in UNAVAILABLE:
        problems.error("not-available", f"`{name}` is not available yet", call.name_span)
    elif name in MACRO_NAMES:
        problems.error("bad-macro", f"`{name}` is not used like this", call.span)
    else:
        known_names = (*declarations.overloads, *MACRO_NAMES)
        message = f"unknown function `{name}`"
        elsewhere = _FOREIGN_NAMES.get(name)
        help_ = f"write `{elsewhere}`" if elsewhere else did_you_mean(name, known_names)
        problems.error("undeclared-reference", message, call.name_span, help_)


def _find_mismatched_operand(
    call: Call, receiver: Type | None, arguments: Sequence[Type], counted: Sequence[Function]
) -> Expr:
    """The one operand that fits no signature, or the call where it is not one alone."""
    operands: list[Expr] = list(call.arguments)
    types = list(arguments)
    signatures = [list(function.parameters) for function in counted]
    if receiver is not None and call.receiver is not None:
        operands.insert(0, call.receiver)
        types.insert(0, receiver)
        for signature, function in zip(signatures, counted, strict=True):
            signature.insert(0, function.receiver or DYN)
    wrong = [
        operand
        for position, operand in enumerate(operands)
        if not any(is_assignable(signature[position], types[position]) for signature in signatures)
    ]
    return wrong[0] if len(wrong) == 1 else call
