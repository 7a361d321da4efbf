"""`--fail-on`: conditions in CEL over the report, to gate a change on recorded runs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

from policyguard.cel import (
    BOOL,
    DOUBLE,
    INT,
    STRING,
    CelError,
    CelEvaluationError,
    Declarations,
    Problem,
    Program,
    Type,
    compile,  # noqa: A004 - its public name
    enum_of,
    list_of,
    map_of,
    record,
)
from policyguard.model.diagnostic import Diagnostic, Span
from policyguard.model.errors import PolicyguardError
from policyguard.report.replay.figures import Figures, GateFigures

OPTION = "--fail-on"
_EXCLUDED_FIELDS = ("gates", "created_at", "elapsed_s")
_MAX_SHOWN_CHARS = 60
"""Characters of a value in a report."""


class GateError(PolicyguardError, ValueError):
    """Invalid `--fail-on` expressions, with their `diagnostics`."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("; ".join(found.message for found in self.diagnostics))


class Gate:
    """Conditions under which a report fails.

    They are checked against the types of the report, so an unknown field is an error; `baseline`
    is unknown without one. Raises `GateError` with every diagnostic.
    """

    def __init__(self, expressions: Iterable[str], *, has_baseline: bool) -> None:
        self._programs: list[Program] = []
        declarations = Declarations(
            {
                name: type_
                for name, type_ in _report_types().items()
                if has_baseline or name != "baseline"
            }
        )
        diagnostics: list[Diagnostic] = []
        for expression in expressions:
            try:
                self._programs.append(compile(expression, declarations, expect=BOOL))
            except CelError as error:
                diagnostics += [
                    _diagnostic(problem, expression, has_baseline=has_baseline)
                    for problem in error.problems
                    if problem.severity == "error"
                ]
        if diagnostics:
            raise GateError(diagnostics)

    def evaluate(self, figures: Figures) -> bool:
        """Evaluate the conditions, set the report's `gates`, and return whether one is true.

        A condition that cannot be decided (a rate without runs) counts as true.
        """
        values = msgspec.to_builtins(figures)
        figures.gates = [_evaluate(program, values) for program in self._programs]
        return any(gate.triggered is not False for gate in figures.gates)


def _evaluate(program: Program, values: dict[str, Any]) -> GateFigures:
    read = {path: _format_value(_read_path(values, path)) for path in sorted(program.reads)}
    try:
        triggered = program(**values) is True
    except CelEvaluationError as error:
        unknown = [f"`{path}` is unknown" for path, value in read.items() if value == "null"]
        reason = ", ".join(unknown) or str(error)
        return GateFigures(program.source, None, read, reason)
    return GateFigures(program.source, triggered, read)


def _read_path(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _format_value(value: Any) -> str:
    if isinstance(value, (list, dict)):
        return f"{len(value)} entries"
    if isinstance(value, float):
        return f"{value:.4g}"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _MAX_SHOWN_CHARS else text[:_MAX_SHOWN_CHARS] + "…"


def _diagnostic(problem: Problem, expression: str, *, has_baseline: bool) -> Diagnostic:
    lines = tuple(expression.split("\n"))
    help_ = problem.help
    if (
        not has_baseline
        and problem.code == "undeclared-reference"
        and "`baseline`" in problem.message
    ):
        help_ = "pass the policy to compare with: --baseline FILE_OR_PACK"
    return Diagnostic(
        code=f"cel/{problem.code}",
        severity="error",
        message=problem.message,
        span=Span(OPTION, problem.line, problem.column, problem.end_line, problem.end_column),
        help=help_,
        lines=lines[problem.line - 1 : problem.end_line],
    )


@cache
def _report_types() -> dict[str, Type]:
    """Return the CEL types of the report's fields."""
    figures = inspect.type_info(Figures)
    assert isinstance(figures, inspect.StructType)  # noqa: S101 - it is one
    return {
        field.encode_name: _to_cel_type(field.type)
        for field in figures.fields
        if field.encode_name not in _EXCLUDED_FIELDS
    }


def _to_cel_type(type_info: inspect.Type) -> Type:
    match type_info:
        case inspect.BoolType():
            return BOOL
        case inspect.IntType():
            return INT
        case inspect.FloatType():
            return DOUBLE
        case inspect.StrType():
            return STRING
        case inspect.LiteralType():
            return enum_of("value", frozenset(map(str, type_info.values)))
        case inspect.UnionType():
            # A value that is not there is null, and comparing null is an error at run time.
            (present,) = (one for one in type_info.types if not isinstance(one, inspect.NoneType))
            return _to_cel_type(present)
        case inspect.ListType():
            return list_of(_to_cel_type(type_info.item_type))
        case inspect.TupleType():
            return list_of(_to_cel_type(type_info.item_types[0]))
        case inspect.DictType():
            return map_of(_to_cel_type(type_info.key_type), _to_cel_type(type_info.value_type))
        case inspect.StructType():
            fields = {field.encode_name: _to_cel_type(field.type) for field in type_info.fields}
            return record(fields, name=type_info.cls.__name__)
    raise TypeError(f"a report has no fields of {type_info}")
