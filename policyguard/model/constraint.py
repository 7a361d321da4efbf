"""Learned constraints, and the evidence for them."""

# No `annotations` from `__future__`: msgspec would compile the text of each by itself.

from typing import Any, Literal

import msgspec

ConstraintKind = Literal["banned_strategy", "parameter_ban"]
Direction = Literal["up", "down", "exact"]


class Observation(msgspec.Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """What one outcome teaches about one key that could be banned.

    `learn` names the policy's entry (a signature's id, or empty for `learn` itself), `scope` who is
    affected, `key` what is banned (`call:…`, `target:…`, `tool:…`, `class:…`, `key:…`,
    `parameters:…`), and `evidence_key` what failures are counted by; they hold digests of the
    call's values, `label` the value for people. `point` holds the values of a parameter ban.
    `tool` failed, on `server` where the call names one. `seq` numbers this outcome in the session,
    `last_change` the last state change by another call. `batch` is that of the call.
    `error_fingerprint` masks numbers, paths, hashes and times.
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


class Constraint(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, repr_omit_defaults=True
):
    """A call, target, tool, class or parameter region that is banned, and why.

    `id` is the same for one scope, key and signature in every process. Times are nanoseconds, None
    in untimed replays. `count` is the number of failures behind it; `taught_by` names the first of
    them as `session/call`. `tool` failed, on `server` where the call named one. `points` are the
    failing points of a parameter ban. `label` (a target or key) and `error` are untrusted.
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
    """Failures that are not yet a constraint.

    `session` and `seq` are those of the latest; a later state change in that session restarts the
    count. `batches` are the latest that were counted, each with its session.
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
