"""Events: state is a fold over them; a trace or journal is a file of them.

One JSON object a line is policyguard's own trace format (`schemas/event.schema.json`); the key
`event` names the kind. Importers (`traces/`) leave the derived fields (`class`, `fingerprint`,
`charges` …) empty; a replay computes them.

Times are integers, nanoseconds since 1970 in UTC; `None` where the record has no time. `at` goes by
a clock that only advances; `wall` is the wall clock's time where that was another.
"""

# No `annotations` from `__future__`: msgspec would compile the text of each by itself.

from typing import Any, Literal

import msgspec

from policyguard.model.constraint import Observation
from policyguard.model.pins import PinKind
from policyguard.model.tool_name import ToolName, parse_tool_name

Provenance = Literal["explicit", "inferred", "unknown"]
"""Where success or failure comes from: the record (`explicit`), the result's text (`inferred`), or
nowhere (`unknown`)."""

HINT_KEYS = ("read_only", "destructive", "idempotent", "open_world")
"""The hints of a tool's server (MCP `ToolAnnotations`)."""

ESTIMATE_KEYS = ("tokens", "cost")
"""What a caller may estimate before a call runs."""


class Charge(msgspec.Struct, frozen=True, array_like=True):
    """What one call charges one budget: `amount` in units of 1e-9 of the budget's own unit."""

    budget: str
    key: str
    amount: int


class MarkChange(msgspec.Struct, frozen=True, array_like=True):
    """A mark that is set or cleared, or one `key` of it: the key's fingerprint; empty for all.

    `*` stands for any key: the one that was to be set could not be computed.
    """

    mark: str
    key: str = ""


class _Timed(msgspec.Struct, frozen=True, kw_only=True):
    wall: int | None = None


class _Event(
    _Timed,
    frozen=True,
    tag_field="event",
    omit_defaults=True,
    repr_omit_defaults=True,
    forbid_unknown_fields=True,
):
    session: str
    at: int | None = None


class SessionStarted(_Event, frozen=True, tag="started"):
    """A session started. `parent` is the session of the agent that spawned this one.

    `source` is the file that a converted recording comes from.
    """

    parent: str = ""
    agent: str = ""
    user: str = ""
    roles: tuple[str, ...] = ()
    project: str = ""
    cwd: str = ""
    tags: dict[str, Any] = {}
    source: str = ""


class TurnStarted(_Event, frozen=True, tag="turn_started"):
    """The user spoke: a new turn."""


class ToolsOffered(_Event, frozen=True, tag="offered"):
    """The tools that the agent is offered from now on, as the model calls them."""

    tools: tuple[str, ...] = ()


class _AttemptEvent(_Event, frozen=True):
    call: str = ""
    tool: str = ""
    args: dict[str, Any] | None = None
    server: str = ""
    batch: str = ""
    host_call: str = ""
    host_tool: str = ""
    likeness: str = ""
    tags: dict[str, Any] = {}
    hints: dict[str, bool] = {}
    estimate: dict[str, float] = {}
    pins: dict[PinKind, str] = {}
    class_: str = msgspec.field(default="", name="class")
    classes: tuple[str, ...] = ()
    fingerprint: str = ""
    loose_fingerprint: str = msgspec.field(default="", name="like")
    numbers: tuple[float, ...] = ()
    targets: tuple[str, ...] = ()
    would: tuple[str, ...] = ()
    exact_fingerprint: str = msgspec.field(default="", name="exact")

    @property
    def shown_tool(self) -> str:
        """The tool as the host names it."""
        return self.host_tool or self.tool

    @property
    def tool_name(self) -> ToolName:
        """The tool's name; events of older journals and other programs have it unsplit."""
        if self.host_tool:
            return ToolName(self.tool, self.server, self.host_tool)
        return parse_tool_name(self.tool, self.server)

    @property
    def all_classes(self) -> tuple[str, ...]:
        """The call's classes, the main one first."""
        return self.classes or ((self.class_,) if self.class_ else ())


class Admitted(_AttemptEvent, frozen=True, tag="admitted"):
    """A call was admitted and counts in windows and budgets.

    `host_tool` is the tool's name as the host says it, where that is a full name such as
    `mcp__fs__read`. `classes` holds all classes of the call, where there are more than the main
    one, `class_`. `call` is its id, unique in the session; `args` is None where the journal kept
    none; `batch` is shared by the parallel calls of one message. For a call with tolerant numbers,
    `loose_fingerprint` leaves them out, `numbers` holds them, and `exact_fingerprint` is its own.
    `likeness` is what limits tell it by, where that is not its fingerprint.
    `pins` says in which ways the tool is not as it was pinned, each in words.
    `keys` holds the keys of limits that compare by another one than the fingerprint, `probes` the
    constraints it tests, `radius` the schedule it is under, `cleared` the marks it clears,
    `clearings` the number of the last clearing of marks in the store that came before it, `taken`
    what it has cleared there that comes back if it does not run.
    `violations` are the entries that fired without refusing it, `effect` the strongest of their
    effects, `advice` what the model reads of them with the result, without what quotes the call;
    `would` those in observe mode. `grants` are those that lifted what would have asked, `waived`
    has, by violation, the exception that waived it.
    """

    state_changing: bool = msgspec.field(default=True, name="changing")
    keys: dict[str, str] = {}
    probes: tuple[str, ...] = msgspec.field(default=(), name="trials")
    charges: tuple[Charge, ...] = ()
    radius: str = ""
    effect: str = "allow"
    violations: tuple[str, ...] = ()
    cleared: tuple[MarkChange, ...] = ()
    clearings: int = 0
    taken: tuple[MarkChange, ...] = ()
    grants: tuple[str, ...] = ()
    waived: dict[str, str] = {}
    advice: str = ""


class Refused(_AttemptEvent, frozen=True, tag="refused"):
    """A call was refused. It counts in no window.

    `keys` and `waived` as in `Admitted`. `attempt_charges` are those to budgets whose thresholds
    count attempts, `approval_charges` those to budgets that an approval raises.
    """

    effect: str = "block"
    violations: tuple[str, ...] = ()
    keys: dict[str, str] = {}
    attempt_charges: tuple[Charge, ...] = msgspec.field(default=(), name="insisted")
    approval_charges: tuple[Charge, ...] = msgspec.field(default=(), name="asks")
    waived: dict[str, str] = {}


class Completed(_Event, frozen=True, tag="completed"):
    """The result of an admitted call.

    `ok` is False for a failure, None where the record does not say. `text` is the result as the
    model saw it, `error` the error's text (None: no text of its own). `duration` and `retry_after`
    are seconds, `cost` is in the currency of the budgets, `status` is HTTP's, `score` measures
    progress. `state` is `pending`, `cancelled` or empty; `ok` of a cancelled call is None.
    `like_result` is the fingerprint of the result with its variable parts masked, if the call
    recurs; of another call, once one has recurred, what it holds beside the words of its call.
    `marks` are those that it has set. `advancing` and `harness_flagged` come from the metadata (see
    `Outcome`). `timeout_by` is the entry whose time limit the call exceeded, if it did; if it was
    `still_running` then, a `CallEnded` follows. `fired` are the result rules that
    acted; if they `edited` text, error or metadata, the fingerprints are still those of the result
    as the tool returned it. `halted_by` is the one among them that stopped the session.
    """

    call: str = ""
    ok: bool | None = None
    provenance: Provenance = msgspec.field(default="explicit", name="known")
    text: str = ""
    error: str | None = None
    exit_code: int | None = None
    status: int | None = None
    retry_after: float | None = None
    duration: float | None = None
    tokens: int | None = None
    cost: float | None = None
    score: float | None = None
    meta: dict[str, Any] = {}
    signature: str = ""
    blame: str = ""
    result_fingerprint: str = ""
    like_result: str = msgspec.field(default="", name="like")
    error_fingerprint: str = ""
    charges: tuple[Charge, ...] = ()
    observations: tuple[Observation, ...] = msgspec.field(default=(), name="lessons")
    state: Literal["", "pending", "cancelled"] = ""
    advancing: bool = True
    harness_flagged: bool = msgspec.field(default=False, name="infra")
    timeout_by: str = ""
    still_running: bool = msgspec.field(default=False, name="running")
    marks: tuple[MarkChange, ...] = ()
    fired: tuple[str, ...] = ()
    edited: bool = False
    halted_by: str = ""


class CallEnded(_Event, frozen=True, tag="ended"):
    """A call that had timed out, and was still running, has ended.

    It counts nowhere: the call failed when its time was over. It gives back the places that the
    call held in `concurrent` budgets. `ok`, `text`, `error` and `duration` as in `Completed`.
    """

    call: str = ""
    ok: bool | None = None
    text: str = ""
    error: str | None = None
    duration: float | None = None


class Released(_Event, frozen=True, tag="released"):
    """An admission was taken back: the call never began to run."""

    call: str = ""


class Spent(_Event, frozen=True, tag="spent"):
    """Tokens and cost that the model used between calls, and how often it was called."""

    tokens: int = 0
    cost: float = 0.0
    charges: tuple[Charge, ...] = ()
    model_calls: int = 0


class Granted(_Event, frozen=True, tag="granted"):
    """A user or a program raised a budget by `amount` (in the budget's unit).

    `key` names what is raised where an approval of a call did it. Without it the usage of the
    nearest owner is raised, and a halt is lifted.
    """

    budget: str = ""
    amount: float = 0.0
    by: str = ""
    key: str = ""


class ChildCharged(_Event, frozen=True, tag="drawn"):
    """What the sub-agent session `child` charged to budgets of this session and its turns.

    `raised` is by how much it raised them; what is below 0 was given back. The sub-agent's own
    events have the same, and say what for: this one counts only where this session is rebuilt from
    its journal, which knows nothing of them. Slots in `concurrent` budgets are left out: calls hold
    them.
    """

    child: str = msgspec.field(default="", name="by")
    charges: tuple[Charge, ...] = ()
    grants: tuple[Charge, ...] = msgspec.field(default=(), name="raised")


class Marked(_Event, frozen=True, tag="marked"):
    """Marks were set or cleared by the host, or by calls of the sub-agent session `child`.

    The sub-agent's own events say the same: this one counts only where this session is rebuilt from
    its journal, which knows nothing of them.
    """

    marks: tuple[MarkChange, ...] = ()
    cleared: tuple[MarkChange, ...] = ()
    child: str = msgspec.field(default="", name="by")


class Approved(_Event, frozen=True, tag="approved"):
    """A user or a program approved one refused call, known by its fingerprint.

    With `remember` the approver wants calls like it to run until `expires_at`, in the sessions of
    `scope`; `pattern` says in words which, `grants` are the ids of those that this completed.
    """

    call: str = ""
    fingerprint: str = ""
    by: str = ""
    labels: tuple[str, ...] = ()
    remember: str = ""
    scope: str = ""
    expires_at: int | None = None
    pattern: str = ""
    grants: tuple[str, ...] = ()


class Denied(_Event, frozen=True, tag="denied"):
    """A user or a program said no to one refused call, known by its fingerprint.

    The same call is refused without asking until the turn ends, or until `expires_at`. `message`
    is the word for the model.
    """

    call: str = ""
    fingerprint: str = ""
    by: str = ""
    labels: tuple[str, ...] = ()
    message: str = ""
    expires_at: int | None = None


class CandidateDiffered(_Event, frozen=True, tag="candidate"):
    """A candidate policy would have decided otherwise on one call; it changed nothing.

    `effect` and `violations` are the candidate's, `errors` the entries of it that failed; `refused`
    says whether the call would not have run. `enforced` is the effect that counted.
    `counterfactual`: the candidate would have refused or admitted an earlier call of the session
    otherwise, so the agent might have gone on otherwise. `partial`: the candidate does not know all
    of the session.
    """

    call: str = ""
    policy: str = ""
    digest: str = ""
    effect: str = "allow"
    violations: tuple[str, ...] = ()
    enforced: str = "allow"
    refused: bool = False
    errors: tuple[str, ...] = ()
    counterfactual: bool = False
    partial: bool = False


class SessionEnded(_Event, frozen=True, tag="closed"):
    """The session ended. `success` is the run's own outcome, where it has one."""

    success: bool | None = None


Event = (
    SessionStarted
    | TurnStarted
    | ToolsOffered
    | Admitted
    | Refused
    | Completed
    | CallEnded
    | Released
    | Spent
    | Granted
    | ChildCharged
    | Marked
    | Approved
    | Denied
    | CandidateDiffered
    | SessionEnded
)
