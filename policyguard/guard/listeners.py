"""Who wants to know what happens: functions that are called with each event."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from policyguard.guard.host_log import log_failure
from policyguard.model.event import Event

Listener = Callable[[Event], None]

_EVENT_TYPES = get_args(Event)


class Listeners:
    """The listeners of a guard, in the order in which they came."""

    def __init__(self) -> None:
        self._entries: tuple[tuple[Listener, tuple[type[Event], ...]], ...] = ()

    @property
    def has_listeners(self) -> bool:
        """Whether there is one."""
        return bool(self._entries)

    def add(self, listener: Listener, event_types: tuple[type[Event], ...]) -> Callable[[], None]:
        """Tell a listener of events of these kinds (none: of all). Returns what ends that."""
        if not callable(listener):
            raise TypeError(f"a listener is a function, not {listener!r:.40}")
        for kind in event_types:
            if kind not in _EVENT_TYPES:
                raise TypeError(f"{kind!r:.40} is no class of `policyguard.model.event`")
        entry = (listener, event_types)
        self._entries = (*self._entries, entry)

        def off() -> None:
            self._entries = tuple(one for one in self._entries if one is not entry)

        return off

    def notify(self, event: Event) -> None:
        """Call each with the event. What one raises is logged, and keeps nobody from the others."""
        for listener, kinds in self._entries:
            if kinds and not isinstance(event, kinds):
                continue
            try:
                listener(event)
            except Exception:  # noqa: BLE001 - whatever a stranger's function raises
                log_failure(f"a listener failed on {type(event).__name__}")
