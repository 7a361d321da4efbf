"""Overload resolution: which functions a call may invoke."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, Final

import msgspec

from policyguard.cel.check.problems import Problems, did_you_mean
from policyguard.cel.declarations import Declarations
from policyguard.cel.errors import OperationError
from policyguard.cel.functions.function import Function
from policyguard.cel.syntax.ast import BadExpr, Call, Constant, Expr, ListLiteral
from policyguard.cel.syntax.macros import MACRO_NAMES
from policyguard.cel.types.types import DYN, Type, is_assignable
from policyguard.engines.regex import RegexError

NOT_COMPUTED: Final = object()
"""Marks a value that is not known at compile time."""

# CEL functions by their names in other languages.
_FOREIGN_NAMES: Final = {
    "any": "list.exists(x, …)",
    "float": "double(…)",
    "includes": ".contains('…')",
    "len": "size(…)",
    "length": "size(…)",
    "lower": ".lowerAscii()",
    "str": "string(…)",
    "strip": ".trim()",
    "toLower": ".lowerAscii()",
    "toUpper": ".upperAscii()",
    "upper": ".upperAscii()",
}
_ACCESSORS: Final = {
    **dict.fromkeys(("day", "date"), "getDate"),
    **dict.fromkeys(("dayofweek", "weekday"), "getDayOfWeek"),
    **dict.fromkeys(("hour", "hours"), "getHours"),
    **dict.fromkeys(("len", "length"), "size"),
    **dict.fromkeys(("minute", "minutes"), "getMinutes"),
    "month": "getMonth",
    **dict.fromkeys(("second", "seconds"), "getSeconds"),
    "year": "getFullYear",
}
"""What other languages write as fields."""
# Conversions of a literal, done at compile time so that a failure is a problem of the policy.
_FOLDED_CONVERSIONS: Final = {"duration": "'90s' or '1h30m'", "timestamp": "'2026-01-31T09:30:00Z'"}


class ResolvedCall(msgspec.Struct, frozen=True):
    """The overloads that fit a call: several only if a type is not known."""

    overloads: tuple[Function, ...]
    result_type: Type
    prepared_argument: Any = NOT_COMPUTED
    """The last argument, a literal, after `Function.prepare_literal`."""
    constant_value: Any = NOT_COMPUTED
    """The value of the whole call, if known."""


def resolve_call(
    call: Call,
    receiver: Type | None,
    arguments: Sequence[Type],
    declarations: Declarations,
    problems: Problems,
    *,
    strict: bool,
) -> ResolvedCall | None:
    """Resolve `call`; report a problem and return None if no overload fits."""
    candidates = declarations.overloads.get(call.name, ())
    same_form = [one for one in candidates if (one.receiver is None) == (receiver is None)]
    same_count = [one for one in same_form if len(one.parameters) == len(arguments)]
    overloads = tuple(
        overload
        for overload in same_count
        if (receiver is None or is_assignable(overload.receiver or DYN, receiver))
        and all(map(is_assignable, overload.parameters, arguments))
    )
    if overloads:
        results = {overload.result for overload in overloads}
        result = results.pop() if len(results) == 1 else DYN
        if strict and call.name in _FOLDED_CONVERSIONS and receiver is None and len(arguments) == 1:
            value = _fold_constant(call, overloads, problems)
            return ResolvedCall(overloads, result, constant_value=value)
        _check_library(call, overloads[0], problems)
        argument = _prepare_literal(call, overloads, problems)
        return ResolvedCall(overloads, result, prepared_argument=argument)
    if not strict:
        return None
    if same_count:
        _report_types(call, receiver, arguments, same_count, problems)
    elif same_form:
        counts = sorted({len(overload.parameters) for overload in same_form})
        plural = "" if counts == [1] else "s"
        expected = f"{' or '.join(map(str, counts))} argument{plural}"
        message = f"`{call.name}` takes {expected}, not {len(arguments)}"
        problems.report("wrong-argument-count", message, call.name_span)
    elif candidates:
        form = f"value.{call.name}(…)" if receiver is None else f"{call.name}(value)"
        message = f"`{call.name}` cannot be called like this"
        problems.report("no-such-overload", message, call.name_span, f"write `{form}`")
    else:
        _report_unknown(call, declarations, problems)
    return None


def _check_library(call: Call, function: Function, problems: Problems) -> None:
    if function.library and find_spec(function.library) is None:
        message = f"`{call.name}` needs the library {function.library}, which is not installed"
        help_ = f"install it with `pip install 'policyguard-engine[{function.extra}]'`"
        problems.report("missing-library", message, call.name_span, help_)


def _prepare_literal(call: Call, overloads: Sequence[Function], problems: Problems) -> Any:
    """Return the compile-time form of the literal that the function takes."""
    function = next((one for one in overloads if one.prepare_literal is not None), None)
    if function is None or function.prepare_literal is None:
        return NOT_COMPUTED
    literal = call.arguments[-1]
    if isinstance(literal, BadExpr):
        return NOT_COMPUTED
    if isinstance(literal, ListLiteral):
        for item in literal.items:
            if isinstance(item, Constant) and isinstance(item.value, str):
                _prepare(function.prepare_literal, item.value, item, problems)
        return NOT_COMPUTED
    if not isinstance(literal, Constant) or not isinstance(literal.value, str):
        if function.requires_literal:
            message = f"`{call.name}` needs a string literal"
            problems.report("not-constant", message, literal.span)
        return NOT_COMPUTED
    return _prepare(function.prepare_literal, literal.value, literal, problems)


def _prepare(
    prepare: Callable[[str], object], text: str, literal: Constant, problems: Problems
) -> Any:
    try:
        prepared = prepare(text)
    except RegexError as error:
        message = f"invalid RE2 pattern: {error.reason}"
        problems.report("bad-regex", message, literal.span, error.help)
    except ValueError as error:
        problems.report("bad-argument", str(error), literal.span, getattr(error, "help", None))
    else:
        return NOT_COMPUTED if prepared is None else prepared
    return NOT_COMPUTED


def _fold_constant(call: Call, overloads: Sequence[Function], problems: Problems) -> Any:
    literal = call.arguments[0]
    if not isinstance(literal, Constant) or literal.value.__class__ not in (str, int):
        return NOT_COMPUTED
    try:
        return overloads[0].implementation(literal.value)
    except OperationError as error:
        example = f"write it as {_FOLDED_CONVERSIONS[call.name]}"
        help_ = example if error.kind == "invalid-argument" else None
        problems.report("bad-literal", str(error), literal.span, help_)
        return NOT_COMPUTED


def _report_types(
    call: Call,
    receiver: Type | None,
    arguments: Sequence[Type],
    overloads: Sequence[Function],
    problems: Problems,
) -> None:
    """Report wrong types: at the only operand that fits no overload, else at the call."""
    operands: list[Expr] = list(call.arguments)
    types = list(arguments)
    signatures = [list(overload.parameters) for overload in overloads]
    attempted = f"{call.name}({', '.join(map(str, arguments))})"
    if receiver is not None and call.receiver is not None:
        attempted = f"{receiver}.{attempted}"
        operands.insert(0, call.receiver)
        types.insert(0, receiver)
        for signature, overload in zip(signatures, overloads, strict=True):
            signature.insert(0, overload.receiver or DYN)
    wrong = [
        operand
        for index, operand in enumerate(operands)
        if not any(is_assignable(signature[index], types[index]) for signature in signatures)
    ]
    span = wrong[0].span if len(wrong) == 1 else call.span
    help_ = f"use {', '.join(f'`{overload}`' for overload in overloads[:4])}"
    if call.name == "contains" and receiver is not None and receiver.kind in ("list", "map"):
        help_ = f"write `item in {receiver.kind}`"
    problems.report("no-such-overload", f"no overload `{attempted}`", span, help_)


def _report_unknown(call: Call, declarations: Declarations, problems: Problems) -> None:
    name = call.name
    if name in MACRO_NAMES:
        problems.report("bad-macro", f"wrong arguments for the macro `{name}`", call.span)
    else:
        known_names = (*declarations.overloads, *MACRO_NAMES)
        native = _FOREIGN_NAMES.get(name)
        if name == "get" and call.arguments and (key := _constant_text(call.arguments[0])):
            native = f".{key}` in its place; where it may be missing, ask `has(….{key})"
        help_ = f"write `{native}`" if native else did_you_mean(name, known_names)
        problems.report("undeclared-reference", f"unknown function `{name}`", call.name_span, help_)


def find_accessor(field: str, declarations: Declarations) -> str | None:
    """Return the function to call for what is no field."""
    function = _ACCESSORS.get(field.casefold(), field)
    return function if function in declarations.overloads else None


def _constant_text(node: Expr) -> str:
    """Return a constant text that can be the name of a field; empty for anything else."""
    text = node.raw_value if isinstance(node, Constant) else None
    return text if isinstance(text, str) and text.isidentifier() else ""
