"""The figures of a replay, in the shape of the JSON report (`schemas/report.schema.json`).

Every renderer is a pure function of `Figures`. Texts from a recording (tools, arguments, messages,
errors, ids, file names) are untrusted; each renderer escapes them for its format. One module, as
it is one schema.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Interval = tuple[float, float]
"""The ends of a share's 95 % interval: Wilson's score interval, of a sample the stratified one."""

ReplayEffect = Literal["allow", "advise", "ask", "block", "halt", "unknown"]
"""A policy's effect on a recorded call; `unknown` if the recording lacks the data to decide it."""

RecordedOutcome = Literal["ok", "failed", "failed (inferred)", "unknown", "refused", "none"]
"""A call's recorded outcome. `inferred`: the result's text looks like a failure; `unknown`: the
result's status is not recorded; `refused`: the call did not run; `none`: no result."""

SessionChange = Literal["same", "newly_refused", "newly_allowed", "earlier", "later", "unknown"]
"""How a session's first refusal differs from the baseline's. `unknown`: one is undetermined."""


class Share(msgspec.Struct):
    """`count` of `of`. `rate` and `ci95` are None if `of` is 0."""

    count: int = 0
    of: int = 0
    rate: float | None = None
    ci95: Interval | None = None


class CallFigures(msgspec.Struct, omit_defaults=True):
    """One call in the timeline of a session.

    `place` is its index in the session, from 0; a gap means that calls were left out. `at` is in
    nanoseconds since 1970 (UTC), None if not recorded. `args` (as JSON, None if not recorded),
    `error` and `result` (of a call that did not fail) are excerpts. `rule` is the entry with the
    strongest effect, `message` its text.
    `counterfactual`: under the policy or the baseline, an earlier call of the session ended
    differently than recorded, so the agent might not have made this one. `baseline` is the
    baseline's effect.
    """

    index: int = msgspec.field(name="place")
    call: str
    tool: str
    effect: ReplayEffect
    recorded: RecordedOutcome
    at: int | None = None
    args: str | None = None
    rule: str | None = None
    message: str | None = None
    counterfactual: bool = False
    error: str | None = None
    signature: str | None = None
    baseline: ReplayEffect | None = None
    baseline_rule: str | None = None
    result: str | None = None


class BaselineRunFigures(msgspec.Struct):
    """The baseline's figures for a session, and how the session changed."""

    change: SessionChange = "same"
    refused: int = 0
    unknown: int = 0
    first_refusal: int | None = None
    first_rule: str | None = None
    first_message: str | None = None


class RunFigures(msgspec.Struct):
    """One session. `first_refusal` is the index of a call, from 0, or None.

    `success` is the label or the recorded outcome, None if unknown. `refused` counts refused calls
    (ask, block, halt), `unknown` undetermined ones, `untimed` those without a time.
    `first_divergence` is the first call that ran but is refused, or was refused but is admitted;
    all later calls are counterfactual.

    Only a few sessions have a `timeline`, those with refusals first. A long session's timeline
    holds its beginning and the calls around the first divergence.
    """

    id: str
    file: str
    format: str
    calls: int = 0
    success: bool | None = None
    first_refusal: int | None = None
    refused: int = 0
    calls_after_first_refusal: int = 0
    first_rule: str | None = None
    first_tool: str | None = None
    first_message: str | None = None
    cost_after_first_refusal: float = 0.0
    unknown: int = 0
    untimed: int = 0
    advised: int = 0
    first_divergence: int | None = None
    baseline: BaselineRunFigures | None = None
    timeline: list[CallFigures] = []


class RuleFigures(msgspec.Struct):
    """One entry of the policy, and in how many calls (`hits`) and sessions it fired with an effect.

    `observed`: the entry is in observe mode and refuses nothing. `first` counts sessions whose
    first refusal it caused, `first_succeeded` the successful ones among them: its part of the harm.
    `succeeded` and `failed` count its sessions by known outcome. `rate` is `sessions` of all
    sessions with a call. Constraints count under the section that taught them (`learn`,
    `signatures/ID/learn`). `file`, `line` and `source`: where the entry is written, and its first
    lines.
    """

    id: str
    effect: str
    hits: int = 0
    sessions: int = 0
    first: int = 0
    succeeded: int = 0
    failed: int = 0
    rate: float | None = None
    ci95: Interval | None = None
    observed: bool = False
    first_succeeded: int = 0
    file: str = ""
    line: int = 0
    source: list[str] = []


class UnfiredEntry(msgspec.Struct):
    """An own entry of the policy (not a pack's) that never fired.

    `absent` lists the tools it names, if these runs have no call of any: the names may be misspelt,
    or another system's.
    """

    id: str
    file: str
    line: int
    absent_tools: list[str] = msgspec.field(default_factory=list, name="absent")


class PolicyFigures(msgspec.Struct):
    """The replayed policy, and the mode: `enforce` or `observe`."""

    name: str
    digest: str
    mode: str


class ErrorFigures(msgspec.Struct):
    """Results recorded as failed, inferred to have failed, and of unknown status."""

    explicit: int = 0
    inferred: int = 0
    unknown: int = 0


class SkippedFigures(msgspec.Struct):
    """A place in a file that was not read, and why."""

    file: str
    line: int | None
    reason: str


class RedactedFigures(msgspec.Struct):
    """Data missing from a redacted journal.

    `args` counts calls without arguments; what depends on these is unknown. `results` counts
    results without text; their fingerprints and blame are those that the recording policy
    determined.
    """

    args: int = 0
    results: int = 0


class EffectFigures(msgspec.Struct):
    """Calls by effect. Undetermined ones are in `TraceFigures.unknown`."""

    allow: int = 0
    advise: int = 0
    ask: int = 0
    block: int = 0
    halt: int = 0


class StratumFigures(msgspec.Struct):
    """Sessions of one agent and outcome, with their sub-agents as one, and how many were drawn.

    `agent` is None for agents without a stratum of their own, of which there are too many.
    """

    agent: str | None
    success: bool | None
    sessions: int = 0
    drawn: int = 0


class TraceFigures(msgspec.Struct):
    """The input of a replay.

    `files` counts the files read, with members of archives; `given` those that were named.
    `untimed` counts calls without a time, for which time rules are not evaluated; `unknown`
    undetermined calls. `without_calls` counts sessions without calls, which no share includes;
    `orphans` sub-agents without a running parent, which are replayed alone. `unlabelled` are the
    sessions with calls but without a known outcome, which count in neither harm nor catch. `skips`
    lists the first skipped places, `candidates` counts calls on which recorded candidates differed.
    `sample` is the share of sessions that was asked for, None for all; `strata` are all sessions
    and those that were drawn. Then counts are those of the sample; each `rate` and `ci95` of
    the report is an estimate of the whole.
    """

    files: int = 0
    sessions: int = 0
    calls: int = 0
    skipped: int = 0
    formats: dict[str, int] = {}
    untimed: int = 0
    errors: ErrorFigures = msgspec.field(default_factory=ErrorFigures)
    skips: list[SkippedFigures] = []
    named_files: int = msgspec.field(default=0, name="given")
    events: int = 0
    unknown: int = 0
    redacted: RedactedFigures = msgspec.field(default_factory=RedactedFigures, name="hidden")
    unlabelled: Share = msgspec.field(default_factory=Share)
    without_calls: int = 0
    orphans: int = 0
    candidates: dict[str, int] = {}
    sample: float | None = None
    strata: list[StratumFigures] = []


class EvalErrorFigures(msgspec.Struct):
    """An expression of the policy that failed to evaluate, how often, and its first error."""

    id: str
    error: str
    hits: int = 0


class Harm(msgspec.Struct):
    """The successful runs, and those in which a call was refused.

    `unknown` counts undetermined runs; `rate` is `refused` of the others.
    """

    succeeded: int = 0
    refused: int = 0
    rate: float | None = None
    ci95: Interval | None = None
    unknown: int = 0


class Catch(msgspec.Struct):
    """The failed runs, those with a refused call, and what came after their first refusal.

    `unknown` and `rate` as in `Harm`.
    """

    failed: int = 0
    refused: int = 0
    rate: float | None = None
    ci95: Interval | None = None
    calls_saved: int = 0
    cost_saved: float = 0.0
    unknown: int = 0


class LabelFigures(msgspec.Struct):
    """Labels that match a session, match none, or contradict the recorded outcome."""

    matched: int = 0
    unmatched: int = 0
    disagree: int = 0


class SignatureFigures(msgspec.Struct):
    """One signature of the policy, and how many failed results and sessions it matches."""

    id: str
    hits: int = 0
    sessions: int = 0


class UnmatchedFigures(msgspec.Struct):
    """A kind of error that no signature matches: an excerpt of the first one, and where it is.

    Errors of one kind differ only in numbers, paths, hashes and times.
    """

    error: str
    hits: int = 0
    tool: str = ""
    session: str = ""
    file: str = ""


class SignatureCoverage(msgspec.Struct):
    """How many failed results a signature matches.

    Results without text are counted apart. `unmatched` are the most frequent of the `kinds` of
    errors that no signature matches.
    """

    matched: Share = msgspec.field(default_factory=Share)
    redacted: int = msgspec.field(default=0, name="hidden")
    signatures: list[SignatureFigures] = []
    kinds: int = 0
    unmatched: list[UnmatchedFigures] = []


class ChangedCall(msgspec.Struct):
    """The first call of a session on which the policy and the baseline disagree.

    `rule` and `message` are those of the policy that refuses it.
    """

    session: str
    file: str
    success: bool | None
    index: int = msgspec.field(name="place")
    call: CallFigures
    rule: str | None
    message: str | None


class DirectionFigures(msgspec.Struct):
    """The newly refused, or the newly allowed, sessions and calls.

    `sessions` counts sessions that gained (or lost) their only refusals, of all with a call;
    `succeeded` and `failed` count them by known outcome. `examples` are from sessions with such a
    call, successful ones first.
    """

    sessions: Share = msgspec.field(default_factory=Share)
    succeeded: int = 0
    failed: int = 0
    calls: int = 0
    examples: list[ChangedCall] = []


class BaselineFigures(msgspec.Struct):
    """The figures of the baseline, and what changed since.

    The two policies are replayed independently: after the first divergence under either one, their
    differences are counterfactual too.

    `earlier` and `later` count sessions in which both policies refuse a call, but a different one
    first; `unknown` counts sessions whose change is undetermined.
    """

    policy: PolicyFigures
    effects: EffectFigures = msgspec.field(default_factory=EffectFigures)
    rules: list[RuleFigures] = []
    eval_errors: list[EvalErrorFigures] = msgspec.field(default_factory=list, name="faults")
    refused: Share = msgspec.field(default_factory=Share)
    harm: Harm = msgspec.field(default_factory=Harm)
    catch: Catch = msgspec.field(default_factory=Catch)
    newly_refused: DirectionFigures = msgspec.field(default_factory=DirectionFigures)
    newly_allowed: DirectionFigures = msgspec.field(default_factory=DirectionFigures)
    earlier: int = 0
    later: int = 0
    unknown: int = 0


class GateFigures(msgspec.Struct):
    """One `--fail-on` condition, whether it was true, and the values it read, as text.

    `held`: whether it was true, so that the gate fails; null if that could not be decided, for the
    reason in `error`; the gate then fails too.
    """

    expression: str
    triggered: bool | None = msgspec.field(name="held")
    values: dict[str, str] = {}
    error: str | None = None


class Figures(msgspec.Struct):
    """The whole report.

    `refused` is the share of sessions with a refused call, without undetermined ones; `undecided`
    that of undetermined sessions. `sessions` lists sessions in the order read, up to the requested
    number: first those refused although they succeeded, then those changed against the baseline,
    then other refused ones. `left_out` counts the rest, which all other figures include. `silent`
    lists the policy's own rules, limits and budgets that never fired, `faults` expressions that
    failed, `gates` the `--fail-on` conditions. `partial`: the replay was interrupted.
    `created_at` (UTC, ISO 8601) and `elapsed_s` are when the command made the report, and how long
    it took; else null. They alone differ between equal replays.
    """

    policy: PolicyFigures
    traces: TraceFigures = msgspec.field(default_factory=TraceFigures)
    effects: EffectFigures = msgspec.field(default_factory=EffectFigures)
    rules: list[RuleFigures] = []
    eval_errors: list[EvalErrorFigures] = msgspec.field(default_factory=list, name="faults")
    sessions: list[RunFigures] = []
    left_out: int = 0
    refused: Share = msgspec.field(default_factory=Share)
    undecided: Share = msgspec.field(default_factory=Share)
    harm: Harm = msgspec.field(default_factory=Harm)
    catch: Catch = msgspec.field(default_factory=Catch)
    labels: LabelFigures = msgspec.field(default_factory=LabelFigures)
    signatures: SignatureCoverage = msgspec.field(default_factory=SignatureCoverage)
    baseline: BaselineFigures | None = None
    gates: list[GateFigures] = []
    unfired: list[UnfiredEntry] = msgspec.field(default_factory=list, name="silent")
    partial: bool = False
    created_at: str | None = None
    elapsed_s: float | None = None
