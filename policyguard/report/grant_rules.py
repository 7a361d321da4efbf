"""Proposed changes of rules whose questions are always answered with yes."""

from __future__ import annotations

import msgspec

from policyguard.report.escape import for_terminal, json_document
from policyguard.report.replay.figures import DirectionFigures


class GrantProposal(msgspec.Struct, frozen=True):
    """An `unless` for a rule: which calls it covers, and how many alike were approved."""

    rule: str
    covers: str
    condition: str
    approvals: int


class GrantSuggestion(msgspec.Struct):
    """Proposals, the layer that makes them, and its replay.

    `asked` counts calls that rules asked about, `approved` those among them that someone approved.
    `error` says why there is no replay.
    """

    asked: int
    approved: int
    proposals: list[GrantProposal]
    layer: str = ""
    newly_allowed: DirectionFigures = msgspec.field(default_factory=DirectionFigures)
    newly_refused: int = 0
    error: str = ""


def render_json(suggestion: GrantSuggestion) -> str:
    """Render a suggestion as JSON."""
    return json_document(msgspec.to_builtins(suggestion))


def render_text(suggestion: GrantSuggestion) -> str:
    """Render a suggestion as text: what is proposed, its replay, and the layer."""
    lines = [f"{suggestion.approved} of {suggestion.asked} calls that rules asked about: approved"]
    if not suggestion.proposals:
        return f"{lines[0]}; nothing to propose"
    lines += [
        f"  rules/{for_terminal(one.rule, 60)}: {one.approvals} approvals of "
        f"{for_terminal(one.covers, 200)}"
        for one in suggestion.proposals
    ]
    lines += ["", *_render_replay(suggestion), "", "the layer:", ""]
    lines += [for_terminal(line) for line in suggestion.layer.splitlines()]
    return "\n".join(lines)


def _render_replay(suggestion: GrantSuggestion) -> list[str]:
    if suggestion.error:
        return [f"not replayed: {suggestion.error}"]
    allowed = suggestion.newly_allowed
    lines = [f"replay: {allowed.calls} recorded attempts would newly be allowed"]
    for example in allowed.examples:
        args = for_terminal(example.call.args or "arguments not recorded", 120)
        tool = for_terminal(example.call.tool, 60)
        lines.append(f"  {for_terminal(example.session, 60)}: {tool} {args}")
    if suggestion.newly_refused:
        lines.append(f"  {suggestion.newly_refused} would newly be refused, as a consequence")
    return lines
