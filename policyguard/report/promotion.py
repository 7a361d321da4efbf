"""What an entry in observe mode would have refused, for the person who decides on it."""

from __future__ import annotations

import msgspec

from policyguard.report.escape import for_terminal, json_document

_MAX_SESSIONS = 20


class WouldBeRefusal(msgspec.Struct, frozen=True):
    """A session, and how many of its calls would have been refused."""

    session: str
    file: str
    calls: int
    success: bool | None


class PromotionFigures(msgspec.Struct):
    """The recorded runs, and those in which an entry would have refused a call.

    `redacted` counts calls whose arguments were not recorded.
    """

    entry: str
    sessions: int = 0
    calls: int = 0
    redacted: int = 0
    succeeded: int = 0
    failed: int = 0
    refusals: list[WouldBeRefusal] = []


def render_json(figures: PromotionFigures) -> str:
    """Render the figures as JSON."""
    return json_document(msgspec.to_builtins(figures))


def render_text(figures: PromotionFigures) -> str:
    """Render the figures as text."""
    refusals = figures.refusals
    calls = sum(one.calls for one in refusals)
    lines = [
        f"{for_terminal(figures.entry, 80)}: would have refused {calls} of {figures.calls} calls, "
        f"in {len(refusals)} of {figures.sessions} sessions"
    ]
    if figures.succeeded or figures.failed:
        harmed = sum(one.success is True for one in refusals)
        caught = sum(one.success is False for one in refusals)
        lines.append(
            f"  harm   {harmed} of {figures.succeeded} successful sessions\n"
            f"  catch  {caught} of {figures.failed} failed sessions"
        )
    else:
        lines.append("  harm   unknown: no session says whether it succeeded; pass --labels")
    if refusals:
        lines.append("  calls behind the first of a session are counterfactual")
    if figures.redacted:
        lines.append(
            f"  the arguments of {figures.redacted} calls were not recorded: what depends on them "
            "is not counted"
        )
    outcomes = {True: "succeeded", False: "failed", None: "outcome unknown"}
    ordered = sorted(refusals, key=lambda one: (one.success is not True, -one.calls))
    lines += [
        f"  {for_terminal(one.session, 60)}: {one.calls} "
        f"call{'' if one.calls == 1 else 's'}, {outcomes[one.success]}"
        for one in ordered[:_MAX_SESSIONS]
    ]
    if len(ordered) > _MAX_SESSIONS:
        lines.append(f"  and {len(ordered) - _MAX_SESSIONS} more sessions (--format json)")
    return "\n".join(lines)
