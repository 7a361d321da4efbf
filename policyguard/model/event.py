"""What happened, as facts in order: state is a fold over them, a trace or journal a file of them.

One JSON object a line is policyguard's own trace format (`schemas/event.schema.json`); the key
`event` names the kind. A recorded run of another system becomes the same events (`traces/`), with
the derived fields (`class`, `fingerprint`, `charges` …) left empty: a replay computes them anew.

Times are integers, nanoseconds since 1970 in UTC; `None` where the record has no time.
"""

# No `annotations` from `__future__`: msgspec would compile the text of each by itself.

from typing import Any, Literal

import msgspec

from policyguard.model.constraint import Observation

Provenance = Literal["explicit", "inferred", "unknown"]
"""Where an outcome's success or failure comes from: the record says so (`explicit`), it was read
out of the result's text (`inferred`), or nothing tells (`unknown`)."""

HINT_KEYS = ("read_only", "destructive", "idempotent", "open_world")
"""What a tool's server says of it (MCP `ToolAnnotations`)."""

ESTIMATE_KEYS = ("tokens", "cost")
"""What a call may be said to use before it runs."""


class Charge(msgspec.Struct, frozen=True, array_like=True):
    """What one call costs one budget: `amount` in units of 1e-9 of the budget's own unit."""

    budget: str
    key: str
    amount: int


class _Event(
    msgspec.Struct,
    frozen=True,
    tag_field="event",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    session: str
    at: int | None = None


class Started(_Event, frozen=True, tag="started"):
    """A session begins. `parent` is the session of the agent that spawned this one."""

    parent: str = ""
    agent: str = ""
    user: str = ""
    roles: tuple[str, ...] = ()
    project: str = ""
    cwd: str = ""
    tags: dict[str, Any] = {}


class TurnStarted(_Event, frozen=True, tag="turn_started"):
    """The person (or whoever gives the agent its orders) has spoken: a new turn."""


class _AttemptEvent(_Event, frozen=True):
    call: str = ""
    tool: str = ""
    args: dict[str, Any] | None = None
    server: str = ""
    batch: str = ""
    host_call: str = ""
    tags: dict[str, Any] = {}
    hints: dict[str, bool] = {}
    estimate: dict[str, float] = {}
    class_: str = msgspec.field(default="", name="class")
    fingerprint: str = ""
    loose_fingerprint: str = msgspec.field(default="", name="like")
    numbers: tuple[float, ...] = ()
    targets: tuple[str, ...] = ()
    exact_fingerprint: str = msgspec.field(default="", name="exact")


class Admitted(_AttemptEvent, frozen=True, tag="admitted"):
    """A call was let through and takes its place in windows and budgets.

    `call` is its id, unique in the session; `args` is None where the journal kept none; `batch`
    is shared by the parallel calls of one message. `changing`: whether it may change state.
    `like`, `numbers` and `exact`: for a call with tolerant numbers, the fingerprint without them,
    them, and its own fingerprint. `keys`: for each limit that tells sameness by something else
    than the fingerprint, by what. `radius`: the schedule that says how many targets it may touch,
    if one does. `violations` are the entries that had something to say and let it through,
    `effect` the strongest of their effects.
    """

    state_changing: bool = msgspec.field(default=True, name="changing")
    keys: dict[str, str] = {}
    probes: tuple[str, ...] = msgspec.field(default=(), name="trials")
    charges: tuple[Charge, ...] = ()
    radius: str = ""
    effect: str = "allow"
    violations: tuple[str, ...] = ()


class Refused(_AttemptEvent, frozen=True, tag="refused"):
    """A call was attempted and did not run. It counts in no window.

    `keys` as in `Admitted`. `insisted` are what it would have drawn from budgets whose steps count
    attempts, `asks` from those that an approval raises.
    """

    effect: str = "block"
    violations: tuple[str, ...] = ()
    keys: dict[str, str] = {}
    attempt_charges: tuple[Charge, ...] = msgspec.field(default=(), name="insisted")
    approval_charges: tuple[Charge, ...] = msgspec.field(default=(), name="asks")


class Completed(_Event, frozen=True, tag="completed"):
    """The result of an admitted call.

    `ok` is False for a failure; None where the record does not say (`known` says where it is
    from). `text` is the result as the model saw it, `error` the error's text (None: no error
    text apart from `text`). `duration` and `retry_after` are seconds, `cost` is in the currency
    of the budgets, `status` an HTTP status, `score` a measure of progress. `state` is `pending`
    for what has neither succeeded nor failed yet, empty where `ok` says it all; `advancing` and
    `infra` are what the result's metadata says (see `Outcome`). `timeout_by` is the entry whose
    time the call ran out of, if it did; with `running` it went on then, and an `Ended` tells when
    it is over.
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
    error_fingerprint: str = ""
    charges: tuple[Charge, ...] = ()
    observations: tuple[Observation, ...] = msgspec.field(default=(), name="lessons")
    state: Literal["", "pending"] = ""
    advancing: bool = True
    harness_flagged: bool = msgspec.field(default=False, name="infra")
    timeout_by: str = ""
    still_running: bool = msgspec.field(default=False, name="running")


class Ended(_Event, frozen=True, tag="ended"):
    """A call that had run out of time, and was still running, is over.

    It counts nowhere: the call failed when its time was over. It gives back the places that the
    call held in `concurrent` budgets. `ok`, `text`, `error` and `duration` as in `Completed`.
    """

    call: str = ""
    ok: bool | None = None
    text: str = ""
    error: str | None = None
    duration: float | None = None


class Released(_Event, frozen=True, tag="released"):
    """An admission is taken back: the call did not run."""

    call: str = ""


class Spent(_Event, frozen=True, tag="spent"):
    """Tokens and cost used between calls, by the model itself."""

    tokens: int = 0
    cost: float = 0.0
    charges: tuple[Charge, ...] = ()


class Granted(_Event, frozen=True, tag="granted"):
    """A person or a program raised a budget by `amount` (in the budget's unit).

    `key` names the one account that is raised, where a yes to a call has raised the budget that
    asked. Without it the account of the nearest owner is raised, and a halt is over.
    """

    budget: str = ""
    amount: float = 0.0
    by: str = ""
    key: str = ""


class ChildCharged(_Event, frozen=True, tag="drawn"):
    """What the session `by`, a sub-agent, drew from budgets of this session and of its turns.

    `raised` is by how much it raised them; what is below 0 was given back. The sub-agent's own
    events have the same, and say what for: this one counts only where this session is rebuilt from
    its journal, which knows nothing of them. Places in `concurrent` budgets are not told of.
    """

    child: str = msgspec.field(default="", name="by")
    charges: tuple[Charge, ...] = ()
    grants: tuple[Charge, ...] = msgspec.field(default=(), name="raised")


class Approved(_Event, frozen=True, tag="approved"):
    """A person or a program said yes to one refused call, known by its fingerprint."""

    call: str = ""
    fingerprint: str = ""
    by: str = ""
    labels: tuple[str, ...] = ()


class Closed(_Event, frozen=True, tag="closed"):
    """The session is over. `success` is the run's own outcome, where it has one."""

    success: bool | None = None


Event = (
    Started
    | TurnStarted
    | Admitted
    | Refused
    | Completed
    | Ended
    | Released
    | Spent
    | Granted
    | ChildCharged
    | Approved
    | Closed
)
