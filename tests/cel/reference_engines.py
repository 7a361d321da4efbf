"""Other implementations of CEL, with results in one form.

`Oracle` is Google's C++ implementation (cel-expr-python), `CelPy` is cel-python's interpreter.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

import pytest

from policyguard import cel
from policyguard.cel.types.values import TypeValue
from tests.cel.expressions import VARIABLES

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)

# The declared type of each kind of generated variable.
TYPES = {
    "bool": cel.BOOL,
    "int": cel.INT,
    "double": cel.DOUBLE,
    "string": cel.STRING,
    "list int": cel.list_of(cel.INT),
    "list string": cel.list_of(cel.STRING),
    "list dyn": cel.list_of(cel.DYN),
    "map": cel.map_of(cel.STRING, cel.DYN),
    "dyn": cel.DYN,
}
TYPED = cel.Declarations({name: TYPES[kind] for name, kind in VARIABLES.items()})
UNTYPED = cel.Declarations(dict.fromkeys(VARIABLES, cel.DYN))


@dataclass(frozen=True)
class EngineResult:
    """A value, or the message of an error if `value` is None."""

    value: Any
    error: str = ""

    def is_same_as(self, other: EngineResult) -> bool:
        return self.value == other.value

    def __str__(self) -> str:
        return f"error: {self.error}" if self.value is None else repr(self.value)


def evaluate(program: cel.Program, values: dict[str, Any]) -> EngineResult:
    try:
        return EngineResult(_ours(program.raw(**values)))
    except cel.CelEvaluationError as error:
        return EngineResult(None, f"{error.kind}: {error}")


def _ours(value: Any) -> Any:
    match value:
        case cel.Uint():
            return "uint", int(value)
        case list() | tuple():
            return "list", [_ours(item) for item in value]
        case dict():
            return "map", _entries((_ours(key), _ours(item)) for key, item in value.items())
        case TypeValue():
            return "type", value.name.rpartition(".")[2].lower()
        case cel.Duration() | cel.Timestamp():
            return type(value).__name__, value.ns // 1000
    return _plain(value)


def _plain(value: Any) -> Any:
    # By `repr`, so that NaN equals NaN, and -0.0 differs from 0.0.
    return type(value).__name__, repr(value)


def _entries(entries: Any) -> Any:
    return sorted(entries, key=repr)


class Oracle:
    def __init__(self) -> None:
        self.cel = pytest.importorskip(
            "cel_expr_python.cel", reason="cel-expr-python is not installed"
        )
        from cel_expr_python.ext import ext_strings

        types = self.cel.Type
        known = {
            "bool": types.BOOL,
            "int": types.INT,
            "double": types.DOUBLE,
            "string": types.STRING,
            "list int": types.List(types.INT),
            "list string": types.List(types.STRING),
            "list dyn": types.List(types.DYN),
            "map": types.Map(types.STRING, types.DYN),
            "dyn": types.DYN,
        }
        self.error = types.ERROR
        self.untyped = self.cel.NewEnv(
            variables=dict.fromkeys(VARIABLES, types.DYN), extensions=[ext_strings.ExtStrings()]
        )
        self.typed = self.cel.NewEnv(
            variables={name: known[kind] for name, kind in VARIABLES.items()},
            extensions=[ext_strings.ExtStrings()],
        )

    def accepts(self, source: str) -> bool:
        """Whether its checker finds no problem."""
        try:
            self.typed.compile(source)
        except RuntimeError:
            return False
        return True

    def evaluate(self, source: str, values: dict[str, Any]) -> EngineResult:
        program = self.untyped.compile(source, disable_check=True)
        result = program.eval(self.untyped.Activation(values))
        if result.type() == self.error:
            return EngineResult(None, str(result.value()))
        return EngineResult(self.form(result))

    def form(self, result: Any) -> Any:
        value = result.plain_value()
        if result.type() == self.cel.Type.UINT:
            return "uint", value
        match value:
            case list():
                return "list", [self.form(item) for item in result.value()]
            case dict():
                pairs = result.value().items()
                return "map", _entries((_plain(key), self.form(item)) for key, item in pairs)
            case bytearray():
                return _plain(bytes(value))
            case self.cel.Type():
                name = value.name().rpartition(".")[2].lower()
                return "type", {"null": "null_type"}.get(name, name)
            case datetime.timedelta():
                return "Duration", value // _MICROSECOND
            case datetime.datetime():
                return "Timestamp", (value - _EPOCH) // _MICROSECOND
        return _plain(value)


class CelPy:
    def __init__(self) -> None:
        import celpy

        self.celpy = celpy
        self.environment = celpy.Environment()

    def evaluate(self, source: str, values: dict[str, Any]) -> EngineResult:
        activation = {name: self.celpy.json_to_cel(value) for name, value in values.items()}
        program = self.environment.program(self.environment.compile(source))
        try:
            return EngineResult(self.form(program.evaluate(activation)))
        except self.celpy.CELEvalError as error:
            return EngineResult(None, str(error))
        except Exception as error:  # noqa: BLE001  # what it raises besides is a finding, too
            return EngineResult(("crash", repr(error)))

    def form(self, value: Any) -> Any:
        types = self.celpy.celtypes
        match value:
            case types.BoolType():
                return "bool", repr(bool(value))
            case types.UintType():
                return "uint", int(value)
            case types.TimestampType():
                return "Timestamp", (value - _EPOCH) // _MICROSECOND
            case types.DurationType():
                return "Duration", value // _MICROSECOND
            case types.IntType():
                return _plain(int(value))
            case types.DoubleType():
                return _plain(float(value))
            case types.StringType():
                return _plain(str(value))
            case types.BytesType():
                return _plain(bytes(value))
            case list():
                return "list", [self.form(item) for item in value]
            case dict():
                pairs = value.items()
                return "map", _entries((self.form(key), self.form(item)) for key, item in pairs)
        return _plain(value)
