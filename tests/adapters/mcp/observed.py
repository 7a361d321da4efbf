"""What a client of the SDK sees of a server: the same with the proxy and without."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters

MODERN = "2026-07-28"


async def observe(target: str | StdioServerParameters, mode: str) -> dict[str, Any]:
    """Use everything of the probe server, and return what came of it."""
    seen: dict[str, Any] = {}
    notes: list[str] = []

    async def on_message(message: Any) -> None:
        notes.append(type(getattr(message, "root", message)).__name__)

    async def on_form(_: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"ok": True})

    async def on_sample(_: Any, params: Any) -> types.CreateMessageResult:
        text = types.TextContent(type="text", text=f"{params.messages[0].content.text} yourself")
        return types.CreateMessageResult(role="assistant", content=text, model="none")

    async def on_roots(_: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri="file:///srv")])

    logged: list[str] = []

    async def on_log(params: Any) -> None:
        logged.append(f"{params.level} {params.data}")

    async with Client(
        target,
        mode=mode,
        message_handler=on_message,
        elicitation_callback=on_form,
        sampling_callback=on_sample,
        list_roots_callback=on_roots,
        logging_callback=on_log,
    ) as client:

        async def note(name: str, step: Callable[[], Awaitable[Any]]) -> None:
            try:
                with anyio.fail_after(20):
                    seen[name] = await step()
            except MCPError as error:
                seen[name] = (error.error.code, error.error.message, error.error.data)

        async def call(tool: str, **args: Any) -> Any:
            result = await client.call_tool(tool, args)
            return result.model_dump(mode="json", by_alias=True, exclude_none=True)

        async def progress() -> Any:
            steps: list[Any] = []

            async def on_progress(done: float, total: float | None, text: str | None) -> None:
                steps.append((done, total, text))

            await client.call_tool("slow", {"steps": 3}, progress_callback=on_progress)
            await anyio.sleep(0.05)
            return steps

        async def cancel() -> Any:
            with anyio.move_on_after(0.2):
                await client.call_tool("slow", {"steps": 777})
            for _ in range(100):
                text = str(await call("list_cancelled"))
                if "777" in text:
                    return text
                await anyio.sleep(0.02)
            return "never"

        async def parallel() -> Any:
            results: list[Any] = []

            async def one(number: int) -> None:
                results.append(await call("echo", text=f"parallel {number}"))

            async with anyio.create_task_group() as group:
                for number in range(8):
                    group.start_soon(one, number)
            return sorted(map(str, results))

        async def grow() -> Any:
            await call("grow")
            for _ in range(100):
                if mode == MODERN or "ToolListChangedNotification" in notes:
                    break
                await anyio.sleep(0.02)
            return sorted(tool.name for tool in (await client.list_tools()).tools)

        async def listen() -> Any:
            async with client.listen(tools_list_changed=True) as subscription:
                await call("grow")
                return str(await anext(aiter(subscription)))

        seen["version"] = client.protocol_version
        seen["capabilities"] = client.server_capabilities.model_dump(exclude_none=True)
        tools = (await client.list_tools()).tools
        seen["tools"] = [tool.model_dump(mode="json", exclude_none=True) for tool in tools]
        await note("add", lambda: call("add", a=1, b=2))
        await note("fail", lambda: call("fail", text="x"))
        await note("protocol_error", lambda: call("protocol_error"))
        await note("unknown", lambda: call("nope"))
        await note("invalid", lambda: call("add", a="x"))
        await note("progress", progress)
        await note("cancel", cancel)
        await note("parallel", parallel)
        await note("consent", lambda: call("consent"))
        if mode == MODERN:
            await note("consent_by_result", lambda: call("consent_by_result"))
            await note("listen", listen)
        else:
            await note("sample", lambda: call("sample"))
            await note("roots", lambda: call("roots"))
            await note("log", lambda: call("log"))
            seen["logged"] = logged
        await note("grow", grow)
        await note("resource", lambda: _dump(client.read_resource("probe://note")))
        await note("prompt", lambda: _dump(client.get_prompt("greet", {"name": "you"})))
        reference = types.PromptReference(name="greet")
        argument = {"name": "name", "value": "an"}
        await note("complete", lambda: _dump(client.complete(reference, argument)))
    return seen


async def _dump(answer: Awaitable[Any]) -> Any:
    return (await answer).model_dump(mode="json", by_alias=True, exclude_none=True)
