"""What a replay amounts to, in numbers. The shape is the JSON report's (`schemas/report…`).

Every renderer (text, Markdown, JUnit, HTML, JSON) is a pure function of `Figures`. Whatever is a
text out of a recording (tools, arguments, messages, errors, ids, file names) is untrusted and is
escaped by the renderer, for where it is shown.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Interval = tuple[float, float]
"""A 95 % interval of a share (Wilson's score interval), both ends from 0 to 1."""

ReplayEffect = Literal["allow", "advise", "ask", "block", "halt", "unknown"]
"""What a policy says to a recorded call. *unknown*: the recording has not kept what the policy
would have to look at, so it may have been refused or not."""

RecordedOutcome = Literal["ok", "failed", "failed (inferred)", "unknown", "refused", "none"]
"""What the recording says came of a call. *inferred*: a failure was read out of the result's text;
*unknown*: there is a result, and nothing tells; *refused*: it did not run; *none*: no result."""

SessionChange = Literal["same", "newly_refused", "newly_allowed", "earlier", "later", "unknown"]
"""How a session fares against the baseline: it has a refused call now and had none; has none now;
is refused a call before (or after) the first one that the baseline refuses. *unknown*: one of them
refuses a call, and of the other it is not known whether it would."""


class Share(msgspec.Struct):
    """`count` of `of`. `rate` and `ci95` are None where `of` is 0: there is nothing to tell."""

    count: int = 0
    of: int = 0
    rate: float | None = None
    ci95: Interval | None = None


class CallFigures(msgspec.Struct, omit_defaults=True):
    """One call in the timeline of a session.

    `place` is its index in the session, from 0; where places jump, calls were left out. `at` is
    nanoseconds since 1970 (UTC), None where the recording has no time. `args` and `error` are
    excerpts: of the arguments as JSON (None where the recording has not kept them), of what a
    failed call's error says. `rule` is the entry with the strongest effect, `message` what it says.
    `counterfactual`: an earlier call of the session has gone otherwise than recorded (under either
    policy, where there are two), so the agent might never have made this one. `baseline` is the
    baseline's verdict, where there is one.
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


class BaselineRunFigures(msgspec.Struct):
    """What the baseline says to a session: as in `RunFigures`, and how the session has changed."""

    change: SessionChange = "same"
    refused: int = 0
    unknown: int = 0
    first_refusal: int | None = None
    first_rule: str | None = None
    first_message: str | None = None


class RunFigures(msgspec.Struct):
    """One session. `first_refusal` is the index of a call in it, from 0, or None.

    `success` is the run's own outcome, or its label's; None where neither is known. `refused`
    counts calls that the policy refuses (ask, block, halt), `unknown` those to which its answer is
    not known, `untimed` those without a time. `first_divergence` is the first call that goes
    otherwise than recorded: refused although it ran, or let through although it was refused.
    Everything after it is counterfactual: the agent would have gone on differently.

    `timeline` is there for a few sessions only, those with refusals first, and holds of a long
    session only the beginning and what is around its first divergence.
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
    """One entry of the policy: of how many calls (`hits`) and sessions it fired with an effect.

    `observed`: the entry itself is in observe mode; it refuses nothing. `first` counts sessions
    whose first refusal it gave; `succeeded` and `failed` those of the sessions whose outcome is
    known. `rate` is `sessions` of all sessions with a call. What was learned counts under the entry
    that taught it (`learn`, `signatures/ID/learn`).
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


class UnfiredEntry(msgspec.Struct):
    """An own entry of the policy (not a pack's) that had nothing to say to any call.

    `absent` are the tools that it names, where no call of these runs is of one of them: as a rule
    such a name is misspelt, or another system's.
    """

    id: str
    file: str
    line: int
    absent_tools: list[str] = msgspec.field(default_factory=list, name="absent")


class PolicyFigures(msgspec.Struct):
    """Which policy was replayed, and how: `enforce` or `observe`."""

    name: str
    digest: str
    mode: str


class ErrorFigures(msgspec.Struct):
    """Results by what is known of their failure.

    `explicit` and `inferred` count failed results, by whether the record says so or its text does;
    `unknown` counts results of which nothing tells.
    """

    explicit: int = 0
    inferred: int = 0
    unknown: int = 0


class SkippedFigures(msgspec.Struct):
    """Something that was not read, and why."""

    file: str
    line: int | None
    reason: str


class RedactedFigures(msgspec.Struct):
    """What a redacted journal has not kept.

    `args`: calls without their arguments; what only these could tell is unknown. `results`: results
    without their text; whether two are the same, and whose fault a failure was, is taken as the
    recording policy told it.
    """

    args: int = 0
    results: int = 0


class EffectFigures(msgspec.Struct):
    """Calls by verdict. Those of unknown verdict are in `TraceFigures.unknown`."""

    allow: int = 0
    advise: int = 0
    ask: int = 0
    block: int = 0
    halt: int = 0


class TraceFigures(msgspec.Struct):
    """What was read.

    `given` counts files that were named, `files` those read (members of archives too), `events`
    what stands in them. `untimed` counts calls without a time: time rules were not asked of them;
    `unknown` calls to which the policy's answer is not known. `without_calls` counts sessions that
    have none: no share is of them; `orphans` those of sub-agents that begin while no parent is at
    work in these files, and are replayed by themselves. `unlabelled` are the sessions with a call
    whose outcome is not known: they count in neither harm nor catch. `skips` names the first.
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


class EvalErrorFigures(msgspec.Struct):
    """An expression of the policy that failed, how often, and how it did first."""

    id: str
    error: str
    hits: int = 0


class Harm(msgspec.Struct):
    """Successful runs, and those of them in which a call was refused. `rate` with its interval.

    `unknown` counts those of which it is not known whether a call would have been refused; `rate`
    is `refused` of the others.
    """

    succeeded: int = 0
    refused: int = 0
    rate: float | None = None
    ci95: Interval | None = None
    unknown: int = 0


class Catch(msgspec.Struct):
    """Failed runs, those with a refused call, and what came after their first refusal.

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
    """Labels that met a session, that met none, and that contradict the recording's own outcome."""

    matched: int = 0
    unmatched: int = 0
    disagree: int = 0


class SignatureFigures(msgspec.Struct):
    """One signature of the policy: the failed results that it knows, and in how many sessions."""

    id: str
    hits: int = 0
    sessions: int = 0


class UnmatchedFigures(msgspec.Struct):
    """A kind of error that no signature knows: its first text (an excerpt), and where that stands.

    Errors are of one kind where they differ in numbers, paths, hashes and times only.
    """

    error: str
    hits: int = 0
    tool: str = ""
    session: str = ""
    file: str = ""


class SignatureCoverage(msgspec.Struct):
    """How many of the failed results a signature knows: `matched`.

    `hidden` results, whose text was not kept, count in none of it. `unmatched` are the most
    frequent of the `kinds` of errors that no signature knows.
    """

    matched: Share = msgspec.field(default_factory=Share)
    redacted: int = msgspec.field(default=0, name="hidden")
    signatures: list[SignatureFigures] = []
    kinds: int = 0
    unmatched: list[UnmatchedFigures] = []


class ChangedCall(msgspec.Struct):
    """The first call of a session to which the policy and the baseline answer differently.

    `rule` and `message` are those of whichever refuses it.
    """

    session: str
    file: str
    success: bool | None
    index: int = msgspec.field(name="place")
    call: CallFigures
    rule: str | None
    message: str | None


class DirectionFigures(msgspec.Struct):
    """What a change of the policy does in one direction (newly refused, or newly allowed).

    `sessions` are whole sessions that have (or have no longer) a refused call, of all with a call;
    `succeeded` and `failed` those of them whose outcome is known. `calls` counts calls. `examples`
    are of sessions with such a call, those that succeeded first.
    """

    sessions: Share = msgspec.field(default_factory=Share)
    succeeded: int = 0
    failed: int = 0
    calls: int = 0
    examples: list[ChangedCall] = []


class BaselineFigures(msgspec.Struct):
    """The same figures for the policy that stood before, and what has changed since.

    Each policy is followed on its own course: behind a session's first divergence under one of
    them, what differs is counterfactual too.

    `earlier` and `later` count sessions that both policies refuse a call of, but not the same one
    first; `unknown` those of which it is not known what has changed.
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
    """One `--fail-on`: its expression, whether it held, and the values that it read, as text.

    `held` is None where it could not be decided, for the reason in `error`; that counts as held.
    """

    expression: str
    triggered: bool | None = msgspec.field(name="held")
    values: dict[str, str] = {}
    error: str | None = None


class Figures(msgspec.Struct):
    """The whole report.

    `refused` are the sessions with a refused call, of all with a call of which it is known whether
    they have one; `undecided` those of which it is not, of all with a call. `sessions` lists them
    in the order read, at most as many as was asked for (those that matter most: refused although
    they succeeded, changed against the baseline, refused); `left_out` counts the rest, which all
    other figures include. `silent` are the policy's own rules, limits and budgets that never spoke.
    `partial`: the replay was interrupted; what was read until then is what `traces` says.
    `elapsed_s` is null: a report says the same whenever, and by how many workers, it is made.
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
    elapsed_s: None = None
