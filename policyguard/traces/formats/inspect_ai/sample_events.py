"""The events of an inspect_ai sample: the times of its calls and the model's usage."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

from policyguard.traces.parsing.json_shape import as_id, as_object, as_objects, as_string

_NESTING_TYPES = ("tool", "subtask")
"""The kinds of event that contain other events in older versions."""


class SampleEvents:
    """An index of a sample's events; `call_ids` are those of its messages, in order."""

    def __init__(self, events: object, call_ids: list[str]) -> None:
        flat = list(_flatten(events))
        model_events = [event for event in flat if event.get("event") == "model"]
        self._model_events = {_message_id(event): event for event in model_events}
        tool_events: dict[str, list[dict[str, Any]]] = {}
        for event in flat:
            if event.get("event") == "tool":
                tool_events.setdefault(as_id(event.get("id")), []).append(event)
        self._call_events: dict[str, deque[dict[str, Any]]] = {}
        self._open_events: dict[str, deque[dict[str, Any]]] = {}
        self._unmatched: list[dict[str, Any]] = []
        counts = Counter(call_ids)
        for id_, same_id in tool_events.items():
            extra = max(len(same_id) - counts[id_], 0)
            self._unmatched += same_id[:extra]
            # If several calls share an id and the counts differ, events cannot be matched.
            if len(same_id) == counts[id_] or counts[id_] == 1:
                self._call_events[id_] = deque(same_id[extra:])

    def model_event(self, message: str) -> dict[str, Any]:
        """Return the model's event for a message, or an empty one."""
        return self._model_events.get(message, {})

    def abandon_open_calls(self) -> None:
        """Forget calls without a result: the agent has moved on."""
        self._open_events.clear()

    def take_call_event(self, id_: str) -> dict[str, Any]:
        """Return the event of the next call with that id, or an empty one."""
        event = _take_next(self._call_events, id_)
        self._open_events.setdefault(id_, deque()).append(event)
        return event

    def take_result_event(self, id_: str) -> dict[str, Any]:
        """Return the event of the oldest open call with that id, or an empty one."""
        return _take_next(self._open_events, id_)

    def count_unmatched(self) -> Counter[str]:
        """Count the calls without a message, by tool: of other agents, or dropped."""
        return Counter(as_string(event.get("function")) for event in self._unmatched)


def _flatten(events: object) -> Iterator[dict[str, Any]]:
    waiting = as_objects(events)[::-1]
    while waiting:
        event = waiting.pop()
        yield event
        if event.get("event") in _NESTING_TYPES:
            waiting += as_objects(event.get("events"))[::-1]


def _take_next(events: dict[str, deque[dict[str, Any]]], id_: str) -> dict[str, Any]:
    waiting = events.get(id_)
    return waiting.popleft() if waiting else {}


def _message_id(event: dict[str, Any]) -> str:
    choices = as_objects(as_object(event.get("output")).get("choices"))
    return as_id(as_object(choices[0].get("message")).get("id")) if choices else ""
