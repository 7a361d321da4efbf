"""`--fail-on`: CEL over the report, so that a change can be gated on recorded runs."""

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
    list_of,
    map_of,
    name_of,
    record,
)
from policyguard.model.diagnostic import Diagnostic, Span
from policyguard.report.figures import Figures, GateFigures

OPTION = "--fail-on"
_NOT_READ = ("gates", "elapsed_s")
_LONGEST = 60
"""Characters of a value that is shown."""


class GateError(ValueError):
    """Expressions that cannot be used; `diagnostics` say what is wrong with them."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("; ".join(found.message for found in self.diagnostics))


class Gate:
    """Conditions on a report, each of which fails it where it holds.

    They are checked against the report's own types: a field that there is not is an error. Raises
    `GateError` with all that is wrong. `baseline` can be read only where there is one.
    """

    def __init__(self, expressions: Iterable[str], *, compared: bool) -> None:
        self._programs: list[Program] = []
        declarations = Declarations(
            {name: of for name, of in _report().items() if compared or name != "baseline"}
        )
        wrong: list[Diagnostic] = []
        for expression in expressions:
            try:
                self._programs.append(compile(expression, declarations, expect=BOOL))
            except CelError as error:
                wrong += [
                    _diagnostic(problem, expression, compared=compared)
                    for problem in error.problems
                    if problem.severity == "error"
                ]
        if wrong:
            raise GateError(wrong)

    def judge(self, figures: Figures) -> bool:
        """Judge a report, and write into its `gates` what came of it. True: one has held.

        What cannot be decided (a rate of nothing) has held: a gate that sees nothing is not open.
        """
        values = msgspec.to_builtins(figures)
        figures.gates = [_judged(program, values) for program in self._programs]
        return any(gate.held is not False for gate in figures.gates)


def _judged(program: Program, values: dict[str, Any]) -> GateFigures:
    read = {path: _shown(_at(values, path)) for path in sorted(program.reads)}
    try:
        held = program(**values)
    except CelEvaluationError as error:
        nothing = [f"`{path}` is not known" for path, value in read.items() if value == "null"]
        reason = ", ".join(nothing) or str(error)
        return GateFigures(program.source, None, read, reason)
    return GateFigures(program.source, held is True, read)


def _at(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _shown(value: Any) -> str:
    if isinstance(value, (list, dict)):
        return f"{len(value)} entries"
    if isinstance(value, float):
        return f"{value:.4g}"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def _diagnostic(problem: Problem, expression: str, *, compared: bool) -> Diagnostic:
    lines = tuple(expression.split("\n"))
    help_ = problem.help
    if not compared and problem.code == "undeclared-reference" and "`baseline`" in problem.message:
        help_ = "name the policy to compare with: --baseline FILE_OR_PACK"
    return Diagnostic(
        code=f"cel/{problem.code}",
        severity="error",
        message=problem.message,
        span=Span(OPTION, problem.line, problem.column, problem.end_line, problem.end_column),
        help=help_,
        lines=lines[problem.line - 1 : problem.end_line],
    )


@cache
def _report() -> dict[str, Type]:
    """The report's fields as CEL sees them, out of their Python types."""
    figures = inspect.type_info(Figures)
    assert isinstance(figures, inspect.StructType)  # noqa: S101 - it is one
    return {
        field.name: _type(field.type) for field in figures.fields if field.name not in _NOT_READ
    }


def _type(told: inspect.Type) -> Type:
    match told:
        case inspect.BoolType():
            return BOOL
        case inspect.IntType():
            return INT
        case inspect.FloatType():
            return DOUBLE
        case inspect.StrType():
            return STRING
        case inspect.LiteralType():
            return name_of("value", frozenset(map(str, told.values)))
        case inspect.UnionType():
            # A value that is not there is null, and comparing null is an error at run time.
            (given,) = (one for one in told.types if not isinstance(one, inspect.NoneType))
            return _type(given)
        case inspect.ListType():
            return list_of(_type(told.item_type))
        case inspect.TupleType():
            return list_of(_type(told.item_types[0]))
        case inspect.DictType():
            return map_of(_type(told.key_type), _type(told.value_type))
        case inspect.StructType():
            fields = {field.name: _type(field.type) for field in told.fields}
            return record(fields, name=told.cls.__name__)
    raise TypeError(f"a report has no fields of {told}")
