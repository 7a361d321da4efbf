"""A server with everything that a proxy can lose: `python probe_server.py [PORT]`."""

from __future__ import annotations

import sys
from typing import Any

import anyio
import mcp_types as types
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

server = MCPServer("probe", version="1", log_level="CRITICAL")
cancelled: list[int] = []


class Sum(BaseModel):
    """A structured result."""

    total: int
    note: str


class Consent(BaseModel):
    """What a form asks for."""

    ok: bool


@server.tool()
async def add(a: int, b: int) -> Sum:
    """Add two numbers."""
    return Sum(total=a + b, note="added")


@server.tool()
async def echo(text: str) -> str:
    """Return a text."""
    return text


@server.tool()
async def fail(text: str) -> str:
    """Raise an error."""
    raise ValueError(f"no such file: {text}")


@server.tool()
async def protocol_error() -> str:
    """Answer with a JSON-RPC error."""
    raise MCPError(-32011, "out of order", {"part": 7})


@server.tool()
async def slow(steps: int, ctx: Context[Any, Any]) -> str:
    """Report progress, step by step."""
    try:
        for step in range(steps):
            await ctx.report_progress(step + 1, steps, f"step {step + 1}")
            await anyio.sleep(0.02)
    except anyio.get_cancelled_exc_class():
        cancelled.append(steps)
        raise
    return f"{steps} steps"


@server.tool()
async def list_cancelled() -> str:
    """Say which slow calls were cancelled."""
    return str(cancelled)


@server.tool()
async def grow(ctx: Context[Any, Any]) -> str:
    """Offer another tool."""

    async def born() -> str:
        return "new"

    server.add_tool(born, name="born")
    await ctx.session.send_tool_list_changed()
    await ctx.notify_tools_changed()
    return "grown"


@server.tool()
async def consent(ctx: Context[Any, Any]) -> str:
    """Ask the user by a request of its own (sessions only)."""
    answer = await ctx.elicit("really?", Consent)
    return f"{answer.action} {getattr(answer, 'data', None)}"


@server.tool()
async def consent_by_result(ctx: Context[Any, Any]) -> str | types.InputRequiredResult:
    """Ask the user by a result (without sessions only)."""
    answers = ctx.input_responses
    if not answers:
        form = types.ElicitRequestFormParams(
            message="really?",
            requested_schema={"type": "object", "properties": {"ok": {"type": "boolean"}}},
        )
        request = types.ElicitRequest(params=form)
        return types.InputRequiredResult(input_requests={"own": request}, request_state="mine")
    return f"{ctx.request_state} {answers['own']}"


@server.tool()
async def sample(ctx: Context[Any, Any]) -> str:
    """Ask the client's model (sessions only)."""
    said = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="hi"))
    answer = await ctx.session.create_message([said], max_tokens=10)
    return str(getattr(answer.content, "text", answer))


@server.tool()
async def roots(ctx: Context[Any, Any]) -> str:
    """List the client's roots (sessions only)."""
    return ",".join(str(root.uri) for root in (await ctx.session.list_roots()).roots)


@server.tool()
async def log(ctx: Context[Any, Any]) -> str:
    """Log something."""
    await ctx.info("a line")
    return "logged"


@server.resource("probe://note")
def note() -> str:
    """A resource."""
    return "the note"


@server.prompt()
def greet(name: str) -> str:
    """A prompt."""
    return f"Greet {name}"


@server.completion()
async def complete(ref: Any, argument: types.CompletionArgument, context: Any) -> types.Completion:
    """Complete an argument."""
    return types.Completion(values=[f"{argument.value}!"])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
