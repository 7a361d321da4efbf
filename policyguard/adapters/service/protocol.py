"""Requests and answers of the service: JSON objects, validated and described from these classes.

An unknown field is an error, as everywhere: a misspelt one must not silently do nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from policyguard.adapters.sessions import SessionRequest
from policyguard.adapters.waiting import MAX_SECONDS
from policyguard.model.decision import EvalError, Violation
from policyguard.model.grant import GrantScope, Remember
from policyguard.model.outcome import ResultViolation
from policyguard.model.policy import Blame
from policyguard.model.question import OpenQuestion


class CheckRequest(SessionRequest, kw_only=True):
    """A call that is about to run; the fields are those of `Session.check`.

    `call` is the caller's own id of the call. `retry` says that this check may have arrived before,
    but its answer did not: a call in flight with the same id is then not counted again. `wait` is
    for how many seconds to wait for a person, if the call needs an approval; the decision is *ask*
    if there is no answer by then.
    """

    tool: str
    args: dict[str, Any] = msgspec.field(default_factory=dict)
    call: str | None = None
    server: str = ""
    batch: str | None = None
    tags: dict[str, Any] = msgspec.field(default_factory=dict)
    hints: dict[str, bool] = msgspec.field(default_factory=dict)
    definition: dict[str, Any] | None = None
    estimate: dict[str, float] = msgspec.field(default_factory=dict)
    retry: bool = False
    wait: Annotated[float, msgspec.Meta(ge=0, le=MAX_SECONDS)] = 0.0


class CheckAnswer(msgspec.Struct, kw_only=True):
    """The decision on a call.

    `call` names it in `record`, `release` and `approve`: the caller's own id, if it gave one. If
    `allowed` is false the call must not run, and `message` is what the model reads instead of a
    result. `timeout` is in seconds.
    """

    call: str
    effect: Literal["allow", "advise", "ask", "block", "halt"]
    allowed: bool
    message: str
    violations: tuple[Violation, ...]
    would: tuple[Violation, ...]
    errors: tuple[EvalError, ...]
    structured: dict[str, Any]
    timeout: float | None = None


class RecordRequest(SessionRequest, kw_only=True):
    """The result of a call that was allowed; the fields are those of `Session.record`."""

    call: str
    result: Any = None
    error: str | None = None
    cancelled: bool = False
    exit_code: int | None = None
    status: int | None = None
    retry_after: float | None = None
    blame: Blame | None = None
    duration: float | None = None
    tokens: int | None = None
    cost: float | None = None
    score: float | None = None
    meta: dict[str, Any] = msgspec.field(default_factory=dict)


class OutcomeAnswer(msgspec.Struct, kw_only=True):
    """How the result was classified; the fields are those of `policyguard.Outcome`."""

    ok: bool
    state: str
    signature: str
    blame: str


class RecordAnswer(msgspec.Struct, kw_only=True):
    """What to tell the model: `text` is the result with `advice`, where there is any.

    Both are as result rules leave them, and so is `result`, a structure where the tool returned
    one. `violations` are the rules that fired. `learned` are the ids of constraints that this
    result taught. `counted` is false for a result that was reported before.
    """

    text: str
    result: Any
    advice: str
    outcome: OutcomeAnswer
    violations: tuple[ResultViolation, ...]
    learned: list[str]
    errors: tuple[EvalError, ...]
    counted: bool


class CallRequest(SessionRequest, kw_only=True):
    """One call of a session, by the caller's id or ours."""

    call: str


class ApproveRequest(CallRequest, kw_only=True):
    """A person's yes to a call whose effect is *ask*; then it is checked again, and runs.

    With `remember` calls like it ask no more until it `expires` (in seconds), in the sessions of
    `scope`: a grant.
    """

    by: str
    remember: Remember | None = None
    expires: float | None = None
    scope: GrantScope = "session"
    labels: list[str] = msgspec.field(default_factory=list)


class ApproveAnswer(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Whether the call is approved now, and if not, what is missing (`detail`)."""

    approved: bool
    detail: str = ""


class DenyRequest(CallRequest, kw_only=True):
    """A person's no to a call whose effect is *ask*, with a `message` for the model."""

    by: str
    message: str = ""
    labels: list[str] = msgspec.field(default_factory=list)


class DenyAnswer(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Whether the call is denied now, and if not, why (`detail`)."""

    denied: bool
    detail: str = ""


class ListRequest(msgspec.Struct, forbid_unknown_fields=True):
    """All of them."""


class ApprovalsAnswer(msgspec.Struct, kw_only=True):
    """The calls that wait for an approval."""

    approvals: list[OpenQuestion]


class GrantRequest(SessionRequest, kw_only=True):
    """More of a budget, by its `extend` or by an `amount` in the budget's own unit."""

    budget: str
    by: str
    amount: float | None = None


class SpendRequest(SessionRequest, kw_only=True):
    """Tokens and cost that the model used between calls, and how often it was called."""

    tokens: int = 0
    cost: float = 0.0
    model_calls: int = 0


class MarkRequest(SessionRequest, kw_only=True):
    """A mark of the policy, or one `key` of it."""

    mark: str
    key: str | None = None


class OfferRequest(SessionRequest, kw_only=True):
    """The tools that the agent has from now on."""

    tools: list[str]


class RevokeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A learned constraint or a grant that shall no longer hold."""

    id: str
    by: str


class RevokeAnswer(msgspec.Struct, kw_only=True):
    """Whether there was such a constraint or grant."""

    revoked: bool


class ReloadRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The policy's digest (SHA-256, hex) after the change that its sender has read."""

    digest: str


class ConsoleRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Who will answer in the console, with the labels that the host gives them."""

    by: str
    labels: list[str] = msgspec.field(default_factory=list)


class ConsoleAnswer(msgspec.Struct, kw_only=True):
    """The console's address on this machine. It lets anyone answer as that person."""

    url: str


class Done(msgspec.Struct, kw_only=True):
    """An answer without more to say."""

    ok: bool = True


class Health(msgspec.Struct, kw_only=True):
    """The service's state. `uptime` is in seconds."""

    status: Literal["ok"]
    version: str
    policy: str
    digest: str
    store: str | None
    pid: int
    uptime: float
    sessions: int


class Problem(msgspec.Struct, kw_only=True):
    """Why a request was not carried out (RFC 9457); `detail` says what to do."""

    title: str
    status: int
    detail: str
