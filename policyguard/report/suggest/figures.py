"""What `policyguard suggest` has found, in numbers. The shape is the JSON report's.

Texts out of recordings (examples, tools) are untrusted and are escaped by the renderer.
"""

from __future__ import annotations

import msgspec

from policyguard.report.replay.figures import PolicyFigures, Share


class GroupFigures(msgspec.Struct):
    """Labelled runs: for finding candidates, or held out for testing them."""

    succeeded: int = 0
    failed: int = 0


class SettingChange(msgspec.Struct):
    """An entry that a candidate sets; `was` is empty where the policy has none."""

    entry: str
    new: dict[str, int | str] = msgspec.field(name="now")
    old: dict[str, int | str] = msgspec.field(name="was")


class OutcomeFigures(msgspec.Struct):
    """What a policy refuses of some runs.

    `unknown`: successful runs that count as refused, for the recording has not kept what would
    tell.
    """

    harm: Share
    catch: Share
    unknown: int = 0


class CandidateFigures(msgspec.Struct):
    """A policy that was tested, in the order of the tests.

    `explored` is over the runs that it was found with, and flatters it; `held_out` over those that
    had no part in that. `p_value`: how likely so little harm is where the true share is above what
    is allowed. `bound`: its harm at most, for all candidates at once. `unlabelled`: refused of the
    sessions whose outcome is not known.
    """

    changes: list[SettingChange]
    explored: OutcomeFigures
    held_out: OutcomeFigures
    unlabelled: Share
    p_value: float
    bound: float
    certified: bool = False
    chosen: bool = False


class SweepPoint(msgspec.Struct):
    """One entry with one setting, by itself, over the runs to explore with."""

    entry: str
    setting: dict[str, int | str]
    harm: int
    catch: int
    is_current: bool = msgspec.field(name="now")


class CurvePoint(msgspec.Struct):
    """The most that can be caught for that much harm, over the runs to explore with."""

    harm: Share
    catch: Share
    changes: list[SettingChange]


class SignatureProposal(msgspec.Struct):
    """A signature for errors that none knows. The examples are redacted and cut."""

    id: str
    pattern: str
    hits: int
    sessions: int
    tool: str
    examples: list[str]


class UnproposedFigures(msgspec.Struct):
    """Errors for which no signature is proposed: why, how many clusters, how many errors."""

    why: str
    clusters: int
    errors: int


class ErrorsFigures(msgspec.Struct):
    """Errors that the policy's signatures know, and that none does."""

    known: int = 0
    unknown: int = 0
    unproposed: list[UnproposedFigures] = []


class Suggestion(msgspec.Struct):
    """All of it. `needed` is how many held-out successful runs a promise takes at the least.

    `guaranteed`: with a probability of at least `confidence` over the draw of runs like these, at
    most `max_harm` of the successful ones would have a call refused under the chosen candidate.
    `shared` are entries by which runs bear on each other, so that they are not independent.
    `yaml` is that candidate as a layer, `signatures_yaml` the signatures as another one; empty
    where there is none.
    """

    policy: PolicyFigures
    max_harm: float
    confidence: float
    seed: int
    sessions: int
    unlabelled: int
    explored: GroupFigures
    held_out: GroupFigures
    needed: int
    guaranteed: bool
    candidates: list[CandidateFigures]
    shared: list[str]
    sweep: list[SweepPoint] = []
    curve: list[CurvePoint] = []
    errors: ErrorsFigures = msgspec.field(default_factory=ErrorsFigures)
    signatures: list[SignatureProposal] = []
    replays: int = 0
    yaml: str = ""
    signatures_yaml: str = ""

    @property
    def chosen(self) -> CandidateFigures | None:
        """The candidate that is proposed."""
        return next((one for one in self.candidates if one.chosen), None)
