"""What a tests file says, typed. Names are those of `schemas/policy-tests.schema.json`.

Durations and times are still text here, as the file has them.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from policyguard.compiler import CompiledPolicy
from policyguard.compiler.load.layer_validation import find_span
from policyguard.engines.yaml_tree import Node, Path
from policyguard.model.diagnostic import Span
from policyguard.model.effect import Effect

MAIN_SESSION = "main"
"""The name of a test's own session."""


class _Struct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class CallResult(_Struct, frozen=True, kw_only=True):
    """What came of a call.

    `ok` is None where the test does not say: then it has succeeded, unless something else here
    (`error`, `exit_code`, `status`) is a failure's. `mcp` is an MCP tool result as it comes over
    the wire, in place of a text; `meta` is the host's word.
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
    """A session: who is at work. `at` (when the test begins) is the main session's only."""

    tags: dict[str, Any] = {}
    roles: tuple[str, ...] = ()
    agent: str = ""
    user: str = ""
    project: str = ""
    cwd: str | None = None
    at: str | None = None
    parent: str | None = None


class Approval(_Struct, frozen=True, kw_only=True):
    """Who approves a call, and what the host knows them as."""

    by: str = "test"
    labels: tuple[str, ...] = ()


class ExpectedDecision(_Struct, frozen=True, kw_only=True):
    """What the policy must say to a call. `effect` None: that it is admitted.

    `timeout` is how long it may take, or `none`; `structured` some keys of the answer for programs.
    """

    effect: Effect | None = None
    by: str | None = None
    says: str | None = None
    would: str | None = None
    timeout: str | None = None
    structured: dict[str, Any] = {}


class Step(_Struct, frozen=True, kw_only=True):
    """One step. `path` leads to it in the file.

    A call with `as_` goes on, until a later step says that what has this name `returns`.
    """

    path: Path
    in_: str = msgspec.field(name="in", default=MAIN_SESSION)
    turn: bool = False
    grant: tuple[str | float, ...] | None = None
    approve: bool | Approval = False
    spend: dict[str, float] | None = None
    times: int = 1
    wait: str | None = None
    call: dict[str, dict[str, Any] | str] | None = None
    server: str = ""
    batch: str | None = None
    hints: dict[str, bool] | None = None
    tags: dict[str, Any] | None = None
    estimate: dict[str, float] | None = None
    expect: Effect | None = None
    by: str | None = None
    says: str | None = None
    would: str | None = None
    timeout: str | None = None
    structured: dict[str, Any] = {}
    returns: str | None = None
    result: CallResult = CallResult()
    running: bool = False
    as_: str | None = msgspec.field(name="as", default=None)
    release: bool = False
    outcome: dict[str, Any] = {}
    text: str | None = None
    advice: str | None = None
    progress: str | None = None
    state: dict[str, Any] = {}

    @property
    def expected(self) -> ExpectedDecision:
        """What it says of the decision."""
        return ExpectedDecision(
            effect=self.expect,
            by=self.by,
            says=self.says,
            would=self.would,
            timeout=self.timeout,
            structured=self.structured,
        )

    @property
    def granted(self) -> tuple[str, float | None]:
        """The budget that is raised, and by how much (None: by its own `extend`)."""
        assert self.grant is not None  # noqa: S101 - the caller has asked
        budget, *amount = self.grant
        return str(budget).removeprefix("budgets/"), float(amount[0]) if amount else None


class ExpectedCall(_Struct, frozen=True, kw_only=True):
    """A call of a trace, by its number from 1 or its id, and what the policy must say to it.

    `effect` None: that it is refused. `path` leads to the item in the file.
    """

    path: Path
    call: int | str
    in_: str | None = msgspec.field(name="in", default=None)
    effect: Effect | None = None
    by: str | None = None
    says: str | None = None


class Test(_Struct, frozen=True, kw_only=True):
    """One test: `steps`, or a `trace` with what is expected of it. `path` leads to it."""

    __test__ = False  # to pytest, which takes a class of this name for tests

    path: Path
    name: str
    session: SessionSpec = SessionSpec()
    sessions: dict[str, SessionSpec] = {}
    steps: tuple[Step, ...] = ()
    trace: str | None = None
    expect: tuple[ExpectedCall, ...] = ()
    refused: tuple[int | str, ...] = ()


class Suite(NamedTuple):
    """A tests file that can be run: its tree, its policy, its tests."""

    root: Node
    compiled: CompiledPolicy
    tests: tuple[Test, ...]

    @property
    def file(self) -> str:
        """The file's name in reports, from which other files are looked for."""
        return self.root.source.file

    def span_of(self, path: Path, *, key: bool = False) -> Span:
        """Where the value at `path` (or its key) stands, or the nearest around it."""
        return find_span(self.root, path, key=key)

    def lines(self, span: Span) -> tuple[str, ...]:
        """The source lines of a span."""
        return self.root.source.diagnostic("", "", span).lines
