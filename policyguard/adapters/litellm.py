"""LiteLLM's proxy: a guardrail that checks the tool calls in answers of models."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import suppress
from functools import partial
from typing import Any

from policyguard.adapters.calls import GuardedCall, as_result
from policyguard.adapters.extras import missing_extra
from policyguard.adapters.runs import AgentRuns, Usage
from policyguard.guard.event_loop import run_blocking
from policyguard.guard.guard import Guard
from policyguard.guard.session import Session

try:
    import litellm
    from fastapi import HTTPException
    from litellm.integrations.custom_guardrail import CustomGuardrail
except ModuleNotFoundError as error:
    raise missing_extra(error, "LiteLLM", "litellm") from None

_CACHE = ("prompt_tokens_details.cached_tokens", "cache_creation_input_tokens")
_COUNTS = ("prompt_tokens", "completion_tokens", *_CACHE)
_KNOWN_CALLS = 10_000
"""Calls that are remembered: those without a result, and of the others what became of it."""


class PolicyguardGuardrail(CustomGuardrail):
    """Refuses calls of models that a policy refuses, and strips tool calls from their answers.

    `policy` and `store` are as in `Guard.load`. A conversation is one session: that of the
    request's `litellm_session_id`, else that of its key.
    """

    def __init__(self, policy: str = "core", store: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.guard = Guard.load(policy, store=store)
        self._runs = AgentRuns(self.guard, _price)
        self._calls: OrderedDict[tuple[str, str], GuardedCall | str] = OrderedDict()

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: Any
    ) -> Any:
        """Record the results that a request brings, and decide on the call of the model."""
        session = await self._open(user_api_key_dict, data)
        messages = data.get("messages") or []
        for message in messages:
            if message.get("role") == "tool":
                await self._record(session, message)
        if messages and messages[-1].get("role") == "user":
            await run_blocking(self.guard, session.turn)
        asked = partial(session.preview, "model_call", {"model": data.get("model", "")})
        decision = await run_blocking(self.guard, asked)
        if not decision.allowed:
            is_spent = any(one.id.startswith("budgets/") for one in decision.violations)
            raise HTTPException(429 if is_spent else 403, detail=decision.message)
        return data

    async def async_post_call_success_hook(
        self, data: dict[str, Any], user_api_key_dict: Any, response: Any
    ) -> Any:
        """Count what the model used, and strip the tool calls that are refused."""
        session = await self._open(user_api_key_dict, data)
        counts = getattr(response, "usage", None)
        if counts is not None:
            usage = Usage.read(response.model or data.get("model"), counts, *_COUNTS)
            await run_blocking(self.guard, partial(self._runs.spend, session, usage))
        for choice in getattr(response, "choices", None) or ():
            message = choice.message
            calls = message.tool_calls or []
            refused = [await self._check(session, call, response.id) for call in calls]
            if any(refused):
                kept = [call for call, text in zip(calls, refused, strict=True) if not text]
                message.tool_calls = kept or None
                message.content = "\n\n".join(filter(None, (message.content, *refused)))
                choice.finish_reason = choice.finish_reason if kept else "stop"
        return response

    async def async_post_call_streaming_iterator_hook(
        self, user_api_key_dict: Any, response: Any, request_data: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        """Pass on text; hold back an answer from its first tool call on, until it is whole."""
        chunks: list[Any] = []
        held: list[Any] = []
        async for chunk in response:
            chunks.append(chunk)
            if held or any(choice.delta.tool_calls for choice in chunk.choices):
                held.append(chunk)
            else:
                yield chunk
        if not chunks:
            return
        whole: Any = litellm.stream_chunk_builder(chunks)
        before = _tool_calls(whole)
        whole = await self.async_post_call_success_hook(request_data, user_api_key_dict, whole)
        if _tool_calls(whole) == before:
            for chunk in held:
                yield chunk
            return
        last = held[-1].model_copy(deep=True)
        for choice, said in zip(last.choices, whole.choices, strict=False):
            calls = enumerate(said.message.tool_calls or [])
            choice.delta.tool_calls = [{"index": i, **call.model_dump()} for i, call in calls]
            choice.delta.content, choice.finish_reason = said.message.content, said.finish_reason
        yield last

    async def _check(self, session: Session, called: Any, batch: str) -> str:
        """Decide on a tool call; return what to say if it is refused."""
        args: Any = called.function.arguments or "{}"
        with suppress(ValueError):  # refused: it is no object
            args = json.loads(args)
        call = GuardedCall(session, called.function.name or "", args, batch=batch)
        decision = await call.acheck()
        if not decision.allowed:
            return decision.message
        self._calls[session.id, called.id] = call
        while len(self._calls) > _KNOWN_CALLS:
            self._calls.popitem(last=False)
        return ""

    async def _record(self, session: Session, message: dict[str, Any]) -> None:
        """Record a result once, and show the model what rules and advice made of it, each time."""
        key = session.id, message.get("tool_call_id", "")
        known = self._calls.get(key)
        if isinstance(known, GuardedCall):
            content = message.get("content") or ""
            end = await known.arecord(result=as_result(content, failed=False))
            known = self._calls[key] = end.text if end.is_changed else ""
        message["content"] = known or message.get("content")

    async def _open(self, key: Any, data: dict[str, Any]) -> Session:
        found = data.get("litellm_session_id") or (data.get("metadata") or {}).get("session_id")
        id_ = str(found or f"key-{key.token or key.user_id or 'none'}")
        opened = partial(self.guard.session, id_, user=key.user_id or "", project=key.team_id or "")
        return await run_blocking(self.guard, opened)


def _price(usage: Usage) -> float:
    """Return what an answer costs by LiteLLM's own list of prices, 0 for an unknown model."""
    names = ("prompt", "completion", "cache_read_input", "cache_creation_input")
    counts = dict(zip((f"{name}_tokens" for name in names), usage[1:], strict=True))
    try:
        return float(sum(litellm.cost_per_token(model=usage.model, **counts)))
    except Exception:  # noqa: BLE001 - it raises this for a model without a price
        return 0.0


def _tool_calls(response: Any) -> list[str]:
    return [call.id for choice in response.choices for call in choice.message.tool_calls or ()]
