"""The runs of agents in frameworks: the session of each, and what its model uses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, cast
from uuid import uuid4
from weakref import WeakKeyDictionary

from policyguard.guard.guard import Guard
from policyguard.guard.session import Session
from policyguard.guard.sessions.lifetime import active_sessions


class Usage(NamedTuple):
    """The tokens of one answer of a model.

    `input` are all tokens that it read, also those from (`cache_read`) and to the cache
    (`cache_write`); `output` are all that it wrote.
    """

    model: str = ""
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    @classmethod
    def read(cls, model: str | None, counts: Any, *fields: str) -> Usage:
        """Read counts from a mapping or an object. `fields` are where each is: `details.cached`.

        What is missing there is 0.
        """
        return cls(model or "", *(_find(counts, field.split(".")) or 0 for field in fields))


def _find(found: Any, path: list[str]) -> Any:
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else getattr(found, name, None)
    return found


Price = Callable[[Usage], float]
"""Returns what an answer costs, in the currency of the budgets."""


class _Caller(NamedTuple):
    """The session whose tool runs, and the `with` block in which it was called."""

    session: Session
    block: Session | None


_UNNAMED = "unnamed-"
"""How the ids of runs begin to which neither host nor framework gives one."""

_caller: ContextVar[_Caller | None] = ContextVar("policyguard_caller", default=None)


class AgentRuns:
    """The runs of agents under a guard.

    A run in a `with guard.session(...):` block has the block's session. One that a guarded tool
    starts is a sub-agent: its session is a child of the caller's, and shares its budgets. Any other
    has a session of its own.
    """

    def __init__(self, guard: Guard, price: Price | None = None) -> None:
        if not isinstance(guard, Guard):
            raise TypeError(f"`guard` is a Guard, not {guard!r:.40}")
        self.guard = guard
        self._price = price

    def name(self, thread: str | None = None) -> str:
        """Return an id for a run that begins: that of its thread, where later runs go on with it.

        A sub-agent begins anew each time, even if its framework gives it the caller's thread.
        """
        return thread if thread and self._caller is None else f"{_UNNAMED}{uuid4().hex[:12]}"

    def open(self, run: str, agent: str = "") -> Session:
        """Return the session of a run, opened or resumed. Raises what `Guard.session` raises."""
        block, caller = _innermost(self.guard), self._caller
        if block is not None and (caller is None or block is not caller.block):
            return block
        if caller is None:
            return self.guard.session(run, agent=agent)
        parent = caller.session
        return self.guard.session(f"{parent.id}/{run}", parent=parent, agent=agent)

    def end(self, session: Session) -> None:
        """End a run that no later one can go on with."""
        if session.id.rpartition("/")[2].startswith(_UNNAMED):
            session.end()

    @property
    def _caller(self) -> _Caller | None:
        caller = _caller.get()
        return None if caller is None or caller.session.guard is not self.guard else caller

    def spend(self, session: Session, usage: Usage) -> None:
        """Count an answer of the model."""
        cost = self._price(usage) if self._price is not None else 0.0
        session.spend(tokens=usage.input + usage.output, cost=cost, model_calls=1)


def halt_text(session: Session) -> str:
    """Return what to tell the user of a run that is halted; empty for one that is not."""
    entry = session.halted_by
    return f"The run was halted by {entry}." if entry else ""


_offered: WeakKeyDictionary[Session, set[str]] = WeakKeyDictionary()
"""The tools of all agents of a session so far: they may run side by side, each with its own."""


def offer(session: Session, tools: Iterable[str]) -> Collection[str]:
    """Say which tools a model could have; return those that it need not be offered."""
    known = _offered.setdefault(session, set())
    known.update(tools)
    session.offer(sorted(known))
    return session.disabled


@contextmanager
def calling(session: Session) -> Iterator[None]:
    """Let agents that start in this block be sub-agents of a session."""
    leave = begin_calling(session)
    try:
        yield
    finally:
        leave()


def begin_calling(session: Session) -> Callable[[], None]:
    """Let agents that start from now on be sub-agents of a session; return what ends that."""
    before = _caller.get()
    _caller.set(_Caller(session, _innermost(session.guard)))

    def leave() -> None:
        _caller.set(before)

    return leave


def _innermost(guard: Guard) -> Session | None:
    """Return the session of the innermost `with` block of a guard."""
    blocks = (block for block in reversed(active_sessions.get()) if block.guard is guard)
    return cast("Session | None", next(blocks, None))
