"""What a replay amounts to, in numbers. The shape is the JSON report's (`schemas/report…`)."""

from __future__ import annotations

import msgspec


class RunFigures(msgspec.Struct):
    """One session. `first_refusal` is the index of a call in it, from 0, or None.

    Everything after the first refusal is counterfactual: with the refusal, the agent would have
    gone on differently.
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


class RuleFigures(msgspec.Struct):
    """One entry of the policy: how often it fired with an effect, in how many sessions."""

    id: str
    effect: str
    hits: int = 0
    sessions: int = 0


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


class TraceFigures(msgspec.Struct):
    """What was read. `untimed` counts calls without a time: time rules were not asked of them."""

    files: int = 0
    sessions: int = 0
    calls: int = 0
    skipped: int = 0
    formats: dict[str, int] = {}
    untimed: int = 0
    errors: ErrorFigures = msgspec.field(default_factory=ErrorFigures)
    skips: list[SkippedFigures] = []


class FaultFigures(msgspec.Struct):
    """An expression of the policy that failed, how often, and how it did first."""

    id: str
    error: str
    hits: int = 0


class Harm(msgspec.Struct):
    """Successful runs, and those of them in which a call was refused. `rate` with its interval."""

    succeeded: int = 0
    refused: int = 0
    rate: float | None = None
    ci95: tuple[float, float] | None = None


class Catch(msgspec.Struct):
    """Failed runs, those with a refused call, and what came after their first refusal."""

    failed: int = 0
    refused: int = 0
    rate: float | None = None
    ci95: tuple[float, float] | None = None
    calls_saved: int = 0
    cost_saved: float = 0.0


class LabelFigures(msgspec.Struct):
    """Labels that met a session, that met none, and that contradict the recording's own outcome."""

    matched: int = 0
    unmatched: int = 0
    disagree: int = 0


class Figures(msgspec.Struct):
    """The whole report. `interrupted`: it covers only what was read until it was stopped."""

    policy: PolicyFigures
    traces: TraceFigures = msgspec.field(default_factory=TraceFigures)
    effects: dict[str, int] = {}
    rules: list[RuleFigures] = []
    faults: list[FaultFigures] = []
    sessions: list[RunFigures] = []
    harm: Harm = msgspec.field(default_factory=Harm)
    catch: Catch = msgspec.field(default_factory=Catch)
    labels: LabelFigures = msgspec.field(default_factory=LabelFigures)
    interrupted: bool = False
    elapsed_s: float = 0.0
