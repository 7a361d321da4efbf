"""Who wants to know what happens: functions that are called with each event."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from policyguard.guard.warning import failed
from policyguard.model.event import Event

Listener = Callable[[Event], None]

_KINDS = get_args(Event)


class Listeners:
    """The listeners of a guard, in the order in which they came."""

    def __init__(self) -> None:
        self._all: tuple[tuple[Listener, tuple[type[Event], ...]], ...] = ()

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return bool(self._all)

    def add(self, listener: Listener, kinds: tuple[type[Event], ...]) -> Callable[[], None]:
        """Tell a listener of events of these kinds (none: of all). Returns what ends that."""
        if not callable(listener):
            raise TypeError(f"a listener is a function, not {listener!r:.40}")
        for kind in kinds:
            if kind not in _KINDS:
                raise TypeError(f"{kind!r:.40} is no class of `policyguard.model.event`")
        entry = (listener, kinds)
        self._all = (*self._all, entry)

        def off() -> None:
            self._all = tuple(one for one in self._all if one is not entry)

        return off

    def tell(self, event: Event) -> None:
        """Call each with the event. What one raises is logged, and keeps nobody from the others."""
        for listener, kinds in self._all:
            if kinds and not isinstance(event, kinds):
                continue
            try:
                listener(event)
            except Exception:  # noqa: BLE001 - whatever a stranger's function raises
                failed(f"a listener failed on {type(event).__name__}")
