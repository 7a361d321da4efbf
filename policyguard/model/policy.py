"""The policy after all layers are merged, from which the evaluator is built.

Names here are the language's names (`docs/policy-language.md`); `class_` is its `class`. Defaults
come from `schemas/policy.schema.json`, so a field without a default here is always given there.
Durations are integers in nanoseconds. CEL expressions and RE2 patterns are still text. `None`
means that the policy does not say. One module, as it is one schema.
"""

# No `annotations` from `__future__`: msgspec would compile the text of each by itself.

from typing import Annotated, Literal

import msgspec

from policyguard.model.effect import Effect, ResultEffect
from policyguard.model.entry import (
    Entry,
    Examples,
    Mode,
    PolicyStruct,
    SelectiveEntry,
    TextExamples,
)
from policyguard.model.limits import Budget, LimitLevel
from policyguard.model.marks import Mark
from policyguard.model.pins import Pins
from policyguard.model.shell import Shell

Blame = Literal["agent", "harness", "unknown"]
TagType = Literal["string", "int", "double", "bool", "list(string)", "timestamp"]
RedactionMode = Literal["keep", "mask", "hash", "drop"]
Value = bool | int | float | str
PositiveInt = Annotated[int, msgspec.Meta(ge=1)]


class Approval(PolicyStruct, frozen=True, kw_only=True):
    """Who may approve a call, what they may have remembered, and what happens if no one does."""

    from_: tuple[str, ...] = msgspec.field(name="from", default=())
    count: int
    within: int
    otherwise: Literal["block", "allow"]
    remember: tuple[str, ...]


class Webhook(PolicyStruct, frozen=True, kw_only=True):
    """Where calls that wait are posted to, signed with a secret of the service's environment.

    `timeout` of one request, and for how long it is repeated, are nanoseconds.
    """

    url: str
    secret_env: str
    timeout: int
    retry_for: int


class Approvals(PolicyStruct, frozen=True, kw_only=True):
    """How people learn of calls that need an approval."""

    webhook: Webhook | None = None


class Case(SelectiveEntry, frozen=True, kw_only=True):
    """One case of a rule. `on_error` is the effect if its CEL fails."""

    unless: str | None = None
    effect: Effect
    on_error: Effect
    message: str | None = None
    instead: str | None = None
    examples: Examples = Examples()


class Rule(SelectiveEntry, frozen=True, kw_only=True):
    """A rule on calls: it matches if every selector and `when` match, and `unless` does not.

    `on_error` is the effect if its CEL fails; never `halt`. Where there are `cases`, the first that
    matches decides, else `otherwise`; `effect` is then the strongest of theirs.
    """

    id: str
    unless: str | None = None
    effect: Effect
    on_error: Effect
    message: str | None = None
    instead: str | None = None
    approval: Approval | None = None
    cases: tuple[Case, ...] = ()
    otherwise: Effect = Effect.ALLOW
    examples: Examples = Examples()


class ResultRule(SelectiveEntry, frozen=True, kw_only=True):
    """A rule on results, before the model sees them. `keep`: characters that *truncate* leaves."""

    id: str
    unless: str | None = None
    effect: ResultEffect
    keep: int | None = None
    message: str | None = None


class Tag(Entry, frozen=True, kw_only=True):
    """A value that the host passes. Without a default it is required at the session's start."""

    type: TagType
    one_of: tuple[Value, ...] = ()
    default: Value | tuple[str, ...] | None = None


class Param(Entry, frozen=True, kw_only=True):
    """A named value: the environment variable `env` if set, else the default.

    `min` and `max` bound it (a duration in nanoseconds), `unit` is that of a bare number there.
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
    """A class: calls that match all its keys.

    `words`: whole words of a name; if `leading`, its first word.
    """

    class_: str = msgspec.field(name="class")
    words: tuple[str, ...] | None = None
    leading: bool = False
    tools: tuple[str, ...] | None = None
    commands: tuple[str, ...] | None = None
    when: str | None = None


Mask = Literal["times", "durations", "ids", "pids", "temp_names", "addresses", "counters", "usage"]
"""Parts of a result that may differ although it says the same (see `engines.likeness`)."""


class Fingerprint(PolicyStruct, frozen=True, kw_only=True):
    """When two calls, and two results, are the same.

    `ignore` names arguments left out, `fold` those compared without case and white space,
    `tolerance` those compared as numbers within that share of each other. `result_chars` limits how
    much of a result counts.
    """

    ignore: tuple[str, ...] = ()
    tolerance: dict[str, float] = msgspec.field(default_factory=dict)
    fold: tuple[str, ...] = ()
    result_chars: int | None = None


class LikeResults(PolicyStruct, frozen=True, kw_only=True):
    """When two results are alike: `ignore` names fields of JSON, `mask` kinds of variable parts.

    `nothing` is what results say that found nothing: in these the words of the call are masked too.
    With `order` ignored, two that hold the same lines are alike.
    """

    ignore: tuple[str, ...] = ()
    mask: tuple[Mask, ...] = ()
    nothing: tuple[str, ...] = ()
    order: Literal["kept", "ignored"]


class Likeness(PolicyStruct, frozen=True, kw_only=True):
    """By what limits tell calls and results, more loosely than by their fingerprints.

    `ignore` names arguments left out, `fold` those compared without case, white space and `./`.
    With `commands`, comments and harmless prefixes of shell commands are left out.
    """

    ignore: tuple[str, ...] = ()
    fold: tuple[str, ...] = ()
    commands: bool
    results: LikeResults


class Classify(PolicyStruct, frozen=True, kw_only=True):
    """Classification of calls. `classes` all match, the first is the main class.

    `targets`, `paths`, `globs`, `patches`, `urls` and `folder` name arguments. `state_changing` is
    classes, or CEL.
    """

    classes: tuple[ClassEntry, ...] = ()
    targets: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    globs: tuple[str, ...] = ()
    patches: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    folder: tuple[str, ...] = ()
    state_changing: tuple[str, ...] | str | None = None
    shell: Shell
    fingerprint: Fingerprint
    likeness: Likeness


class Envelope(Entry, frozen=True, kw_only=True):
    """A result that matches `pattern` has this state."""

    state: Literal["success", "failure", "pending"]
    pattern: str


class ResultMeta(PolicyStruct, frozen=True, kw_only=True):
    """Metadata keys that flag a result as not advancing, or as the harness's fault.

    Of a server behind the proxy, `tokens` and `cost` say what a call has used; keys that match
    `strip` (globs) do not reach the client.
    """

    non_advancing: tuple[str, ...] = ()
    harness: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    cost: tuple[str, ...] = ()
    strip: tuple[str, ...] = ()


class Outcomes(PolicyStruct, frozen=True, kw_only=True):
    """Classification of results. `failed_when` (CEL), if given, decides.

    `wrappers` (RE2) match errors in a framework's words; their first group is the error itself.
    """

    failed_when: str | None = None
    wrappers: tuple[str, ...] = ()
    envelope: tuple[Envelope, ...] = ()
    meta: ResultMeta = ResultMeta()


class Weaken(PolicyStruct, frozen=True, kw_only=True):
    """How a constraint fades, with time and with success.

    `half_life` and `lives` are nanoseconds; `probation` is the confidence (0 to 1) at which a probe
    is admitted.
    """

    half_life: int | None = None
    lives: int | None = None
    on_success: Literal["forget", "keep"] | None = None
    probation: float | None = None


class Parameters(PolicyStruct, frozen=True, kw_only=True):
    """Arguments that a signature concerns, and in which direction other values fail too."""

    of: tuple[str, ...]
    direction: Literal["up", "down", "exact"]


class Learn(PolicyStruct, frozen=True, kw_only=True):
    """What failures teach. A signature gives only what it overrides."""

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
    """A pattern (RE2) that classifies a failure by its result. First match."""

    id: str
    pattern: str
    on: Literal["error", "success", "any"]
    blame: Blame
    learn: Learn | None = None
    examples: TextExamples = TextExamples()


class BlameRule(Entry, frozen=True, kw_only=True):
    """Overrides a signature's blame where `when` (CEL) holds. First match."""

    id: str
    when: str
    blame: Blame


class Radius(PolicyStruct, frozen=True, kw_only=True):
    """How many targets one call may touch. The first whose `when` matches applies."""

    schedule: tuple[int | Literal["unlimited"], ...]
    shrink_after: int | None = None
    widen_after: int | None = None
    when: str | None = None


class Progress(PolicyStruct, frozen=True, kw_only=True):
    """Progress: of `outcome.score`, and of what remains to try.

    `space` is how many calls make up the search space, `exhausted_after` how many candidates it
    needs before it can be exhausted, `constrained_below` the share of free ones that is too little.
    """

    plateau_after: int
    min_delta: float
    direction: Literal["minimize", "maximize"]
    space: int
    exhausted_after: int
    constrained_below: float


class Exemption(Entry, frozen=True, kw_only=True):
    """A dated waiver: until that day `rules` do not apply to calls that `when` matches.

    `rules` are ids of rules, limits and budgets, parts of ids, or globs. `until` is a day of UTC;
    `warn_before` its end (ns) lint warns.
    """

    id: str
    rules: tuple[str, ...]
    when: str | None = None
    until: str
    warn_before: int


class Journal(PolicyStruct, frozen=True, kw_only=True):
    """What a journal keeps of a call, how durably, and how long (ns).

    If nothing was loaded or written for `max_gap` (ns), the clock does not tell what is old.
    """

    args: RedactionMode
    results: RedactionMode
    redact: tuple[str, ...] = ()
    keep_for: int | None = None
    max_gap: int
    durability: Literal["process", "fsync", "memory"]


class Bounds(PolicyStruct, frozen=True, kw_only=True):
    """Caps on what policyguard itself keeps. The least recently used goes first.

    `in_flight` caps a session's admitted calls without a result; one without for `unreported`
    nanoseconds is given up, and up to `given_up` of those are kept. A cancelled async call has
    `cleanup` (nanoseconds) to end.
    `window_entries` and `budget_keys` are per window and per budget. `result_chars` and
    `result_depth` bound what result rules and `outcome.data` read.
    """

    sessions: PositiveInt
    journals: PositiveInt
    plans: PositiveInt
    in_flight: PositiveInt
    given_up: PositiveInt
    unreported: int
    cleanup: int
    window_entries: PositiveInt
    budget_keys: PositiveInt
    argument_bytes: PositiveInt
    argument_depth: PositiveInt
    result_chars: PositiveInt
    result_depth: PositiveInt
    constraints: PositiveInt
    evidence: PositiveInt
    grants: PositiveInt


class Policy(PolicyStruct, frozen=True, kw_only=True):
    """One policy, all layers merged.

    `limits` has the keys `default`, `classes:NAME` and `tools:GLOB`. `digest` is the SHA-256, in
    hex, of the layers' text and of the environment's values that went in.
    """

    name: str
    description: str = ""
    owner: str | None = None
    mode: Mode
    locked: bool = False
    on_internal_error: Literal["block", "allow"]
    batch: Literal["each", "all_or_none"]
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
    pins: Pins | None = None
    approvals: Approvals = Approvals()
    journal: Journal
    bounds: Bounds
    digest: str
