"""Runs the tests of google/cel-spec.

The data is read from `CEL_SPEC_DIR` (default: `../shared/cel-spec` beside the project).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from policyguard import cel
from policyguard.cel.types.values import TYPE_VALUES, TypeValue
from tests.cel import textproto

ROOT = Path(__file__).resolve().parents[2]
SPEC = Path(os.environ.get("CEL_SPEC_DIR", ROOT / ".." / "shared" / "cel-spec"))
SUBSET = SPEC / "policy_subset.txt"

_PRIMITIVES = {
    "BOOL": cel.BOOL,
    "INT64": cel.INT,
    "UINT64": cel.UINT,
    "DOUBLE": cel.DOUBLE,
    "STRING": cel.STRING,
    "BYTES": cel.BYTES,
}
_DURATION = "type.googleapis.com/google.protobuf.Duration"
_TIMESTAMP = "type.googleapis.com/google.protobuf.Timestamp"


@dataclass(frozen=True)
class Case:
    name: str
    nocheck: bool
    test: textproto.Message

    @property
    def source(self) -> str:
        return str(self.test["expr"][0].text)

    @property
    def wants_error(self) -> bool:
        return "eval_error" in self.test

    def compiles(self) -> bool:
        try:
            cel.compile(self.source, self.declarations(), check=not self.nocheck)
        except cel.CelError:
            return False
        return True

    def run(self) -> str | None:
        """Return None if the test passes, else the actual result."""
        try:
            program = cel.compile(self.source, self.declarations(), check=not self.nocheck)
            result = program.raw(**self.bindings())
        except (cel.CelError, cel.CelEvaluationError) as error:
            return None if self.wants_error else f"{type(error).__name__}: {error}"
        if self.wants_error:
            return f"gives {result!r} instead of an error"
        expected = self.expected()
        return None if same(expected, result) else f"gives {result!r} instead of {expected!r}"

    def expected(self) -> Any:
        if "typed_result" in self.test:
            return value_of(self.test["typed_result"][0]["result"][0])
        return value_of(self.test["value"][0]) if "value" in self.test else True

    def bindings(self) -> dict[str, Any]:
        return {
            entry["key"][0].text: value_of(entry["value"][0]["value"][0])
            for entry in self.test.get("bindings", [])
        }

    def declarations(self) -> cel.Declarations:
        bound = dict.fromkeys(self.bindings(), cel.DYN)
        declared = {
            entry["name"][0].text: type_of(entry["ident"][0]["type"][0])
            for entry in self.test.get("type_env", [])
            if "ident" in entry
        }
        container = self.test["container"][0].text if "container" in self.test else ""
        return cel.Declarations({**bound, **declared}, container=container)


def type_of(message: textproto.Message) -> cel.Type:
    ((kind, (value,)),) = message.items()
    match kind:
        case "primitive":
            return _PRIMITIVES[value]
        case "list_type":
            return cel.list_of(type_of(value["elem_type"][0]))
        case "map_type":
            return cel.map_of(type_of(value["key_type"][0]), type_of(value["value_type"][0]))
        case "well_known":
            return {"TIMESTAMP": cel.TIMESTAMP, "DURATION": cel.DURATION}[value]
    return cel.DYN


def value_of(message: textproto.Message) -> Any:
    ((kind, (value,)),) = message.items()
    match kind:
        case "null_value":
            return None
        case "bool_value":
            return value
        case "int64_value":
            return int(value)
        case "uint64_value":
            return cel.Uint(value)
        case "double_value":
            return float(value)
        case "string_value":
            return value.text
        case "bytes_value":
            return bytes(value)
        case "type_value":
            return TYPE_VALUES[value.text]
        case "list_value":
            return [value_of(item) for item in value.get("values", [])]
        case "map_value":
            entries = value.get("entries", [])
            return {value_of(e["key"][0]): value_of(e["value"][0]) for e in entries}
        case "object_value":
            ((name, (content,)),) = value.items()
            ns = content.get("seconds", [0])[0] * 10**9 + content.get("nanos", [0])[0]
            return {_DURATION: cel.Duration, _TIMESTAMP: cel.Timestamp}[name].from_ns(ns)
    raise ValueError(f"unknown kind of value: {kind}")


def same(expected: Any, result: Any) -> bool:
    """Whether two values and all their types are equal; NaN equals NaN."""
    if expected.__class__ is not result.__class__:
        return False
    match expected:
        case list():
            return len(expected) == len(result) and all(map(same, expected, result))
        case dict():
            return len(expected) == len(result) and all(
                any(same(key, other) and same(value, result[other]) for other in result)
                for key, value in expected.items()
            )
        case float():
            if math.isnan(expected):
                return math.isnan(result)
            return expected == result and math.copysign(1, expected) == math.copysign(1, result)
        case TypeValue():
            return expected is result
    return bool(expected == result)


@cache
def _tests(file: str) -> dict[str, textproto.Message]:
    text = (SPEC / "tests" / "simple" / "testdata" / f"{file}.textproto").read_text("utf-8")
    return {
        f"{file}/{section['name'][0].text}/{test['name'][0].text}": test
        for section in textproto.parse(text).get("section", [])
        for test in section["test"]
    }


def subset() -> Iterator[Case]:
    """Yield the tests of the policy subset."""
    for line in SUBSET.read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            name, *marks = line.split()
            test = _tests(name.split("/")[0])[name]
            yield Case(name, "nocheck" in marks, test)


def whole_file(file: str) -> Iterator[Case]:
    """Yield all tests of one file."""
    for name, test in _tests(file).items():
        yield Case(name, test.get("disable_check") == [True], test)
