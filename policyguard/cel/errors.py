"""Errors: problems found at compile time, and failures at run time.

`CelError` carries every `Problem` of a source. `CelEvaluationError` is raised at run time. Its
subclass `OperationError` is what CEL calls an error value: `false && <error>` is false (cel-spec
langdef.md, "Logical Operators"). `CelLimitError`, the other subclass, is never absorbed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from policyguard.model.errors import ExpressionError, PolicyguardError

_MAX_QUOTED_LENGTH = 80


def quote_short(text: str) -> str:
    """Quote a value for a message, or elide it: half a secret does not look like one."""
    return f"`{text if len(text) <= _MAX_QUOTED_LENGTH else '…'}`"


class Problem(msgspec.Struct, frozen=True):
    """One error or warning in the source of an expression.

    Lines and columns count from 1, in code points of the expression; the end is exclusive.
    """

    code: str
    message: str
    line: int
    column: int
    end_line: int
    end_column: int
    help: str | None = None
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        text = f"{self.line}:{self.column}: {self.severity}[cel/{self.code}]: {self.message}"
        return f"{text} ({self.help})" if self.help else text


class CelError(PolicyguardError, ValueError):
    """The expression does not compile. `problems` holds everything found, warnings included."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems: tuple[Problem, ...] = tuple(problems)


class CelEvaluationError(ExpressionError):
    """The expression has no value for these variables.

    `kind` is a slug: `no-such-key`, `no-such-overload`, `overflow`, `division-by-zero`,
    `index-out-of-range`, `invalid-argument`, `duplicate-key`, `undeclared-reference`, or a
    `limit-…`.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind

    def __reduce__(self) -> tuple[type[CelEvaluationError], tuple[str, str]]:
        return type(self), (self.kind, str(self))


class OperationError(CelEvaluationError):
    """An error value: `&&`, `||`, `all` and `exists` may absorb it."""


class CelLimitError(CelEvaluationError):
    """A cost limit was exceeded (see `cost_limits`). Nothing absorbs it."""
