"""The types of a test file, with the names of `schemas/policy-tests.schema.json`.

Durations and times are text, as in the file; the functions convert them to nanoseconds or seconds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path as FilePath
from typing import Any, Literal, NamedTuple

import msgspec

from policyguard.compiler import CompiledPolicy
from policyguard.compiler.load import scalars
from policyguard.compiler.load.layer_validation import find_span
from policyguard.engines.yaml_tree import Node, Path
from policyguard.evaluator.session_state import PROGRESSING
from policyguard.model.decision import Decision
from policyguard.model.diagnostic import Span
from policyguard.model.effect import Effect, ResultEffect
from policyguard.report.policy_tests.results import Failure, Mismatch

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TESTS_FOLDER = "tests"
"""The name of a folder that holds tests, next to what they test."""

MAIN_SESSION = "main"
"""The name of a test's own session."""


class _Struct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class ScriptedResult(_Struct, frozen=True, kw_only=True):
    """The result of a call.

    Without `ok` it is a success, unless `error`, `exit_code` or `status` indicate a failure. `mcp`
    is an MCP tool result as sent by a server, instead of `text`; `meta` comes from the host.
    """

    ok: bool | None = None
    text: str = ""
    mcp: dict[str, Any] | None = None
    error: str | None = None
    exit_code: int | None = None
    status: int | None = None
    retry_after: float | str | None = None
    duration: float | str | None = None
    tokens: int | None = None
    cost: float | None = None
    score: float | None = None
    blame: Literal["agent", "harness", "unknown"] | None = None
    meta: dict[str, Any] = {}


class SessionSpec(_Struct, frozen=True, kw_only=True):
    """A session. Only the main session has `at`, the start of the test."""

    tags: dict[str, Any] = {}
    roles: tuple[str, ...] = ()
    agent: str = ""
    user: str = ""
    project: str = ""
    cwd: str | None = None
    marks: tuple[str, ...] | dict[str, Literal[True] | tuple[str, ...]] = ()
    tools: tuple[str, ...] | None = None
    at: str | None = None
    parent: str | None = None


class ScriptedApproval(_Struct, frozen=True, kw_only=True):
    """The person who approves a call, with the labels that the host gives them."""

    by: str = "test"
    labels: tuple[str, ...] = ()


class ExpectedDecision(_Struct, frozen=True, kw_only=True):
    """The expected decision. Without `effect` the call must be admitted.

    `timeout` is the call's time limit, or `none`; `structured` has keys of the machine-readable
    answer.
    """

    effect: Effect | None = None
    by: str | None = None
    says: str | None = None
    would: str | None = None
    waived: str | None = None
    timeout: str | None = None
    structured: dict[str, Any] = {}


class Step(ExpectedDecision, frozen=True, kw_only=True):
    """One step with its expectations, and its `path` in the file.

    A call with `as_` keeps running until a later step `returns` this name.
    """

    path: Path
    in_: str = msgspec.field(name="in", default=MAIN_SESSION)
    turn: bool = False
    mark: str | tuple[str, str] | None = None
    unmark: str | tuple[str, str] | None = None
    grant: tuple[str | float, ...] | None = None
    approve: bool | ScriptedApproval = False
    spend: dict[str, float] | None = None
    times: int = 1
    wait: str | None = None
    call: dict[str, dict[str, Any] | str] | None = None
    server: str = ""
    batch: str | None = None
    hints: dict[str, bool] | None = None
    definition: dict[str, Any] | None = None
    tags: dict[str, Any] | None = None
    estimate: dict[str, float] | None = None
    effect: Effect | None = msgspec.field(name="expect", default=None)
    returns: str | None = None
    result: ScriptedResult = ScriptedResult()
    running: bool = False
    as_: str | None = msgspec.field(name="as", default=None)
    release: bool = False
    outcome: dict[str, Any] = {}
    text: str | None = None
    advice: str | None = None
    then: Literal["allow"] | ResultEffect | None = None
    progress: str | None = None
    state: dict[str, Any] = {}

    @property
    def granted(self) -> tuple[str, float | None]:
        """The budget to raise, and the amount (None: the budget's `extend`)."""
        assert self.grant is not None  # noqa: S101 - the caller has asked
        budget, *amount = self.grant
        return str(budget).removeprefix("budgets/"), float(amount[0]) if amount else None


class ExpectedCall(_Struct, frozen=True, kw_only=True):
    """A call of a trace, by its number from 1 or its id, with the expected decision.

    Without `effect` it must be refused. `path` is that of the item in the file.
    """

    path: Path
    call: int | str
    in_: str | None = msgspec.field(name="in", default=None)
    effect: Effect | None = None
    by: str | None = None
    says: str | None = None


class Test(_Struct, frozen=True, kw_only=True):
    """One test: `steps`, or a `trace` with expectations. `path` is its path in the file."""

    __test__ = False  # pytest would collect a class of this name

    path: Path
    name: str
    session: SessionSpec = SessionSpec()
    sessions: dict[str, SessionSpec] = {}
    steps: tuple[Step, ...] = ()
    trace: str | None = None
    expect: tuple[ExpectedCall, ...] = ()
    refused: tuple[int | str, ...] = ()


class Suite(NamedTuple):
    """A valid test file: its tree, its policy, its tests."""

    root: Node
    compiled: CompiledPolicy
    tests: tuple[Test, ...]

    @property
    def file(self) -> str:
        """The file's path; references to other files are relative to it."""
        return self.root.source.file

    def span_of(self, path: Path, *, key: bool = False) -> Span:
        """Return the span of the value at `path` (or of its key), or of the nearest parent."""
        return find_span(self.root, path, key=key)

    def failure(
        self,
        path: Path,
        step: str,
        *mismatches: Mismatch,
        decision: Decision | None = None,
        state: dict[str, Any] | None = None,
        key: bool = False,
    ) -> Failure:
        """Build a failure at the value at `path` (or at its key)."""
        span = self.span_of(path, key=key)
        lines = self.root.source.diagnostic("", "", span).lines
        return Failure(
            span=span,
            lines=lines,
            step=step,
            mismatches=mismatches,
            decision=decision,
            state=_format_state(state or {}),
        )


def list_marks(
    given: tuple[str, ...] | dict[str, Literal[True] | tuple[str, ...]],
) -> list[tuple[str, str | None]]:
    """Return the marks that a session begins with, each key of one by itself (None: no key)."""
    if not isinstance(given, dict):
        return [(name, None) for name in given]
    return [
        (name, key)
        for name, keys in given.items()
        for key in (keys if isinstance(keys, tuple) else (None,))
    ]


def resolve_reference(file: str, name: str) -> FilePath:
    """Return the file that `name` refers to in the test file `file`.

    It is relative to the test file's folder, or to the parent of a folder called `tests` that has
    no such file.
    """
    folder = FilePath(file).parent
    in_folder = _join(folder, name)
    in_parent = _join(folder.parent if folder.name else FilePath(".."), name)
    folder_name = folder.name or FilePath.cwd().name
    if folder_name == _TESTS_FOLDER and not in_folder.exists() and in_parent.exists():
        return in_parent
    return in_folder


def _join(folder: FilePath, name: str) -> FilePath:
    return FilePath(os.path.normpath(os.path.join(folder, name)))  # noqa: PTH118 - pathlib keeps `..`


def _format_state(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Format a session's state for a reader: times with their unit, without the obvious."""
    shown = {**fields}
    if shown.get("progress") == PROGRESSING:
        del shown["progress"]
    if "elapsed" in shown:
        shown["elapsed"] = f"{shown['elapsed'] / 1e9:g}s" if shown["elapsed"] else ""
    return shown


def parse_instant(text: str) -> int | None:
    """Parse an RFC 3339 time that fits the schema; None if there is no such day."""
    try:
        return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1) * 1000
    except (ValueError, OverflowError):
        return None


def parse_nanoseconds(text: str) -> int:
    """Parse a duration that fits the schema."""
    found = scalars.parse_duration(text)
    assert found is not None  # noqa: S101 - the schema's pattern is the same
    return found


def parse_seconds(value: float | str | None) -> float | None:
    """Convert a duration, as text or a number of seconds, to seconds."""
    return parse_nanoseconds(value) / 1e9 if isinstance(value, str) else value
