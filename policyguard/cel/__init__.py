"""CEL, the Common Expression Language, compiled to Python functions.

    >>> from policyguard.cel import compile
    >>> declarations = {"call": {"tool": "string", "args": "map(string, dyn)"}}
    >>> program = compile("call.tool == 'search' && call.args.limit > 10", declarations)
    >>> program(call={"tool": "search", "args": {"limit": 20}})
    True

`syntax` parses the source, `check` type-checks the tree, `codegen` generates Python, and `runtime`
holds the operations that the generated code calls. Values are plain Python, plus `Uint`,
`Timestamp` and `Duration`. `docs/cel.md` is the guide for authors.

Names are imported when they are first used: a cached policy compiles an expression when it is first
evaluated, and most processes evaluate few.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from policyguard.cel.declarations import Declarations
    from policyguard.cel.errors import (
        CelError,
        CelEvaluationError,
        CelLimitError,
        OperationError,
        Problem,
    )
    from policyguard.cel.functions.function import Function
    from policyguard.cel.functions.standard import STANDARD
    from policyguard.cel.program import Program, compile  # noqa: A004  # as in `re.compile`
    from policyguard.cel.runtime.cost_limits import COST_LIMITS, CostLimits
    from policyguard.cel.types.times import Duration, Timestamp
    from policyguard.cel.types.types import (
        BOOL,
        BYTES,
        DOUBLE,
        DURATION,
        DYN,
        INT,
        NULL,
        NUMBER,
        STRING,
        TIMESTAMP,
        TYPE,
        UINT,
        Type,
        enum_of,
        list_of,
        map_of,
        record,
    )
    from policyguard.cel.types.uint import Uint

_MODULES = {
    "BOOL": "policyguard.cel.types.types",
    "BYTES": "policyguard.cel.types.types",
    "COST_LIMITS": "policyguard.cel.runtime.cost_limits",
    "DOUBLE": "policyguard.cel.types.types",
    "DURATION": "policyguard.cel.types.types",
    "DYN": "policyguard.cel.types.types",
    "INT": "policyguard.cel.types.types",
    "NULL": "policyguard.cel.types.types",
    "NUMBER": "policyguard.cel.types.types",
    "STANDARD": "policyguard.cel.functions.standard",
    "STRING": "policyguard.cel.types.types",
    "TIMESTAMP": "policyguard.cel.types.types",
    "TYPE": "policyguard.cel.types.types",
    "UINT": "policyguard.cel.types.types",
    "CelError": "policyguard.cel.errors",
    "CelEvaluationError": "policyguard.cel.errors",
    "CelLimitError": "policyguard.cel.errors",
    "CostLimits": "policyguard.cel.runtime.cost_limits",
    "Declarations": "policyguard.cel.declarations",
    "Duration": "policyguard.cel.types.times",
    "Function": "policyguard.cel.functions.function",
    "OperationError": "policyguard.cel.errors",
    "Problem": "policyguard.cel.errors",
    "Program": "policyguard.cel.program",
    "Timestamp": "policyguard.cel.types.times",
    "Type": "policyguard.cel.types.types",
    "Uint": "policyguard.cel.types.uint",
    "compile": "policyguard.cel.program",
    "enum_of": "policyguard.cel.types.types",
    "list_of": "policyguard.cel.types.types",
    "map_of": "policyguard.cel.types.types",
    "record": "policyguard.cel.types.types",
}

__all__ = [
    "BOOL",
    "BYTES",
    "COST_LIMITS",
    "DOUBLE",
    "DURATION",
    "DYN",
    "INT",
    "NULL",
    "NUMBER",
    "STANDARD",
    "STRING",
    "TIMESTAMP",
    "TYPE",
    "UINT",
    "CelError",
    "CelEvaluationError",
    "CelLimitError",
    "CostLimits",
    "Declarations",
    "Duration",
    "Function",
    "OperationError",
    "Problem",
    "Program",
    "Timestamp",
    "Type",
    "Uint",
    "compile",
    "enum_of",
    "list_of",
    "map_of",
    "record",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)
