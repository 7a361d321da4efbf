"""What failures have taught: which calls are not to be made again."""

# No `annotations` from `__future__`: msgspec would compile the text of each by itself.

from typing import Any, Literal

import msgspec

ConstraintKind = Literal["banned_strategy", "parameter_ban"]
Direction = Literal["up", "down", "exact"]


class Observation(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one outcome says about one thing that could be banned.

    `learn` names the policy's entry that teaches (a signature's id, or empty for `learn` itself).
    `scope` is who is bound, `key` what (`call:…`, `target:…`, `tool:…`, `class:…`, `key:…`,
    `parameters:…`), `counted` what failures are counted by. `point` holds the values of the
    parameters that a parameter ban is about. `tool` is what failed, on `server` where the call
    names one. `since` is the number of the session's last change by another call, `seq` that of
    this outcome. `batch` is shared by one message's calls. `failure` is the fingerprint of the
    error with its accidents masked. `scope`, `key` and `counted` hold digests of what the call
    says; `label` is what the key says, for people.
    """

    learn: str
    scope: str
    key: str
    evidence_key: str = msgspec.field(name="counted")
    ok: bool
    signature: str = ""
    tool: str = ""
    point: dict[str, Any] = {}
    seq: int = 0
    last_change: int = msgspec.field(default=0, name="since")
    batch: str = ""
    error_fingerprint: str = msgspec.field(default="", name="failure")
    label: str = ""
    error: str = ""
    server: str = ""


class Constraint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call, target, tool, class or region of parameters that is banned, and why.

    `id` is the same for the same scope, key and signature, on every process. `learned_at` and
    `confirmed_at` are nanoseconds, None in untimed replays. `count` is how many failures stand
    behind it, `taught_by` names the first of them as `session/call`. `tool` is what failed, on
    `server` where the call named one. `points` are the failing values of a parameter ban. `label`
    is what a target or key is called, `error` a piece of the error; both are untrusted.
    """

    id: str
    kind: ConstraintKind
    learn: str
    scope: str
    key: str
    signature: str
    tool: str
    count: int
    learned_at: int | None = None
    confirmed_at: int | None = None
    taught_by: tuple[str, ...] = ()
    points: tuple[dict[str, Any], ...] = ()
    direction: Direction = "exact"
    label: str = ""
    error: str = ""
    server: str = ""


class Evidence(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Failures that have not become a constraint yet.

    `session` and `seq` are of the latest one: a change in that session after it makes the count
    begin anew. `batches` are the latest that were counted, each with its session.
    """

    scope: str
    evidence_key: str = msgspec.field(name="counted")
    signature: str
    count: int = 0
    session: str = ""
    seq: int = 0
    batches: tuple[str, ...] = ()
    error_fingerprint: str = msgspec.field(default="", name="failure")
    taught_by: tuple[str, ...] = ()
    points: tuple[dict[str, Any], ...] = ()
