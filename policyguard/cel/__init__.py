"""CEL, the Common Expression Language, compiled to Python functions.

    >>> declarations = {"call": {"tool": "string", "args": "map(string, dyn)"}}
    >>> program = compile("call.tool == 'search' && call.args.limit > 10", declarations)
    >>> program(call={"tool": "search", "args": {"limit": 20}})
    True

`syntax` parses the source, `check` type-checks the tree, `codegen` generates Python, and `runtime`
holds the operations that the generated code calls. Values are plain Python, plus `Uint`,
`Timestamp` and `Duration`. `docs/cel.md` is the guide for authors.
"""

from __future__ import annotations

from policyguard.cel.declarations import Declarations
from policyguard.cel.errors import (
    CelError,
    CelEvaluationError,
    CelLimitError,
    OperationError,
    Problem,
)
from policyguard.cel.functions.standard import STANDARD, Function
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
