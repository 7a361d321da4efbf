"""The figures of `policyguard suggest`, in the shape of its JSON report.

Texts from recordings (examples, tools) are untrusted; each renderer escapes them.
"""

from __future__ import annotations

import msgspec

from policyguard.report.replay.figures import PolicyFigures, Share


class GroupFigures(msgspec.Struct):
    """Labelled runs, used to find candidates or held out to test them."""

    succeeded: int = 0
    failed: int = 0


class SettingChange(msgspec.Struct):
    """An entry that a candidate sets. `old` is empty if the policy lacks it."""

    entry: str
    new: dict[str, int | str] = msgspec.field(name="now")
    old: dict[str, int | str] = msgspec.field(name="was")


class OutcomeFigures(msgspec.Struct):
    """A policy's harm and catch over some runs.

    `unknown` counts undetermined successful runs, which count as refused.
    """

    harm: Share
    catch: Share
    unknown: int = 0


class CandidateFigures(msgspec.Struct):
    """A tested policy, in test order.

    `explored` is over the runs it was found with, and so is biased; `held_out` is over the others.
    `p_value` is the probability of so little harm if the true harm exceeds `max_harm`. `bound` is
    the upper bound of its harm, for all candidates at once. `unlabelled` are the refused sessions
    without a known outcome.
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
    """One setting of one entry, alone, over the exploration runs."""

    entry: str
    setting: dict[str, int | str]
    harm: int
    catch: int
    is_current: bool = msgspec.field(name="now")


class CurvePoint(msgspec.Struct):
    """The best catch for a given harm, over the exploration runs."""

    harm: Share
    catch: Share
    changes: list[SettingChange]


class SignatureProposal(msgspec.Struct):
    """A signature for unmatched errors. The examples are redacted and truncated."""

    id: str
    pattern: str
    hits: int
    sessions: int
    tool: str
    examples: list[str]


class UnproposedFigures(msgspec.Struct):
    """Errors without a proposed signature, the reason, and their number of clusters."""

    why: str
    clusters: int
    errors: int


class ErrorsFigures(msgspec.Struct):
    """Errors that the policy's signatures match, and others."""

    known: int = 0
    unknown: int = 0
    unproposed: list[UnproposedFigures] = []


class Suggestion(msgspec.Struct):
    """The whole report. `needed` is the least number of held-out successful runs for a guarantee.

    `guaranteed`: with a probability of at least `confidence` over the draw of runs like these, at
    most `max_harm` of the successful ones would have a call refused under the chosen candidate.
    `shared` are entries that span sessions, so that runs are not independent.
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
        """The proposed candidate."""
        return next((one for one in self.candidates if one.chosen), None)
