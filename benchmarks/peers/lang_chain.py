"""LangChain: the hooks of two ToolCallLimitMiddleware, one for all tools and one for this tool."""

from __future__ import annotations

import time
from typing import Any

from langchain.agents.middleware import ToolCallLimitMiddleware
from langchain_core.messages import AIMessage

from benchmarks.peers.protocol import Run, Times, serve
from benchmarks.workload import Call

_NO_LIMIT = 10**9


def run() -> Run:
    limits = [
        ToolCallLimitMiddleware(thread_limit=_NO_LIMIT, run_limit=_NO_LIMIT),
        ToolCallLimitMiddleware(tool_name="search", thread_limit=_NO_LIMIT, run_limit=_NO_LIMIT),
    ]
    state: dict[str, Any] = {}
    clock = time.perf_counter_ns

    def block(calls: list[Call]) -> Times:
        elapsed = admitted = 0
        for call in calls:
            tool_call = {"name": call.tool, "args": call.args, "id": call.result}
            state["messages"] = [
                AIMessage("", tool_calls=[tool_call])
            ]  # the model's, not the guard's
            start = clock()
            refused = False
            for limit in limits:
                update = limit.after_model(state, None)
                state.update(update or {})
                refused = refused or "jump_to" in (update or {}) or "messages" in (update or {})
            elapsed += clock() - start
            admitted += not refused
        return Times(elapsed, None, admitted)

    return block


if __name__ == "__main__":
    serve("langchain", run())
