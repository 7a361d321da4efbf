"""smolagents: an agent whose tools are checked, whether the model calls them or writes code."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeVar

from policyguard.adapters.calls import CallEnd, GuardedCall
from policyguard.adapters.extras import missing_extra
from policyguard.adapters.runs import AgentRuns, Price, Usage, halt_text, offer
from policyguard.guard.guard import Guard
from policyguard.guard.session import Session

try:
    from smolagents import ActionStep, AgentError, CodeAgent, MultiStepAgent, PlanningStep
except ModuleNotFoundError as error:
    raise missing_extra(error, "smolagents", "smolagents") from None

_FINAL = "final_answer"
_COUNTS = ("token_usage.input_tokens", "token_usage.output_tokens")

Agent = TypeVar("Agent", bound=Any)


def guard_agent(agent: Agent, guard: Guard, *, price: Price | None = None) -> Agent:
    """Let an agent's tool calls be checked and recorded; return the agent.

    Its managed agents are tools too; guard them as well, so that they are sub-agents. Each `run` is
    a turn, and with `reset` another run. `price` returns what an answer of the model costs.
    """
    if not isinstance(agent, MultiStepAgent):
        raise TypeError(f"`agent` is an agent of smolagents, not {agent!r:.40}")
    guarded = _GuardedAgent(agent, AgentRuns(guard, price))
    agent.tools = {
        name: tool if name == _FINAL else _GuardedTool(tool, guarded)
        for name, tool in agent.tools.items()
    }
    agent.managed_agents = {
        name: _GuardedTool(one, guarded) for name, one in agent.managed_agents.items()
    }
    for step in (ActionStep, PlanningStep):
        agent.step_callbacks.register(step, guarded.count)
    agent.run = guarded.run
    return agent


class _GuardedAgent:
    """An agent's runs: the name of the latest, by which its session is found."""

    def __init__(self, agent: Any, runs: AgentRuns) -> None:
        self._agent = agent
        self._runs = runs
        self._run: Callable[..., Any] = agent.run
        self._name = ""

    def session(self) -> Session:
        return self._runs.open(self._name, self._agent.name or "")

    def run(self, *args: Any, reset: bool = True, **options: Any) -> Any:
        """Run the agent; see `MultiStepAgent.run`. A halt ends it with a text."""
        if reset or not self._name:
            self._name = self._runs.name()
        session = self.session()
        session.turn()
        named = {**self._agent.tools, **self._agent.managed_agents}
        offer(session, [name for name in named if name != _FINAL])
        start = partial(self._run, *args, reset=reset, **options)
        is_stream = options.get("stream") or args[1:2] == (True,)
        return self._stream(start) if is_stream else self._until_halted(start)

    def _until_halted(self, go: Callable[[], Any]) -> Any:
        try:
            return go()
        except AgentError:
            if text := halt_text(self.session()):
                return text
            raise

    def _stream(self, start: Callable[[], Any]) -> Generator[Any, None, None]:
        steps = self._until_halted(start)
        end = object()
        while (step := self._until_halted(partial(next, steps, end))) is not end:
            yield step
            if isinstance(step, str):  # what a halt ends it with
                return

    def count(self, step: Any) -> None:
        """Count what the model used for a step."""
        if step.token_usage is not None:
            model = getattr(self._agent.model, "model_id", None)
            self._runs.spend(self.session(), Usage.read(model, step, *_COUNTS))

    def call(self, tool: Any, args: Any, fn: Callable[[], Any]) -> Any:
        """Check a call, run it, and record its end."""
        agent, session = self._agent, self.session()
        batch = f"{self._name} {agent.step_number}" if hasattr(agent, "step_number") else None
        end = GuardedCall(session, tool.name, args, batch=batch).run(fn)
        if halt_text(session):
            agent.interrupt()
        if end.failed and isinstance(agent, CodeAgent):
            raise RuntimeError(end.text) from end.error  # code goes on with what it gets
        return self._write(end)

    @staticmethod
    def _write(end: CallEnd) -> Any:
        return end.text if end.failed or end.is_changed else end.value


class _GuardedTool:
    """A tool or managed agent whose calls are checked; all else is the inner one's."""

    def __init__(self, inner: Any, agent: _GuardedAgent) -> None:
        self._inner = inner
        self._agent = agent

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # a copy that is being made has none yet
            raise AttributeError(name)
        return getattr(self._inner, name)

    def __call__(self, *args: Any, sanitize_inputs_outputs: bool = False, **named: Any) -> Any:
        inner = self._inner
        options = {"sanitize_inputs_outputs": True} if sanitize_inputs_outputs else {}
        if len(args) == 1 and not named and isinstance(args[0], dict):
            named = args[0]
        else:
            named = {**dict(zip(inner.inputs, args, strict=False)), **named}
        return self._agent.call(inner, named, partial(inner, **named, **options))
