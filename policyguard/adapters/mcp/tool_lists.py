"""What the policy changes in a server's list of tools, and what is remembered of it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from policyguard.adapters.mcp.call_sessions import CallSession, CallSessions
from policyguard.adapters.mcp.results import NOTES
from policyguard.evaluator.pins import PinJudge
from policyguard.guard.host_log import warn
from policyguard.model.effect import Effect
from policyguard.model.pins import PinFinding
from policyguard.model.tool_name import join_tool_name

_MAX_TOOLS = 4096
"""Tools of a server whose hints are remembered; the oldest are forgotten first."""

_HINTS = {
    "readOnlyHint": "read_only",
    "destructiveHint": "destructive",
    "idempotentHint": "idempotent",
    "openWorldHint": "open_world",
}
_NOTES_SCHEMA = {"type": "object", "description": "Notes of the policy on this call."}


class ToolList:
    """The tools of one server, as it lists them."""

    def __init__(self, server: str, sessions: CallSessions) -> None:
        self._server = server
        self._sessions = sessions
        self._pins: PinJudge | None = sessions.guard._evaluator.pins
        self._definitions: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._listed: set[str] = set()
        """The names in the list that is being read, page by page."""
        self._warned: OrderedDict[tuple[str, str], None] = OrderedDict()

    def hints_of(self, tool: str) -> dict[str, bool]:
        """Return the hints with which the server lists a tool."""
        annotations = self._definitions.get(tool, {}).get("annotations")
        if not isinstance(annotations, dict):
            return {}
        return {
            hint: annotations[key]
            for key, hint in _HINTS.items()
            if isinstance(annotations.get(key), bool)
        }

    def definition_of(self, tool: str) -> dict[str, Any] | None:
        """Return a tool as the server lists it, if it has done so."""
        return self._definitions.get(tool)

    def pinned_definition(self, tool: str) -> dict[str, Any] | None:
        """Return the definition by which a called tool is judged, empty if it is not listed.

        None if the policy pins nothing.
        """
        return None if self._pins is None else self._definitions.get(tool, {})

    def edit(
        self, result: dict[str, Any], session: CallSession, *, is_first: bool = True
    ) -> dict[str, Any]:
        """Return the result of a `tools/list` as the client may see it; `is_first`: the first page.

        Tools that are disabled are left out, and those whose calls the pins refuse. Where the
        policy may edit a tool's results, they need not match its output schema, which is left out,
        too: clients would reject what is redacted. A schema that allows no further members gets
        one for the notes of the policy.
        """
        listed = result.get("tools")
        if not isinstance(listed, list):
            return result
        tools = [tool for tool in listed if isinstance(tool, dict)]
        if is_first:
            self._listed.clear()
        for tool in tools:
            self._remember(tool)
        if not result.get("nextCursor"):
            self._forget_others()
        names = {id(tool): join_tool_name(str(tool.get("name")), self._server) for tool in tools}
        disabled = self._sessions.find_disabled(session, names.values())
        kept = [
            self._edit_schema(tool, session, names[id(tool)])
            for tool in tools
            if names[id(tool)] not in disabled and not self._is_refused(tool)
        ]
        unchanged = len(kept) == len(listed) and all(map(_is_same, kept, listed))
        return result if unchanged else {**result, "tools": kept}

    def _remember(self, tool: dict[str, Any]) -> None:
        name = tool.get("name")
        if not isinstance(name, str):
            return
        known = self._definitions.pop(name, None)
        if name in self._listed and known is not None and self._judge(tool) is None:
            tool = known  # of two definitions the one that is not as it was pinned
        self._listed.add(name)
        self._definitions[name] = tool
        if len(self._definitions) > _MAX_TOOLS:
            self._definitions.popitem(last=False)

    def _forget_others(self) -> None:
        """Forget the tools that are not in the list, which has been read to its end."""
        for name in self._definitions.keys() - self._listed:
            del self._definitions[name]
        if self._pins is not None:
            for finding in self._pins.find_removed(self._server, self._listed):
                self._warn(finding)

    def _judge(self, tool: dict[str, Any]) -> PinFinding | None:
        return None if self._pins is None else self._pins.judge(self._server, tool)

    def _is_refused(self, tool: dict[str, Any]) -> bool:
        """Whether every call of a tool is refused by how it was pinned, without a question."""
        name = tool.get("name")
        judged = self._definitions.get(name, tool) if isinstance(name, str) else tool
        finding = self._judge(judged)
        if finding is None or self._pins is None:
            return False
        self._warn(finding)
        return finding.effect >= Effect.BLOCK and not self._pins.observe

    def _warn(self, finding: PinFinding) -> None:
        """Tell the user of a finding, once."""
        key = finding.tool, finding.text
        if key not in self._warned:
            self._warned[key] = None
            if len(self._warned) > _MAX_TOOLS:
                self._warned.popitem(last=False)
            entries = ", ".join(violation.id for violation in finding.violations)
            warn(f"tool {finding.tool!r} of {finding.server!r}: {finding.text} ({entries})")

    def _edit_schema(self, tool: dict[str, Any], session: CallSession, name: str) -> dict[str, Any]:
        schema = tool.get("outputSchema")
        if not isinstance(schema, dict):
            return tool
        if self._sessions.may_edit_results(session, name):
            return {key: value for key, value in tool.items() if key != "outputSchema"}
        if schema.get("additionalProperties", True) is True and (
            schema.get("unevaluatedProperties", True) is True
        ):
            return tool
        properties = schema.get("properties")
        opened = {**(properties if isinstance(properties, dict) else {}), NOTES: _NOTES_SCHEMA}
        return {**tool, "outputSchema": {**schema, "properties": opened}}


def _is_same(kept: object, listed: object) -> bool:
    return kept is listed
