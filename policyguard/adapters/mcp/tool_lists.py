"""What the policy changes in a server's list of tools, and what is remembered of it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from policyguard.adapters.mcp.results import NOTES
from policyguard.guard.session import Session
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

    def __init__(self, server: str) -> None:
        self._server = server
        self._definitions: OrderedDict[str, dict[str, Any]] = OrderedDict()

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

    def edit(self, result: dict[str, Any], session: Session) -> dict[str, Any]:
        """Return the result of a `tools/list` as the client may see it.

        Tools that are disabled are left out. Where the policy may edit a tool's results, they need
        not match its output schema, which is left out, too: clients would reject what is redacted.
        A schema that allows no further members gets one for the notes of the policy.
        """
        listed = result.get("tools")
        if not isinstance(listed, list):
            return result
        tools = [tool for tool in listed if isinstance(tool, dict)]
        for tool in tools:
            self._remember(tool)
        names = {id(tool): join_tool_name(str(tool.get("name")), self._server) for tool in tools}
        disabled = session.find_disabled(names.values())
        kept = [
            self._edit_schema(tool, session, names[id(tool)])
            for tool in tools
            if names[id(tool)] not in disabled
        ]
        unchanged = len(kept) == len(listed) and all(map(_is_same, kept, listed))
        return result if unchanged else {**result, "tools": kept}

    def _remember(self, tool: dict[str, Any]) -> None:
        name = tool.get("name")
        if isinstance(name, str):
            self._definitions.pop(name, None)
            self._definitions[name] = tool
            if len(self._definitions) > _MAX_TOOLS:
                self._definitions.popitem(last=False)

    def _edit_schema(self, tool: dict[str, Any], session: Session, name: str) -> dict[str, Any]:
        schema = tool.get("outputSchema")
        if not isinstance(schema, dict):
            return tool
        if session.may_edit_results(name):
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
