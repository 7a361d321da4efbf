"""The server that the conformance suite asks for: `python conformance_server.py PORT`."""

from __future__ import annotations

import base64
import sys
from typing import Any

import anyio
import mcp_types as types
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel, Field

server = MCPServer("conformance", version="1", log_level="CRITICAL")
IMAGE = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
TEXT = types.TextContent(type="text", text="This is a simple text response for testing.")
PICTURE = types.ImageContent(type="image", data=IMAGE, mime_type="image/png")
EMBEDDED = types.EmbeddedResource(
    type="resource",
    resource=types.TextResourceContents(
        uri="test://embedded-resource", mime_type="text/plain", text="embedded"
    ),
)
Any_ = Context[Any, Any]


@server.tool(structured_output=False)
async def test_simple_text() -> Any:
    return [TEXT]


@server.tool(structured_output=False)
async def test_image_content() -> Any:
    return [PICTURE]


@server.tool(structured_output=False)
async def test_audio_content() -> Any:
    return [types.AudioContent(type="audio", data=IMAGE, mime_type="audio/wav")]


@server.tool(structured_output=False)
async def test_embedded_resource() -> Any:
    return [EMBEDDED]


@server.tool(structured_output=False)
async def test_multiple_content_types() -> Any:
    return [TEXT, PICTURE, EMBEDDED]


@server.tool()
async def test_tool_with_logging(ctx: Any_) -> str:
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.info(text)
        await anyio.sleep(0.05)
    return "logged"


@server.tool()
async def test_error_handling() -> str:
    raise ValueError("This tool intentionally returns an error for testing")


@server.tool()
async def test_tool_with_progress(ctx: Any_) -> str:
    for done in (0, 50, 100):
        await ctx.report_progress(done, 100)
        await anyio.sleep(0.05)
    return "done"


@server.tool()
async def test_sampling(prompt: str, ctx: Any_) -> str:
    said = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=prompt))
    answer = await ctx.session.create_message([said], max_tokens=100)
    return f"LLM response: {getattr(answer.content, 'text', '')}"


class Person(BaseModel):
    username: str = Field(description="User's response")
    email: str = Field(description="User's email address")


class Defaults(BaseModel):
    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    verified: bool = True


@server.tool()
async def test_elicitation(message: str, ctx: Any_) -> str:
    answer = await ctx.elicit(message, Person)
    return f"User response: {answer.action}"


@server.tool()
async def test_elicitation_sep1034_defaults(ctx: Any_) -> str:
    answer = await ctx.elicit("please", Defaults)
    return f"Elicitation completed: action={answer.action}"


@server.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    return base64.b64decode(IMAGE)


@server.resource("test://template/{id}/data", mime_type="application/json")
def template(id: str) -> str:  # noqa: A002 - the suite's name
    return f'{{"id": "{id}", "templateTest": true, "data": "Data for ID: {id}"}}'


@server.prompt()
def test_simple_prompt() -> str:
    return "This is a simple prompt for testing."


@server.prompt()
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.completion()
async def complete(ref: Any, argument: types.CompletionArgument, context: Any) -> types.Completion:
    return types.Completion(values=["paris", "park"], total=2, has_more=False)


if __name__ == "__main__":
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
