"""What the acceptance story says to every framework, and what it hears back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from policyguard import Guard
from policyguard.adapters.runs import Usage

Mode = Literal["sync", "async", "stream"]

USAGE = Usage("scripted", input=500, output=100, cache_read=300, cache_write=50)
"""What each answer of the scripted model uses."""


@dataclass(frozen=True)
class Call:
    """A call of a tool that the scripted model makes."""

    tool: str
    args: Mapping[str, Any] = field(default_factory=dict)


Script = list[list[Call] | str]
"""The model's answers: calls of one message, or a text."""


@dataclass(frozen=True)
class SubAgent:
    """A tool that is an agent; its script begins anew each time that it is called."""

    script: Script
    tools: Mapping[str, Callable[..., Any]]


Tools = Mapping[str, Callable[..., Any] | SubAgent]


@dataclass
class Ran:
    """How a run went: what the model saw of each call, its last text, what it was offered.

    If the framework asks its user, `resume` goes on with a yes or no.
    """

    results: list[tuple[str, str]]
    text: str
    offered: list[set[str]]
    resume: Callable[[bool], Ran] | None = None


class Framework(Protocol):
    """A framework that runs a script.

    `task` is the parameter of a tool that is an agent. `usage` is what an answer of the scripted
    model uses: `USAGE`, as far as the framework can say it. `estimates` are the modes in which the
    framework's own scripted model makes that up.
    """

    name: str
    distribution: str
    modes: tuple[Mode, ...]
    task: str
    estimates: tuple[Mode, ...]
    usage: Usage

    def run(
        self,
        guard: Guard | None,
        script: Script,
        tools: Tools,
        *,
        mode: Mode,
        run: str = "run",
        price: Any = None,
    ) -> Ran:
        """Run an agent whose session is `run`; without a guard the bare framework."""


@contextmanager
def open_event_loop() -> Iterator[None]:
    """Give the thread an event loop: what runs one by itself would leave it open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        yield
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def in_session(guard: Guard | None, run: str) -> AbstractContextManager[object]:
    """Return the block of a run in its session."""
    return nullcontext() if guard is None else guard.session(run)
