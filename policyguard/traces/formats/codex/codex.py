"""Codex CLI rollouts, and the items of OpenAI's Responses API that they consist of.

A rollout has one JSON object per line, `{timestamp, type, payload}`, and one session per file. Bare
items come one per line, in a list, or in an object under `items`, `output` or `input`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from policyguard.model.event import SessionStarted
from policyguard.traces.containers.source import Sample, Source
from policyguard.traces.formats.codex import forks
from policyguard.traces.formats.codex.results import CallEnd, parse_end, parse_result
from policyguard.traces.item import Item, Skipped
from policyguard.traces.parsing.json_shape import as_amount, as_id, as_list, as_object, as_string
from policyguard.traces.parsing.measurements import from_iso
from policyguard.traces.parsing.message_content import as_arguments, as_text
from policyguard.traces.session_builder import ImportedCall, SessionBuilder

FORMAT = "codex"

_ENVELOPE_TYPES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
_BUILT_IN_TOOLS = {
    "local_shell_call": "local_shell",
    "shell_call": "shell",
    "apply_patch_call": "apply_patch",
    "computer_call": "computer",
}
"""The call types of tools that OpenAI defines and the client runs, each with its tool."""

_CALL_TYPES = ("function_call", "custom_tool_call", *_BUILT_IN_TOOLS)
_OUTPUT_TYPES = tuple(f"{call}_output" for call in _CALL_TYPES)
_HOSTED_CALL_TYPES = (
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_call",
)
_NESTED_END_TYPES = ("mcp_tool_call_end", "patch_apply_end")
"""Events for the tools that a script calls; the script itself is the only call."""
_LIST_KEYS = ("items", "output", "input")

_HARNESS_PREFIXES = (
    "<environment_context>",
    "<user_instructions>",
    "<permissions instructions>",
    "<turn_aborted>",
    "<subagent_notification>",
    "<user_shell_command>",
    "<INSTRUCTIONS>",
    "<skill>",
    "# AGENTS.md instructions",
)
"""How messages of role user begin that Codex writes."""


def detect(sample: Sample) -> bool:
    """Return whether a line is a rollout's, or an item is a call or its output."""
    listed = as_list(_listed_items(sample.document))
    return any(_is_typical(as_object(line)) for line in (*sample.records, *listed))


def _listed_items(document: object) -> object:
    if isinstance(document, list):
        return document
    return next((value for key in _LIST_KEYS if (value := as_object(document).get(key))), None)


def _is_typical(line: dict[str, Any]) -> bool:
    kind = as_string(line.get("type"))
    if kind in _ENVELOPE_TYPES:
        return isinstance(line.get("payload"), dict)
    return kind in (*_CALL_TYPES, *_OUTPUT_TYPES) and "call_id" in line


def read(source: Source) -> Iterator[Item]:
    """Yield the session of a file."""
    rollout = _RolloutReader(source)
    lines = source.items_or_lines(_listed_items(source.sample.document))
    for entry in forks.drop_parent_history(source.file, lines):
        if isinstance(entry, Skipped):
            yield entry
        else:
            yield from rollout.read_line(*entry)
    yield from rollout.finish()


class _RolloutReader:
    """A reader for one file, which emits the calls of a model's answer when it is complete."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._builder = SessionBuilder(
            source.file, SessionStarted(session=source.name, agent=FORMAT)
        )
        self._has_started = False
        self._pending_calls: list[ImportedCall] = []
        self._called_ids: set[str] = set()
        self._end_events: dict[str, CallEnd] = {}
        self._counted_tokens = 0

    def read_line(self, number: int | None, line: object) -> Iterator[Item]:
        """Yield the items that a line, or a bare item, completes."""
        record = as_object(line)
        at = from_iso(record.get("timestamp"))
        # A list of items may contain messages in the format of chat completions.
        kind = as_string(record.get("type")) or ("message" if "role" in record else "")
        payload = record.get("payload") if kind in _ENVELOPE_TYPES else {**record, "type": kind}
        if not isinstance(payload, dict) or not (kind or _is_old_header(record)):
            reason = "not a rollout line or item: expected an object with a `type`"
            yield Skipped(self._source.file, number, reason)
            return
        if not self._has_started:
            self._start(payload)
        if kind == "event_msg":
            yield from self._read_event(payload, at, number)
        elif kind not in ("session_meta", "turn_context", "compacted"):
            yield from self._read_item(payload, at, number)

    def finish(self) -> Iterator[Item]:
        """Yield the last items, at the end of the file."""
        if self._has_started:
            yield from self._flush_calls()
            yield from self._builder.close()

    def _start(self, payload: dict[str, Any]) -> None:
        self._has_started = True
        started = SessionStarted(
            session=self._source.name,
            agent=FORMAT,
            cwd=as_string(payload.get("cwd")),
        )
        self._builder = SessionBuilder(self._source.file, started)

    def _read_item(
        self, item: dict[str, Any], at: int | None, number: int | None
    ) -> Iterator[Item]:
        kind = as_string(item.get("type"))
        if kind in _CALL_TYPES:
            call = _parse_call(item, at)
            self._called_ids.add(call.id)
            self._pending_calls.append(call)
        elif kind in _OUTPUT_TYPES:
            yield from self._flush_calls()
            end = self._end_events.pop(as_id(item.get("call_id")), None)
            yield from self._builder.add_result(parse_result(item, end, at), number)
        elif kind == "message" and item.get("role") == "assistant":
            yield from self._builder.add_reply(at=at)
        elif kind == "message" and item.get("role") == "user":
            text = as_text(item.get("content")).strip()
            if text and not text.startswith(_HARNESS_PREFIXES):
                yield from self._flush_calls()
                self._builder.add_prompt(at)
        elif kind.endswith(("_call", "_call_output")) and kind not in _HOSTED_CALL_TYPES:
            yield Skipped(self._source.file, number, f"unknown kind of call `{kind}`")

    def _read_event(
        self, event: dict[str, Any], at: int | None, number: int | None
    ) -> Iterator[Item]:
        kind = as_string(event.get("type"))
        if kind == "token_count":
            tokens = self._new_tokens(as_object(event.get("info")))
            if tokens:
                yield from self._flush_calls()
                yield from self._builder.add_reply(tokens, at=at)
        elif kind == "user_message":
            yield from self._flush_calls()
            self._builder.add_prompt(at)
        else:
            end, call = parse_end(event), as_id(event.get("call_id"))
            if end is not None and call in self._called_ids:
                self._end_events[call] = end
            elif end is not None and kind in _NESTED_END_TYPES:
                yield Skipped(self._source.file, number, f"{kind} for unknown call `{call}`")

    def _new_tokens(self, info: dict[str, Any]) -> int:
        """Return the tokens since the last count; Codex writes a count several times.

        A fork continues its parent's count.
        """
        total = as_amount(as_object(info.get("total_token_usage")).get("total_tokens"))
        if total is None:
            return 0
        if not self._counted_tokens:
            last = as_amount(as_object(info.get("last_token_usage")).get("total_tokens"))
            self._counted_tokens = int(total) - int(total if last is None else last)
        tokens, self._counted_tokens = int(total) - self._counted_tokens, int(total)
        return max(tokens, 0)

    def _flush_calls(self) -> Iterator[Item]:
        calls, self._pending_calls = self._pending_calls, []
        yield from self._builder.add_calls(calls)


def _is_old_header(line: dict[str, Any]) -> bool:
    """Return whether a line is the header or a state mark of the oldest rollouts."""
    return "record_type" in line or "instructions" in line


def _server_prefix(item: dict[str, Any]) -> str:
    """Return the prefix for an MCP tool's name, which newer versions record separately."""
    server = as_string(item.get("namespace"))
    return f"{server.removesuffix('__')}__" if server.startswith("mcp__") else ""


def _parse_call(item: dict[str, Any], at: int | None) -> ImportedCall:
    kind = item["type"]
    if kind in _BUILT_IN_TOOLS:
        tool = _BUILT_IN_TOOLS[kind]
        keys = ("action", "operation", "actions")
        args = next((item[key] for key in keys if item.get(key)), None)
    else:
        tool = _server_prefix(item) + as_string(item.get("name"))
        args = item.get("arguments") if kind == "function_call" else item.get("input")
    name = as_id(item.get("call_id")) or as_id(item.get("id"))
    return ImportedCall(name, tool, as_arguments(args), at)
