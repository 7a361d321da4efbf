"""Tools that a host need not offer to the model, or not as they are: refused ones, edited ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from policyguard.evaluator.evaluator import Evaluator
from policyguard.evaluator.plan import Plan
from policyguard.evaluator.session_state import SessionState
from policyguard.model.tool_name import full_name_alias, parse_tool_name


def find_disabled_tools(
    evaluator: Evaluator, session: SessionState, tools: Iterable[str]
) -> dict[str, str]:
    """Return the disabled tools, as the model calls them, with the reason.

    They are those that limits have switched off, and of `tools` those that the policy never allows.
    """
    disabled = find_banned_tools(evaluator, session.agent, tools)
    for ban in session.bans.active.values():
        if (
            ban.limit.refuse_tool
            and not ban.limit.observe
            and _unwaivable(evaluator, (ban.limit.id,))
        ):
            disabled[ban.tool] = f"{ban.text} ({ban.limit.id}, {ban.duration_text})"
    return disabled


def find_banned_tools(evaluator: Evaluator, agent: str, tools: Iterable[str]) -> dict[str, str]:
    """Return those of the tools that the policy never allows an agent, with the reason."""
    bans = ((name, _find_ban(evaluator, agent, name)) for name in tools)
    return {name: f"{entry} refuses every call" for name, entry in bans if entry is not None}


def _find_ban(evaluator: Evaluator, agent: str, name: str) -> str | None:
    """Return the id of an entry that refuses every call of a tool, whatever its classes."""
    found: tuple[str, ...] | None = None
    for plan in _plans(evaluator, agent, name):
        bans = _unwaivable(evaluator, plan.find_bans())
        found = bans if found is None else tuple(id_ for id_ in found if id_ in bans)
        if not found:
            return None
    return found[0] if found else None


def may_edit_results(evaluator: Evaluator, agent: str, name: str) -> bool:
    """Whether a result rule that does more than advise covers some call of a tool."""
    return any(
        rule.effect != "advise" and not rule.observe
        for plan in _plans(evaluator, agent, name)
        for rule in plan.result_rules
    )


def _plans(evaluator: Evaluator, agent: str, name: str) -> Iterator[Plan]:
    """Return the plans of a tool's calls with the fewest and with all classes."""
    tool, server, host_tool = parse_tool_name(name)
    alias = full_name_alias(tool, server, host_tool)
    for classes in evaluator.candidates(tool, server, alias).extremes():
        yield evaluator.plan(tool, server, agent, classes, alias)


def _unwaivable(evaluator: Evaluator, ids: tuple[str, ...]) -> tuple[str, ...]:
    """Return the entries that no exception may waive for some call."""
    exceptions = evaluator.exceptions
    return ids if exceptions is None else tuple(id_ for id_ in ids if not exceptions.covers(id_))
