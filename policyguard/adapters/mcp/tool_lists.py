"""What the policy changes in a server's list of tools, and what is remembered of it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from policyguard.adapters.mcp.call_sessions import CallSession, CallSessions
from policyguard.adapters.mcp.list_request import AskServer, ListRequest
from policyguard.adapters.mcp.results import NOTES
from policyguard.evaluator.pins import PinJudge
from policyguard.guard.host_log import log_failure, warn
from policyguard.model.effect import Effect
from policyguard.model.pins import PinFinding
from policyguard.model.tool_name import join_tool_name
from policyguard.pins.book import UNKNOWN

_MAX_SHOWN = 5
"""Tools that one warning names."""

_MAX_NAME_CHARS = 64
"""Of a tool's name in a warning."""

_MAX_WARNINGS = 64
"""Warnings that are remembered, so as not to be repeated."""

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
        self._has_forgotten = False
        """Whether the list has more tools than are remembered."""
        self._is_known = False
        """Whether the server has listed its tools here, to the end."""
        self._warned: OrderedDict[str, None] = OrderedDict()
        self._request = ListRequest(lambda page, is_first: self.edit(page, None, is_first=is_first))

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

    def pinned_definition(self, tool: str) -> Mapping[str, Any] | None:
        """Return the definition by which a called tool is judged, empty if it is not listed.

        None if the policy pins nothing.
        """
        if self._pins is None:
            return None
        # Of a tool that may be listed nothing but its name is known.
        is_open = self._has_forgotten or not self._is_known
        return self._definitions.get(tool, UNKNOWN if is_open else {})

    async def learn(self, ask: AskServer | None, call: dict[str, Any]) -> None:
        """Ask the server for its tools if pins need them and no client has yet."""
        if ask is None or self._pins is None or self._is_known:
            return
        try:
            await self._request.run(ask, call)
        except Exception:  # noqa: BLE001 - the tools stay unknown, and the pins judge them so
            log_failure(f"the tools of `{self._server}` could not be listed")

    def edit(
        self, result: dict[str, Any], session: CallSession | None, *, is_first: bool = True
    ) -> dict[str, Any]:
        """Return the result of a `tools/list` as the client may see it; `is_first`: the first page.

        Without a session, which could not be opened, only the pins count.

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
            self._has_forgotten = False
        for tool in tools:
            self._remember(tool)
        findings, refused = self._judge_page(tools)
        if not result.get("nextCursor"):
            self._is_known = True
            findings += self._forget_others()
        self._warn(findings)
        if self._sessions.guard._mode.observe:
            return result
        names = {id(tool): join_tool_name(str(tool.get("name")), self._server) for tool in tools}
        disabled = {} if session is None else self._sessions.find_disabled(session, names.values())
        kept = [
            self._edit_schema(tool, session, names[id(tool)])
            for tool in tools
            if names[id(tool)] not in disabled and id(tool) not in refused
        ]
        unchanged = len(kept) == len(listed) and all(map(_is_same, kept, listed))
        if self._pins is not None:  # passed is what was judged: of a repeated key, the last
            return {**result, "tools": kept}
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
            forgotten, _ = self._definitions.popitem(last=False)
            self._has_forgotten |= forgotten in self._listed

    def _forget_others(self) -> list[PinFinding]:
        """Forget the tools that are not in the list, which has been read to its end.

        Return what is pinned of these.
        """
        for name in self._definitions.keys() - self._listed:
            del self._definitions[name]
        return [] if self._pins is None else [*self._pins.find_removed(self._server, self._listed)]

    def _judge(self, tool: dict[str, Any]) -> PinFinding | None:
        return None if self._pins is None else self._pins.judge(self._server, tool)

    def _judge_page(self, tools: list[dict[str, Any]]) -> tuple[list[PinFinding], set[int]]:
        """Judge a page of tools, each by the definition that is remembered.

        Return also the `id` of those whose every call is refused without a question.
        """
        findings: list[PinFinding] = []
        refused: set[int] = set()
        for tool in tools if self._pins is not None else ():
            name = tool.get("name")
            known = self._definitions.get(name) if isinstance(name, str) else None
            finding = self._judge(known or tool)
            if finding is None:
                continue
            findings.append(finding)
            if finding.effect >= Effect.BLOCK and self._pins is not None and not self._pins.observe:
                refused.add(id(tool))
        return findings, refused

    def _warn(self, findings: list[PinFinding]) -> None:
        """Tell the user of what was found, in one message and once."""
        if not findings:
            return
        shown = [
            f"{finding.tool[:_MAX_NAME_CHARS]!r} ({finding.text})"
            for finding in findings[:_MAX_SHOWN]
        ]
        if len(findings) > _MAX_SHOWN:
            shown.append(f"and {len(findings) - _MAX_SHOWN} more")
        text = f"tools of {self._server!r} are not as they were pinned: {', '.join(shown)}"
        if text not in self._warned:
            self._warned[text] = None
            if len(self._warned) > _MAX_WARNINGS:
                self._warned.popitem(last=False)
            warn(f"{text}; see `policyguard mcp diff`")

    def _edit_schema(
        self, tool: dict[str, Any], session: CallSession | None, name: str
    ) -> dict[str, Any]:
        schema = tool.get("outputSchema")
        if not isinstance(schema, dict) or session is None:
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
