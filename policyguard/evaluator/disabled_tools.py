"""Tools that a host need not offer to the model, since their calls would be refused."""

from __future__ import annotations

from policyguard.evaluator.evaluator import Evaluator
from policyguard.evaluator.session_state import SessionState
from policyguard.model.tool_name import full_name_alias, parse_tool_name


def find_disabled_tools(evaluator: Evaluator, session: SessionState) -> dict[str, str]:
    """Return the tools, as the model calls them, with the reason.

    They are those that limits have switched off, and of the tools that the agent is offered those
    that the policy never allows.
    """
    offered = session.offered.names if session.offered is not None else ()
    bans = ((name, _find_ban(evaluator, session.agent, name)) for name in offered)
    disabled = {name: f"{entry} refuses every call" for name, entry in bans if entry is not None}
    for ban in session.bans.active.values():
        if (
            ban.limit.refuse_tool
            and not ban.limit.observe
            and _unwaivable(evaluator, (ban.limit.id,))
        ):
            disabled[ban.tool] = f"{ban.text} ({ban.limit.id}, {ban.duration_text})"
    return disabled


def _find_ban(evaluator: Evaluator, agent: str, name: str) -> str | None:
    """Return the id of an entry that refuses every call of a tool, whatever its classes."""
    tool, server, host_tool = parse_tool_name(name)
    alias = full_name_alias(tool, server, host_tool)
    found: tuple[str, ...] | None = None
    for classes in evaluator.candidates(tool, server, alias).extremes():
        bans = _unwaivable(
            evaluator, evaluator.plan(tool, server, agent, classes, alias).find_bans()
        )
        found = bans if found is None else tuple(id_ for id_ in found if id_ in bans)
        if not found:
            return None
    return found[0] if found else None


def _unwaivable(evaluator: Evaluator, ids: tuple[str, ...]) -> tuple[str, ...]:
    """Return the entries that no exception may waive for some call."""
    exceptions = evaluator.exceptions
    return ids if exceptions is None else tuple(id_ for id_ in ids if not exceptions.covers(id_))
