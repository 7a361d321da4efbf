"""The policy as it stands after all layers are merged: what the evaluator is built from.

Names here are the language's names (`docs/policy-language.md`); `class_` is its `class`. Defaults
come from `schemas/policy.schema.json`, so a field without a default here is always given there.
Durations are integers in nanoseconds. CEL expressions and RE2 patterns are still text. `None`
means that the policy does not say.
"""

# No `annotations` from `__future__`: msgspec would compile the text of each by itself.

from typing import Annotated, Literal

import msgspec

from policyguard.model.effect import Effect
from policyguard.model.entry import (
    Entry,
    Examples,
    Mode,
    PolicyStruct,
    SelectiveEntry,
    TextExamples,
)
from policyguard.model.limits import Budget, LimitLevel

Blame = Literal["agent", "harness", "unknown"]
TagType = Literal["string", "int", "double", "bool", "list(string)", "timestamp"]
RedactionMode = Literal["keep", "mask", "hash", "drop"]
Value = bool | int | float | str
PositiveInt = Annotated[int, msgspec.Meta(ge=1)]


class Approval(PolicyStruct, frozen=True, kw_only=True):
    """Who may say yes to a call that was asked about, and what happens when nobody does."""

    from_: tuple[str, ...] = msgspec.field(name="from", default=())
    count: int
    within: int
    otherwise: Literal["block", "allow"]


class Rule(SelectiveEntry, frozen=True, kw_only=True):
    """Judges a call before it runs: it matches if every selector and `when` do and not `unless`.

    `on_error` is the effect where its CEL cannot be evaluated; never `halt`.
    """

    id: str
    unless: str | None = None
    effect: Effect
    on_error: Effect
    message: str | None = None
    instead: str | None = None
    approval: Approval | None = None
    examples: Examples = Examples()


class ResultRule(SelectiveEntry, frozen=True, kw_only=True):
    """Judges a result before the model sees it. `keep`: characters that *truncate* leaves."""

    id: str
    unless: str | None = None
    effect: Literal["advise", "redact", "truncate", "withhold", "halt"]
    keep: int | None = None
    message: str | None = None


class Tag(Entry, frozen=True, kw_only=True):
    """A fact that the host gives. Without a default it is required at the session's start."""

    type: TagType
    one_of: tuple[Value, ...] = ()
    default: Value | tuple[str, ...] | None = None


class Param(Entry, frozen=True, kw_only=True):
    """A named value: the environment's where the variable `env` is set, else the default.

    `min` and `max` are the smallest and the largest value that it may have (a duration in
    nanoseconds), `unit` is what a bare number there counts in.
    """

    value: Value
    env: str | None = None
    unit: str | None = None
    min: int | float | None = None
    max: int | float | None = None


class Pattern(Entry, frozen=True, kw_only=True):
    """A named RE2 pattern for `finds`, redaction and the journal."""

    match: str
    examples: TextExamples = TextExamples()


class ClassEntry(Entry, frozen=True, kw_only=True):
    """Calls that match all keys given here are of the class. `words`: whole words of a name."""

    class_: str = msgspec.field(name="class")
    words: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    commands: tuple[str, ...] | None = None
    when: str | None = None


class Shell(PolicyStruct, frozen=True, kw_only=True):
    """How a shell command is read: `arguments` are the names that may hold one."""

    arguments: tuple[str, ...] = ()
    wrappers: tuple[str, ...] = ()
    options: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    plain: tuple[str, ...] = ()


class Fingerprint(PolicyStruct, frozen=True, kw_only=True):
    """When two calls, and two results, are the same.

    `ignore` names arguments left out, `fold` those compared without case and white space,
    `tolerance` those compared as numbers within that share of each other; `result_chars` is how
    much of a result counts (None: all).
    """

    ignore: tuple[str, ...] = ()
    tolerance: dict[str, float] = msgspec.field(default_factory=dict)
    fold: tuple[str, ...] = ()
    result_chars: int | None = None


class Classify(PolicyStruct, frozen=True, kw_only=True):
    """What a call is. `classes` is read first-match; `state_changing` is classes, or CEL."""

    classes: tuple[ClassEntry, ...] = ()
    targets: tuple[str, ...] = ()
    state_changing: tuple[str, ...] | str | None = None
    shell: Shell
    fingerprint: Fingerprint


class Envelope(Entry, frozen=True, kw_only=True):
    """A result in which `pattern` is found has this state."""

    state: Literal["success", "failure", "pending"]
    pattern: str


class ResultMeta(PolicyStruct, frozen=True, kw_only=True):
    """Keys in a result's metadata that flag it as not advancing, or as the harness's fault."""

    non_advancing: tuple[str, ...] = ()
    harness: tuple[str, ...] = ()


class Outcomes(PolicyStruct, frozen=True, kw_only=True):
    """What a result is. `failed_when` (CEL) decides where it is given."""

    failed_when: str | None = None
    envelope: tuple[Envelope, ...] = ()
    meta: ResultMeta = ResultMeta()


class Weaken(PolicyStruct, frozen=True, kw_only=True):
    """How a constraint loses its hold: with time, and with success.

    `half_life` and `lives` are nanoseconds; `probation` is the confidence (0 to 1) at which one
    call is let through.
    """

    half_life: int | None = None
    lives: int | None = None
    on_success: Literal["forget", "keep"] | None = None
    probation: float | None = None


class Parameters(PolicyStruct, frozen=True, kw_only=True):
    """Arguments that a signature is about, and where values beyond the failed one fail too."""

    of: tuple[str, ...]
    direction: Literal["up", "down", "exact"]


class Learn(PolicyStruct, frozen=True, kw_only=True):
    """What failures teach. Under a signature only what it overrides is given."""

    corroborate: int | None = None
    ban: Literal["call", "target", "tool", "class"] | None = None
    key: str | None = None
    except_: tuple[str, ...] | None = msgspec.field(name="except", default=None)
    blame: tuple[Blame, ...] | None = None
    scope: Literal["session", "agent", "project", "global"] | None = None
    scope_key: str | None = None
    reset_on: Literal["state_changing", "none"] | None = None
    weaken: Weaken | None = None
    most: int | None = None
    count_by: str | None = None
    parameters: dict[str, Parameters] | None = None


class Signature(Entry, frozen=True, kw_only=True):
    """A kind of failure, known by an RE2 pattern in the result. Read first-match."""

    id: str
    pattern: str
    on: Literal["error", "success", "any"]
    blame: Blame
    learn: Learn | None = None
    examples: TextExamples = TextExamples()


class BlameRule(Entry, frozen=True, kw_only=True):
    """Overrides a signature's blame where `when` (CEL) holds. Read first-match."""

    id: str
    when: str
    blame: Blame


class MarkEvent(SelectiveEntry, frozen=True, kw_only=True):
    """The calls that set or clear a mark."""


class Mark(Entry, frozen=True, kw_only=True):
    """Something that has happened: a bool, or with `key` (CEL) a set of at most `keep` strings."""

    id: str
    set: MarkEvent
    clear: MarkEvent | None = None
    per: Literal["turn", "session", "agent", "project"]
    within: int | None = None
    key: str | None = None
    keep: int
    on_error: Literal["unset", "set"]


class Radius(PolicyStruct, frozen=True, kw_only=True):
    """How many targets one call may touch. Several are read first-match by `when`."""

    schedule: tuple[int | Literal["unlimited"], ...]
    shrink_after: int | None = None
    widen_after: int | None = None
    when: str | None = None


class Progress(PolicyStruct, frozen=True, kw_only=True):
    """Convergence: of `outcome.score`, and of what is left to try.

    `space` is how many calls' ways of acting are the search space, `exhausted_after` how many ways
    it must have before it can be exhausted, `constrained_below` the share that is too little.
    """

    plateau_after: int
    min_delta: float
    direction: Literal["minimize", "maximize"]
    space: int
    exhausted_after: int
    constrained_below: float


class Exemption(Entry, frozen=True, kw_only=True):
    """A dated waiver: calls that `when` holds for are not judged by `rules` until the day."""

    id: str
    rules: tuple[str, ...]
    when: str | None = None
    until: str


class Journal(PolicyStruct, frozen=True, kw_only=True):
    """What is written down of a call, and how surely."""

    args: RedactionMode
    results: RedactionMode
    redact: tuple[str, ...] = ()
    keep_for: int | None = None
    durability: Literal["process", "fsync", "memory"]


class Bounds(PolicyStruct, frozen=True, kw_only=True):
    """Caps on what policyguard itself may hold. The least recently used goes first.

    `in_flight` counts admitted calls of one session that nobody has reported; one that stays
    `unreported` this long (nanoseconds) is reclaimed. A cancelled async call has `cleanup`
    (nanoseconds) before it is left to itself. `window_entries`, `budget_keys` are for one window
    and one budget.
    """

    sessions: PositiveInt
    journals: PositiveInt
    plans: PositiveInt
    in_flight: PositiveInt
    unreported: int
    cleanup: int
    window_entries: PositiveInt
    budget_keys: PositiveInt
    argument_bytes: PositiveInt
    argument_depth: PositiveInt
    constraints: PositiveInt
    evidence: PositiveInt


class Policy(PolicyStruct, frozen=True, kw_only=True):
    """One policy, all layers in one.

    `limits` has the keys `default`, `classes:NAME` and `tools:GLOB`. `digest` is the SHA-256, in
    hex, of the layers' text and of the environment's values that went in.
    """

    name: str
    description: str = ""
    owner: str | None = None
    mode: Mode
    locked: bool = False
    on_internal_error: Literal["block", "allow"]
    schemas: str | None = None
    params: dict[str, Param] = msgspec.field(default_factory=dict)
    tags: dict[str, Tag] = msgspec.field(default_factory=dict)
    lists: dict[str, tuple[Value, ...]] = msgspec.field(default_factory=dict)
    patterns: dict[str, Pattern] = msgspec.field(default_factory=dict)
    classify: Classify
    outcomes: Outcomes
    signatures: tuple[Signature, ...] = ()
    blame: tuple[BlameRule, ...] = ()
    marks: tuple[Mark, ...] = ()
    limits: dict[str, LimitLevel] = msgspec.field(default_factory=dict)
    budgets: tuple[Budget, ...] = ()
    learn: Learn | None = None
    radius: tuple[Radius, ...] = ()
    progress: Progress
    rules: tuple[Rule, ...] = ()
    result_rules: tuple[ResultRule, ...] = ()
    exceptions: tuple[Exemption, ...] = ()
    journal: Journal
    bounds: Bounds
    digest: str
