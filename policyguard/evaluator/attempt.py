"""A call on its way through the evaluator, and what windows keep of it afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import msgspec

from policyguard.evaluator.activation import Activation
from policyguard.model.constraint import Observation
from policyguard.model.decision import EvalError
from policyguard.model.event import Charge, Completed, MarkChange
from policyguard.model.outcome import Outcome
from policyguard.model.pins import PinKind
from policyguard.model.text import sanitize
from policyguard.model.tool_name import MCP_PREFIX, parse_tool_name

if TYPE_CHECKING:
    from policyguard.evaluator.approvals import UsedApproval
    from policyguard.evaluator.plan import BoundPlan
    from policyguard.evaluator.session_state import SessionState

EMPTY: Mapping[str, Any] = MappingProxyType({})
NO_PINS: Mapping[PinKind, str] = MappingProxyType({})
UNRECORDED_ARGS: dict[str, Any] = {}
"""Stands for arguments that were not kept: in a journal, or of too many unreported calls."""
CONTENT_MARK = "+"
"""Marks a result that says nothing against what was done before it."""
FAILED_MARK = "!"
"""Marks the result of a failure."""
FLAGGED_MARK = "~"
"""Marks a result that is flagged as bringing nothing new."""
NOTHING_MARK = "?"
"""Marks a result that found nothing, without the words of its call."""
ECHO_MARK = "="
"""Marks what the result of a call that does not recur holds beside the words of its call."""


class WindowEntry(msgspec.Struct, eq=False, gc=False):
    """An admitted call in a window.

    `likeness` tells calls that are alike; `keys` tells its repetitions under each limit whose
    `key` the policy names, by the limit's id. The fingerprints are those of `Outcome`, a
    failure's result prefixed with `!`, one flagged as not advancing with `~`; the result is None
    until there is one, and `like_result` empty unless the call recurs, its result holds words of
    it, or is flagged so. It begins with `CONTENT_MARK` if the result is empty, or that of a call
    that may have changed something and matches no signature of failures: tests that pass.
    `seq` numbers completions; a call in flight has the number of the last one
    before it. `is_exempt`: it failed by the harness's fault, and is not a repetition.
    `is_stale`: it succeeded and brought nothing new, so that no row of failures ends with it.
    `has_new_pending_result`: its result is still pending, and differs from the one before.
    """

    likeness: str
    seq: int = 0
    result_fingerprint: str | None = None
    like_result: str = ""
    error_fingerprint: str = ""
    is_exempt: bool = False
    has_new_pending_result: bool = False
    is_stale: bool = False
    keys: dict[str, str] | None = None

    def set_key(self, limit: str, key: str) -> None:
        """Set what tells the call's repetitions under a limit."""
        self.keys = {**(self.keys or {}), limit: key}

    def mark_flagged(self) -> None:
        """Let results that are flagged as bringing nothing new be alike, whatever their text.

        One without the flag is another result.
        """
        self.result_fingerprint = f"{FLAGGED_MARK}{self.result_fingerprint}"
        self.like_result = FLAGGED_MARK

    def mark_failed(self) -> None:
        """Let a failure with the words of a success have another result."""
        self.result_fingerprint = f"{FAILED_MARK}{self.result_fingerprint}"
        self.like_result = self.like_result and f"{FAILED_MARK}{self.like_result}"

    def has_result_of(self, other: WindowEntry) -> bool:
        """Whether both have a result, and the results are alike."""
        result = self.result_fingerprint
        return result is not None and (
            result == other.result_fingerprint
            or (self.like_result != "" and self.like_result == other.like_result)
        )

    def has_answer_of(self, other: WindowEntry) -> bool:
        """Whether two calls that may differ have both found nothing, in the same words."""
        return self.like_result == other.like_result and self.like_result.startswith(NOTHING_MARK)

    @property
    def answer(self) -> str | None:
        """What tells its result among those of other calls; None for none."""
        echoes = self.like_result.startswith(ECHO_MARK)
        return self.like_result if echoes else self.result_fingerprint

    @property
    def has_failed(self) -> bool:
        """Whether its result is a failure."""
        return (self.result_fingerprint or "").startswith(FAILED_MARK)

    @property
    def is_content(self) -> bool:
        """Whether it succeeded, and its result says nothing against what was done before it."""
        return self.like_result.startswith(CONTENT_MARK)


class Attempt(msgspec.Struct, eq=False):
    """A call: what its caller passed, and what the policy makes of it.

    `host_tool` is the name that the host used, where that is a full name, which holds the server
    too. `fingerprint` is that of the first call whose tolerant numbers are close,
    `exact_fingerprint` its own where that differs. By its `likeness`, which is looser, limits tell
    calls; it `recurs` if one like it is among the calls that a limit remembers. `keys` holds the
    key of each limit that compares by another one. `charges` go to budgets at admission; an
    approval raises those in `approval_charges`, and those in `attempt_charges` count attempts
    towards escalation thresholds.
    `at` is nanoseconds, None for a record without time; `completed_at` is when the result came.
    `radius` names the schedule the call is under. `timeout` is nanoseconds, set by the entry
    `timeout_by`. `state_changing` is None until it is needed, or where its plan says no.
    `bound_plan` is set by `Evaluator.prepare`, `window_entry` by `transitions.admit`; `limit_notes`
    holds what single limits note on the call, by their ids.
    `cleared` are the marks that its admission clears; there had been `clearings` of marks of runs
    then, and `shared_clearings` of those of agents and projects.
    `cleared_keys` are the keys, with their times (ns), that come back if the call does not run.
    `used_approval` is what comes back if its admission cannot be recorded.
    `wall` is the wall clock's time (ns) at the check, then at the result, where that is not the
    call's own.
    `is_unknown`: the agent is offered no such tool. `pins` says in which ways the tool is not as it
    was pinned.
    `is_held`: the guard itself runs the call, and will report its end. `is_given_up`: it was taken
    for unreported, and its slots were freed. `is_reduced`: its arguments were forgotten since.
    """

    tool: str
    args: dict[str, Any]
    at: int | None
    session: SessionState
    wall: int | None = None
    id: str = ""
    server: str = ""
    batch: str = ""
    host_call: str = ""
    tags: Mapping[str, Any] = EMPTY
    hints: Mapping[str, bool] = EMPTY
    estimate: Mapping[str, float] = EMPTY
    host_tool: str = ""
    fingerprint: str = ""
    exact_fingerprint: str = ""
    likeness: str = ""
    recurs: bool = False
    loose_fingerprint: str = ""
    numbers: tuple[float, ...] = ()
    previous: Mapping[str, Any] = EMPTY
    targets: tuple[str, ...] = ()
    state_changing: bool | None = None
    keys: Mapping[str, str] = EMPTY
    charges: tuple[Charge, ...] = ()
    approval_charges: tuple[Charge, ...] = ()
    attempt_charges: tuple[Charge, ...] = ()
    errors: tuple[EvalError, ...] = ()
    probes: tuple[str, ...] = ()
    radius: str = ""
    timeout: int | None = None
    timeout_by: str = ""
    completed_at: int | None = None
    limit_notes: Mapping[str, Any] = EMPTY
    cleared: tuple[MarkChange, ...] = ()
    cleared_keys: tuple[tuple[MarkChange, int | None], ...] = ()
    clearings: int = 0
    shared_clearings: int = 0
    used_approval: UsedApproval | None = None
    bound_plan: BoundPlan = None  # type: ignore[assignment]
    window_entry: WindowEntry = None  # type: ignore[assignment]
    _activation: Activation | None = None
    is_unknown: bool = False
    pins: Mapping[PinKind, str] = NO_PINS
    is_held: bool = False
    is_given_up: bool = False
    is_reduced: bool = False
    _is_completed: bool = False

    @property
    def activation(self) -> Activation:
        """The variables that expressions see."""
        activation = self._activation
        if activation is None:
            at = self.completed_at if self._is_completed else self.at
            call = (
                self
                if self.args is not UNRECORDED_ARGS
                else cast("Attempt", _WithoutArguments(self))
            )
            activation = Activation(call, self.session.activation_context, at)
            self._activation = activation
        return activation

    @property
    def lacks_arguments(self) -> bool:
        """Whether its arguments are not known any more."""
        return self.args is UNRECORDED_ARGS

    def split_tool_name(self) -> None:
        """Split a full name. To be called once, before anything is derived."""
        if self.server or self.tool.startswith(MCP_PREFIX):
            self.tool, self.server, self.host_tool = parse_tool_name(self.tool, self.server)

    @property
    def shown_tool(self) -> str:
        """The tool as the host and the model call it."""
        return self.host_tool or self.tool

    @property
    def template_call(self) -> dict[str, Any]:
        """The variable `call` for messages, with the tool as the model calls it."""
        return {**self.activation.call, "tool": self.shown_tool}

    @property
    def class_(self) -> str:
        """The main class; empty for none, and until there is a plan."""
        plan = self.bound_plan
        return plan.plan.class_ if plan is not None else ""

    @property
    def classes(self) -> list[str]:
        """All classes of the call that the policy reads, the main one first."""
        plan = self.bound_plan
        return list(plan.plan.classes) if plan is not None else []

    @property
    def approval_fingerprint(self) -> str:
        """The fingerprint of exactly this call, which an approval is bound to."""
        return self.exact_fingerprint or self.fingerprint

    @property
    def full_name(self) -> str:
        """The tool with its server: tools of two servers are two tools."""
        return f"{self.server}\x1f{self.tool}" if self.server else self.tool

    def mark_completed(self, at: int | None, wall: int | None) -> None:
        """Note that the result came at `at` (ns): expressions see the call anew."""
        self._is_completed = True
        self.completed_at = at
        if self.wall != wall:  # to set an attribute of a struct is slow
            self.wall = wall
        activation = self._activation
        if activation is not None:
            self._activation = activation.renew(at)
        if self.errors:
            self.errors = ()

    def reduce(self) -> None:
        """Forget what may be large: the arguments, and what was found in them."""
        self.bound_plan.plan.is_state_changing(self)  # may read them
        self.args, self.targets, self._activation = UNRECORDED_ARGS, (), None
        self.previous, self.used_approval = EMPTY, None
        self.is_reduced = True

    def sanitize_reason(self, reason: Exception | str) -> str:
        """Make a reason fit to be shown: it may quote the arguments."""
        return sanitize(self.session.activation_context.redact(str(reason)))

    def add_error(self, entry: str, error: Exception | str) -> str:
        """Note that an entry's expression failed on this call. Return the error's text."""
        text = self.sanitize_reason(error)
        eval_error = EvalError(entry, text)
        if eval_error not in self.errors:
            self.errors = (*self.errors, eval_error)
        return text

    def add_limit_note(self, limit: str, note: object) -> None:
        """Note what a limit needs again when the call completes."""
        self.limit_notes = {**self.limit_notes, limit: note}

    def cap_timeout(self, timeout: int, by: str) -> None:
        """Shorten the call's time limit to `timeout` (ns)."""
        if self.timeout is None or timeout < self.timeout:
            self.timeout = timeout
            self.timeout_by = by


class _WithoutArguments:
    """A call for expressions that were to read its arguments: they have no value."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._attempt, name)

    @property
    def args(self) -> dict[str, Any]:
        """Raise, so that an expression fails instead of finding no arguments."""
        raise ValueError(
            "the arguments of this call were not kept: report calls before the session is resumed, "
            "or use `journal: {args: keep}`; of too many unreported calls they are forgotten"
        )

    targets = previous = args


class CallResult(msgspec.Struct, eq=False, gc=False):
    """The result of a call in flight: `report` as it was reported, the rest as evaluated.

    `charges` are those beyond what the call charged at admission, `marks` what the result sets.
    """

    attempt: Attempt
    report: Completed
    outcome: Outcome
    charges: tuple[Charge, ...]
    observations: tuple[Observation, ...] = ()
    marks: tuple[MarkChange, ...] = ()
