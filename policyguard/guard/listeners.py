"""The host's functions that are called with events."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, get_args

from policyguard.guard.event_loop import is_async, running_loop
from policyguard.guard.host_log import log_failure, warn
from policyguard.model.event import Event

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task

Listener = Callable[[Any], Awaitable[None] | None]
"""Takes an event. An async one is awaited on the event loop, one event at a time."""

_EVENT_TYPES = get_args(Event)


class Listeners:
    """The listeners of a guard, in the order in which they were added."""

    def __init__(self) -> None:
        self._entries: tuple[tuple[Callable[[Event], object], tuple[type[Event], ...]], ...] = ()

    @property
    def has_listeners(self) -> bool:
        """Whether there is one."""
        return bool(self._entries)

    def add(self, listener: Listener, event_types: tuple[type[Event], ...]) -> Callable[[], None]:
        """Add a listener for events of these types (none: all). Returns what removes it."""
        if not callable(listener):
            raise TypeError(f"a listener is a function, not {listener!r:.40}")
        for event_type in event_types:
            if event_type not in _EVENT_TYPES:
                raise TypeError(f"{event_type!r:.40} is not an event class such as `Refused`")
        call = _AsyncListener(listener) if is_async(listener) else listener
        entry = (call, event_types)
        self._entries = (*self._entries, entry)

        def remove() -> None:
            self._entries = tuple(other for other in self._entries if other is not entry)

        return remove

    async def drain(self) -> None:
        """Wait until the async listeners of this event loop have taken all events so far."""
        for listener, _ in self._entries:
            if isinstance(listener, _AsyncListener):
                await listener.drain()

    def notify(self, event: Event) -> None:
        """Call each listener with the event. Their errors are logged."""
        for listener, event_types in self._entries:
            if event_types and not isinstance(event, event_types):
                continue
            try:
                listener(event)
            except Exception:  # noqa: BLE001 - the host's function may raise anything
                log_failure(f"a listener failed on {type(event).__name__}")


class _AsyncListener:
    """Awaits a listener with one event after the other, on the event loop of the caller."""

    def __init__(self, listener: Callable[[Any], Any]) -> None:
        self._listener = listener
        self._loop: AbstractEventLoop | None = running_loop()
        self._events: deque[Event] = deque()
        self._task: Task[None] | None = None

    def __call__(self, event: Event) -> None:
        loop = running_loop() or self._loop
        if loop is None or loop.is_closed():
            warn(f"an async listener missed {type(event).__name__}: no event loop is running")
            return
        self._loop = loop
        self._events.append(event)
        loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        if self._loop is not None and (self._task is None or self._task.done()):
            self._task = self._loop.create_task(self._run())

    async def drain(self) -> None:
        """Wait until all events so far are taken. Returns at once inside the listener itself."""
        import asyncio

        if self._loop is not asyncio.get_running_loop():
            return
        while self._events or (self._task is not None and not self._task.done()):
            self._start()
            if self._task is None or self._task is asyncio.current_task():
                return
            await asyncio.shield(self._task)

    async def _run(self) -> None:
        while self._events:
            event = self._events.popleft()
            try:
                await self._listener(event)
            except Exception:  # noqa: BLE001 - the host's function may raise anything
                log_failure(f"a listener failed on {type(event).__name__}")
