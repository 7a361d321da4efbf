"""CrewAI: a crew whose agents' tools are checked."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

from policyguard.adapters.calls import CallEnd, GuardedCall
from policyguard.adapters.extras import missing_extra
from policyguard.adapters.runs import AgentRuns, Price, Usage, halt_text, offer
from policyguard.guard.event_loop import run_blocking
from policyguard.guard.guard import Guard
from policyguard.guard.session import Session

try:
    from crewai import BaseLLM, Crew
    from crewai.tools import BaseTool
    from pydantic import ConfigDict, Field, PrivateAttr
except ModuleNotFoundError as error:
    raise missing_extra(error, "CrewAI", "crewai") from None

_COUNTS = ("prompt_tokens", "completion_tokens", "cached_prompt_tokens", "cache_creation_tokens")


class PolicyguardCrew(Crew):
    """A `Crew` whose tool calls are checked and recorded, also those of its delegations.

    Each kickoff is a turn, and has the session of the surrounding `with guard.session(...):` block,
    or one of its own. `price` returns what an answer of the model costs.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    guard: Guard = Field(exclude=True)
    price: Price | None = Field(default=None, exclude=True)
    _kickoff: _Kickoff = PrivateAttr()

    def kickoff(self, *args: Any, **kwargs: Any) -> Any:
        """Run the crew; see `Crew.kickoff`."""
        if self.stream:  # it calls this again, in a thread
            return super().kickoff(*args, **kwargs)
        self._kickoff = kickoff = _Kickoff(self)
        kickoff.session().turn()
        try:
            return super().kickoff(*args, **kwargs)
        finally:
            kickoff.end()

    async def akickoff(self, *args: Any, **kwargs: Any) -> Any:
        """Run the crew on the event loop; see `Crew.akickoff`."""
        if self.stream:
            return await super().akickoff(*args, **kwargs)
        self._kickoff = kickoff = _Kickoff(self)
        await run_blocking(self.guard, lambda: kickoff.session().turn())
        try:
            return await super().akickoff(*args, **kwargs)
        finally:
            await run_blocking(self.guard, kickoff.end)

    def copy(self) -> PolicyguardCrew:
        """Return a copy with the same guard; `kickoff_for_each` runs copies."""
        plain = super().copy()
        fields = {name: getattr(plain, name) for name in Crew.model_fields if name != "id"}
        return PolicyguardCrew(guard=self.guard, price=self.price, **fields)

    def _prepare_tools(self, agent: Any, task: Any, tools: Any) -> list[Any]:
        """Return the tools of a task, guarded. All: without any the agent's own would run."""
        tools = super()._prepare_tools(agent, task, tools)
        offer(self._kickoff.session(), (tool.name for tool in tools))
        return [_GuardedTool.wrap(tool, self._kickoff, agent) for tool in tools]


class _Kickoff:
    """One run of a crew: its session, and what its models have used so far."""

    def __init__(self, crew: PolicyguardCrew) -> None:
        self._runs = AgentRuns(crew.guard, crew.price)
        self._name = self._runs.name()
        self._agent = crew.name or ""
        self._lock = threading.Lock()
        models = [agent.llm for agent in crew.agents] + [crew.manager_llm]
        self._counted = {
            id(model): (model, model.get_token_usage_summary())
            for model in models
            if isinstance(model, BaseLLM)
        }

    def session(self) -> Session:
        return self._runs.open(self._name, self._agent)

    def count(self, session: Session, key: int) -> str | None:
        """Count what a model has used since it was asked last; return the id of its message."""
        with self._lock:
            if key not in self._counted:
                return None
            model, before = self._counted[key]
            now = model.get_token_usage_summary()
            self._counted[key] = model, now
        answers = now.successful_requests - before.successful_requests
        counts = {name: getattr(now, name, 0) - getattr(before, name, 0) for name in _COUNTS}
        for number in range(answers):
            share = {name: _share(total, answers, number) for name, total in counts.items()}
            self._runs.spend(session, Usage.read(model.model, share, *_COUNTS))
        return f"{key}-{now.successful_requests}" if now.successful_requests else None

    def end(self) -> None:
        """Count the last answers, and end the session."""
        session = self.session()
        for key in list(self._counted):
            self.count(session, key)
        self._runs.end(session)


class _GuardedTool(BaseTool):
    """A tool whose calls are checked. It has no cache: an answer from there would be no call."""

    _inner: Any = PrivateAttr()
    _kickoff: Any = PrivateAttr()
    _agent: Any = PrivateAttr()

    @classmethod
    def wrap(cls, inner: Any, kickoff: _Kickoff, agent: Any) -> _GuardedTool:
        kept = ("name", "description", "args_schema", "result_schema", "result_as_answer")
        fields = {name: getattr(inner, name) for name in kept}
        guarded = cls(**fields, cache_function=_never_cache)
        guarded._inner, guarded._kickoff, guarded._agent = inner, kickoff, agent
        return guarded

    def _run(self, **kwargs: Any) -> Any:
        kickoff: _Kickoff = self._kickoff
        session = kickoff.session()
        batch = kickoff.count(session, id(self._agent.llm))
        call = GuardedCall(session, self.name, kwargs, batch=batch)
        end: CallEnd = call.run(partial(self._inner.run, **kwargs))
        if halt_text(session):
            self.result_as_answer = True  # which ends the agent's task
        return end.text if end.failed or end.is_changed else end.value


def _never_cache(*_: Any) -> bool:
    return False


def _share(total: int, parts: int, number: int) -> int:
    """Return one of the parts of a total, which differ by at most one."""
    return total // parts + (number < total % parts)
