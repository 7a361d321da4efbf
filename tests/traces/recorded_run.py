"""One run as each format records it, with a header long before it and a note long after it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

BEGIN, END = 1, 7
"""Seconds after `EPOCH`: the user's message, and the agent's last one."""
EPOCH = 1767323040
DAY = 86_400


class RecordedCall(NamedTuple):
    id: str
    name: str
    args: dict[str, Any]
    at: int
    result_at: int
    ok: bool
    text: str
    server: str = ""

    @property
    def own_name(self) -> str:
        return self.name.removeprefix("mcp__fs__")


Run = list[RecordedCall]
Writer = Callable[[Run], tuple[str, Any]]


def make_run(kind: str) -> Run:
    """Return a call, then two parallel calls, of which the first fails.

    `kind`: how the host names the first, a tool of the MCP server `fs`; `plain`: there is none;
    `shell`: there is only one tool, and its commands.
    """
    if kind == "shell":
        names, args = ["bash"] * 3, [{"command": f"{word} x"} for word in ("cat", "rm", "ls")]
    else:
        first = {"full": "mcp__fs__read_file"}.get(kind, "read_file")
        names, args = [first, "bash", "grep"], [{"path": "a"}, {"command": "make"}, {"q": "b"}]
    server = "fs" if kind == "server" else ""
    return [
        RecordedCall("call_1", names[0], args[0], 2, 3, True, "one", server),
        RecordedCall("call_2", names[1], args[1], 4, 5, False, "two"),
        RecordedCall("call_3", names[2], args[2], 4, 6, True, "three"),
    ]


def nanoseconds(second: float) -> int:
    return int((EPOCH + second) * 1_000_000_000)


def iso(second: float) -> str:
    return datetime.fromtimestamp(EPOCH + second, UTC).isoformat().replace("+00:00", "Z")


def claude_code(run: Run) -> tuple[str, Any]:
    def line(kind: str, second: int, content: Any, **other: Any) -> dict[str, Any]:
        message = {"role": kind, "content": content, "id": f"m{second}"}
        return {
            "type": kind,
            "timestamp": iso(second),
            "sessionId": "s",
            "message": message,
        } | other

    def result(call: RecordedCall) -> dict[str, Any]:
        block = {"type": "tool_result", "tool_use_id": call.id, "content": call.text}
        return line("user", call.result_at, [block | ({} if call.ok else {"is_error": True})])

    uses = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.args} for call in run
    ]
    return "s.jsonl", [
        line("user", -DAY, "<command-name>/model</command-name>"),
        line("user", 1 - DAY, "<system-reminder>x", isMeta=True),
        line("user", BEGIN, "go"),
        line("assistant", 2, uses[:1]),
        result(run[0]),
        line("assistant", 4, uses[1:]),
        *map(result, run[1:]),
        line("assistant", END, [{"type": "text", "text": "done"}]),
        line("user", DAY, "<command-name>/exit</command-name>"),
    ]


def codex(run: Run) -> tuple[str, Any]:
    def line(second: int, payload: Any, kind: str = "response_item") -> dict[str, Any]:
        return {"timestamp": iso(second), "type": kind, "payload": payload}

    def message(second: int, role: str, text: str) -> dict[str, Any]:
        return line(second, {"type": "message", "role": role, "content": text})

    def called(call: RecordedCall) -> dict[str, Any]:
        text = json.dumps(call.args)
        payload = {"type": "function_call", "name": call.name, "arguments": text}
        return line(call.at, payload | {"call_id": call.id})

    def result(call: RecordedCall) -> dict[str, Any]:
        text = json.dumps({"output": call.text, "metadata": {"exit_code": 0 if call.ok else 1}})
        payload = {"type": "function_call_output", "call_id": call.id, "output": text}
        return line(call.result_at, payload)

    return "s.jsonl", [
        line(-DAY, {"id": "s", "timestamp": iso(-DAY), "cwd": "/repo"}, "session_meta"),
        message(-DAY, "user", "<environment_context>x"),
        message(BEGIN, "user", "go"),
        called(run[0]),
        result(run[0]),
        *map(called, run[1:]),
        *map(result, run[1:]),
        message(END, "assistant", "done"),
        line(DAY, {"model": "m"}, "turn_context"),
    ]


def copilot_cli(run: Run) -> tuple[str, Any]:
    def line(kind: str, second: int, **data: Any) -> dict[str, Any]:
        return {"type": kind, "timestamp": iso(second), "data": data}

    def called(call: RecordedCall) -> dict[str, Any]:
        mcp = {"mcpServerName": "fs", "mcpToolName": call.name} if call.server else {}
        name = f"fs-{call.name}" if call.server else call.name
        more = {"toolCallId": call.id, "toolName": name, "arguments": call.args} | mcp
        return line("tool.execution_start", call.at, **more)

    def result(call: RecordedCall) -> dict[str, Any]:
        more = {"toolCallId": call.id, "success": call.ok, "result": {"content": call.text}}
        return line("tool.execution_complete", call.result_at, **more)

    return "s.jsonl", [
        line("session.start", -DAY, sessionId="s", startTime=iso(-DAY)),
        line("session.model_change", 1 - DAY),
        line("user.message", BEGIN, content="go"),
        line("assistant.message", 2, content=""),
        called(run[0]),
        result(run[0]),
        line("assistant.message", 4, content=""),
        *map(called, run[1:]),
        *map(result, run[1:]),
        line("assistant.message", END, content="done"),
        line("session.info", DAY, message="idle"),
    ]


def gemini_cli(run: Run) -> tuple[str, Any]:
    def called(call: RecordedCall) -> dict[str, Any]:
        name = f"mcp_fs_{call.name}" if call.server else call.name
        shown = f"{call.name} (fs MCP Server)" if call.server else call.name
        response = {"output" if call.ok else "error": call.text}
        return {
            "id": call.id,
            "name": name,
            "displayName": shown,
            "args": call.args,
            "status": "success" if call.ok else "error",
            "timestamp": iso(call.result_at),
            "result": [{"functionResponse": {"id": call.id, "name": name, "response": response}}],
        }

    def message(second: int, kind: str, text: str, calls: Run) -> dict[str, Any]:
        calls_ = {"toolCalls": list(map(called, calls))} if calls else {}
        return {
            "id": f"m{second}",
            "timestamp": iso(second),
            "type": kind,
            "content": text,
        } | calls_

    return "s.json", {
        "sessionId": "s",
        "projectHash": "h",
        "startTime": iso(-DAY),
        "lastUpdated": iso(DAY),
        "messages": [
            message(-DAY, "info", "GEMINI.md created", []),
            message(BEGIN, "user", "go", []),
            message(2, "gemini", "", run[:1]),
            message(4, "gemini", "", run[1:]),
            message(END, "gemini", "done", []),
            message(DAY, "info", "a new version is available", []),
        ],
    }


def chat_completions(run: Run) -> tuple[str, Any]:
    def calls(part: Run) -> dict[str, Any]:
        functions = [{"name": call.name, "arguments": json.dumps(call.args)} for call in part]
        listed = [{"id": call.id, "function": f} for call, f in zip(part, functions, strict=True)]
        return {"role": "assistant", "content": "", "tool_calls": listed}

    def result(call: RecordedCall) -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": call.id, "content": call.text}

    return "s.json", [
        {"role": "user", "content": "go"},
        calls(run[:1]),
        result(run[0]),
        calls(run[1:]),
        *map(result, run[1:]),
        {"role": "assistant", "content": "done"},
    ]


def tau2(run: Run) -> tuple[str, Any]:
    def message(role: str, second: int, calls: Run) -> dict[str, Any]:
        listed = [
            {"id": call.id, "name": call.name, "arguments": call.args, "requestor": "assistant"}
            for call in calls
        ]
        return {"role": role, "content": "x", "tool_calls": listed, "timestamp": iso(second)}

    def result(call: RecordedCall) -> dict[str, Any]:
        answer = {"role": "tool", "id": call.id, "content": call.text, "requestor": "assistant"}
        return answer | {"error": not call.ok, "timestamp": iso(call.result_at)}

    return "s.json", {
        "id": "s",
        "task_id": "1",
        "start_time": iso(-DAY),
        "end_time": iso(END),
        "termination_reason": "user_stop",
        "messages": [
            message("user", BEGIN, []),
            message("assistant", 2, run[:1]),
            result(run[0]),
            message("assistant", 4, run[1:]),
            *map(result, run[1:]),
            message("assistant", END, []),
        ],
    }


def inspect_ai(run: Run) -> tuple[str, Any]:
    def model(id_: str, start: int, end: int) -> dict[str, Any]:
        output = {"choices": [{"message": {"id": id_}}]}
        return {"event": "model", "timestamp": iso(start), "completed": iso(end), "output": output}

    def tool(call: RecordedCall) -> dict[str, Any]:
        times = {"timestamp": iso(call.at), "completed": iso(call.result_at)}
        return {"event": "tool", "id": call.id, "function": call.name} | times

    def reply(id_: str, calls: Run) -> dict[str, Any]:
        listed = [{"id": call.id, "function": call.name, "arguments": call.args} for call in calls]
        return {"id": id_, "role": "assistant", "content": "", "tool_calls": listed}

    def result(call: RecordedCall) -> dict[str, Any]:
        error = {} if call.ok else {"error": {"type": "unknown", "message": call.text}}
        return {"role": "tool", "tool_call_id": call.id, "content": call.text} | error

    sample = {
        "id": "q",
        "epoch": 1,
        "started_at": iso(-DAY),
        "messages": [
            {"id": "u", "role": "user", "content": "go", "source": "input"},
            reply("m1", run[:1]),
            result(run[0]),
            reply("m2", run[1:]),
            *map(result, run[1:]),
            reply("m3", []),
        ],
        "events": [
            {"event": "span_begin", "type": "init", "name": "init", "timestamp": iso(-DAY)},
            model("m1", BEGIN, 2),
            tool(run[0]),
            model("m2", 3, 4),
            *map(tool, run[1:]),
            model("m3", 6, END),
            {"event": "score", "timestamp": iso(DAY)},
        ],
    }
    return "s.json", {"version": 2, "eval": {"task": "t"}, "plan": {}, "samples": [sample]}


def atif(run: Run) -> tuple[str, Any]:
    def step(second: int, source: str, calls: Run) -> dict[str, Any]:
        listed = [
            {"tool_call_id": call.id, "function_name": call.name, "arguments": call.args}
            for call in calls
        ]
        results = [{"source_call_id": call.id, "content": call.text} for call in calls]
        made = {"tool_calls": listed, "observation": {"results": results}} if calls else {}
        return {"timestamp": iso(second), "source": source, "message": "x"} | made

    steps = [
        step(-DAY, "system", []),
        step(BEGIN, "user", []),
        step(2, "agent", run[:1]),
        step(4, "agent", run[1:]),
        step(END, "agent", []),
        step(DAY, "system", []),
    ]
    return "s.json", {"schema_version": "ATIF-v1.5", "session_id": "s", "steps": steps}


def openhands(run: Run) -> tuple[str, Any]:
    events: list[dict[str, Any]] = []

    def add(second: int, source: str, **more: Any) -> int:
        events.append({"id": len(events), "timestamp": iso(second), "source": source} | more)
        return len(events) - 1

    def called(call: RecordedCall, response: str) -> int:
        metadata = {"function_name": call.name, "tool_call_id": call.id}
        metadata["model_response"] = {"id": response}  # type: ignore[assignment]
        more = {"action": "run", "args": call.args, "tool_call_metadata": metadata}
        return add(call.at, "agent", **more)

    def result(call: RecordedCall, cause: int) -> None:
        extras = {"metadata": {"exit_code": 0 if call.ok else 1}}
        more = {"observation": "run", "content": call.text, "extras": extras, "cause": cause}
        add(call.result_at, "agent", **more)

    add(-DAY, "agent", action="system", args={"content": "you are"})
    add(-DAY, "environment", observation="agent_state_changed", content="", extras={})
    add(BEGIN, "user", action="message", args={"content": "go"})
    result(run[0], called(run[0], "r1"))
    causes = [called(call, "r2") for call in run[1:]]
    for call, cause in zip(run[1:], causes, strict=True):
        result(call, cause)
    add(END, "agent", action="message", args={"content": "done"})
    add(DAY, "environment", observation="agent_state_changed", content="", extras={})
    return "s.json", events


def openhands_1(run: Run) -> tuple[str, Any]:
    def event(kind: str, second: int, source: str, **more: Any) -> dict[str, Any]:
        return {"kind": kind, "timestamp": iso(second), "source": source} | more

    def called(call: RecordedCall, response: str) -> dict[str, Any]:
        action = {"kind": "MCPToolAction", "data": call.args}
        more = {"tool_name": call.name, "tool_call_id": call.id, "llm_response_id": response}
        return event("ActionEvent", call.at, "agent", action=action, **more)

    def result(call: RecordedCall) -> dict[str, Any]:
        observation = {"content": call.text, "is_error": not call.ok}
        more = {"tool_call_id": call.id, "observation": observation}
        return event("ObservationEvent", call.result_at, "environment", **more)

    return "s.jsonl", [
        event("SystemPromptEvent", -DAY, "agent"),
        event("MessageEvent", BEGIN, "user"),
        called(run[0], "r1"),
        result(run[0]),
        *(called(call, "r2") for call in run[1:]),
        *map(result, run[1:]),
        event("MessageEvent", END, "agent"),
        event("ConversationStateUpdateEvent", DAY, "environment"),
    ]


def openclaw(run: Run) -> tuple[str, Any]:
    lines: list[dict[str, Any]] = []

    def add(kind: str, second: int, **more: Any) -> None:
        owner = {"sessionKey": "s", "seq": len(lines), "ts": (EPOCH + second) * 1000}
        lines.append({"type": kind} | owner | more)

    def result(call: RecordedCall) -> None:
        error = {} if call.ok else {"error": call.text}
        add("tool.end", call.result_at, toolName=call.name, success=call.ok, **error)

    add("message.in", -DAY, channel="telegram")
    add("agent.start", BEGIN)
    add("tool.start", 2, toolName=run[0].name, params=run[0].args)
    result(run[0])
    for call in run[1:]:
        add("tool.start", 4, toolName=call.name, params=call.args)
    for call in run[1:]:
        result(call)
    add("agent.end", END, success=True)
    add("message.out", DAY, channel="telegram")
    return "s.jsonl", lines


def otel(run: Run) -> tuple[str, Any]:
    def span(id_: str, start: int, end: int, **attributes: Any) -> dict[str, Any]:
        times = {"start_time": nanoseconds(start), "end_time": nanoseconds(end)}
        named = {"name": id_, "trace_id": "t", "span_id": id_, "parent_id": "agent"}
        status = {"status_code": attributes.pop("status", "UNSET")}
        listed = {key.replace("__", "."): value for key, value in attributes.items()}
        return named | times | {"status": status, "attributes": listed}

    def tool(call: RecordedCall) -> dict[str, Any]:
        more = {"gen_ai__operation__name": "execute_tool", "gen_ai__tool__name": call.name}
        more["gen_ai__tool__call__id"] = call.id
        more["gen_ai__tool__call__arguments"] = json.dumps(call.args)
        more["gen_ai__tool__call__result"] = call.text
        return span(call.id, call.at, call.result_at, status="OK" if call.ok else "ERROR", **more)

    return "s.json", {
        "spans": [
            span("connect", -DAY, 1 - DAY),
            span("create", -DAY, 1 - DAY, gen_ai__operation__name="create_agent"),
            span("agent", BEGIN, END, gen_ai__operation__name="invoke_agent"),
            *map(tool, run),
            span("evaluate", DAY, DAY + 1),
        ]
    }


def langfuse(run: Run) -> tuple[str, Any]:
    def observation(id_: str, kind: str, start: int, end: int, **more: Any) -> dict[str, Any]:
        times = {"startTime": iso(start), "endTime": iso(end)}
        return {"id": id_, "traceId": "t", "type": kind, "name": id_} | times | more

    def tool(call: RecordedCall) -> dict[str, Any]:
        level = "DEFAULT" if call.ok else "ERROR"
        contents = {"name": call.name, "input": call.args, "output": call.text, "level": level}
        made = observation(f"o{call.id}", "TOOL", call.at, call.result_at, **contents)
        return made | {"parentObservationId": "agent"}

    return "s.json", {
        "trace": {"id": "t"},
        "observations": [
            observation("connect", "SPAN", -DAY, 1 - DAY),
            observation("agent", "AGENT", BEGIN, END),
            *map(tool, run),
            observation("evaluate", "EVALUATOR", DAY, DAY + 1),
        ],
    }


def mini_swe_agent(run: Run) -> tuple[str, Any]:
    def reply(second: int, calls: Run) -> dict[str, Any]:
        actions = [{"command": call.args["command"], "tool_call_id": call.id} for call in calls]
        extra = {"timestamp": EPOCH + second, "actions": actions}
        return {"role": "assistant", "content": "", "extra": extra}

    def result(call: RecordedCall) -> dict[str, Any]:
        extra = {"timestamp": EPOCH + call.result_at, "returncode": 0 if call.ok else 1}
        return {"role": "tool", "tool_call_id": call.id, "content": call.text, "extra": extra}

    messages = [
        {"role": "system", "content": "x"},
        {"role": "user", "content": "go"},
        reply(2, run[:1]),
        result(run[0]),
        reply(4, run[1:]),
        *map(result, run[1:]),
        reply(END, []),
    ]
    return "s.traj.json", {"trajectory_format": "mini-swe-agent-1.1", "messages": messages}


def swe_agent(run: Run) -> tuple[str, Any]:
    steps = [
        {"action": call.args["command"], "observation": call.text, "response": ""} for call in run
    ]
    return "s.traj", {"trajectory": steps, "history": [], "info": {}}


def intercode(run: Run) -> tuple[str, Any]:
    history = {
        "actions": [call.args["command"] for call in run],
        "observations": [call.text for call in run],
        "valid_action": [call.ok for call in run],
    }
    return "s.json", {"0": {"environment": "ic_bash", "turn_history": history}}


TIMES = {"begin", "turn", "end", "call.at", "result.at"}
WRITERS: dict[str, tuple[Writer, str, set[str]]] = {
    "claude-code": (claude_code, "full", set()),
    "codex": (codex, "full", set()),
    # These hosts pass the tool's own name and its server, and record their own spelling too.
    "copilot-cli": (copilot_cli, "server", {"host_tool"}),
    "gemini-cli": (gemini_cli, "server", {"host_tool"}),
    "chat-completions": (chat_completions, "full", {*TIMES, "ok"}),
    "tau2": (tau2, "full", set()),
    "inspect-ai": (inspect_ai, "full", set()),
    "atif": (atif, "full", {"result.at", "ok"}),
    "openhands": (openhands, "plain", set()),
    "openhands 1": (openhands_1, "plain", set()),
    "openclaw": (openclaw, "plain", {"host_call", "text"}),
    "otel": (otel, "full", set()),
    "langfuse": (langfuse, "full", {"host_call", "ok"}),
    "mini-swe-agent": (mini_swe_agent, "shell", {"begin", "turn"}),
    "swe-agent": (swe_agent, "shell", {*TIMES, "host_call", "batch", "ok", "tool", "classes"}),
    "intercode": (intercode, "shell", {*TIMES, "host_call", "batch"}),
}
"""By format: the writer, the kind of run, and what its recordings lack or have otherwise.

An agent's name, user, roles, project, folder and tags are the host's alone.
"""
