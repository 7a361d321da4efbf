"""The events of an inspect_ai sample: when its calls ran, and what its model used."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

from policyguard.traces.parsing.json_shape import as_id, as_object, as_objects, as_string

_NESTING_TYPES = ("tool", "subtask")
"""The kinds of event that older versions put other events into."""


class SampleEvents:
    """What happened in a sample; `called` are the ids of the calls in its messages, in order."""

    def __init__(self, events: object, call_ids: list[str]) -> None:
        told = list(_flatten(events))
        self._model_events = {
            _message_id(event): event for event in told if event.get("event") == "model"
        }
        ran: dict[str, list[dict[str, Any]]] = {}
        for event in told:
            if event.get("event") == "tool":
                ran.setdefault(as_id(event.get("id")), []).append(event)
        self._call_events: dict[str, deque[dict[str, Any]]] = {}
        self._open_events: dict[str, deque[dict[str, Any]]] = {}
        self._unmatched: list[dict[str, Any]] = []
        times = Counter(call_ids)
        for id_, found in ran.items():
            more = max(len(found) - times[id_], 0)
            self._unmatched += found[:more]
            # Of many calls with one id, and more or fewer events, none is known to be whose.
            if len(found) == times[id_] or times[id_] == 1:
                self._call_events[id_] = deque(found[more:])

    def model_event(self, message: str) -> dict[str, Any]:
        """The event of the model that gave a message; empty where there is none."""
        return self._model_events.get(message, {})

    def abandon_open_calls(self) -> None:
        """The agent makes other calls: those still without a result have none."""
        self._open_events.clear()

    def take_call_event(self, id_: str) -> dict[str, Any]:
        """The event of the next call of that id; empty where there is none."""
        event = _take_next(self._call_events, id_)
        self._open_events.setdefault(id_, deque()).append(event)
        return event

    def take_result_event(self, id_: str) -> dict[str, Any]:
        """The event of the oldest open call of that id; empty where there is none."""
        return _take_next(self._open_events, id_)

    def count_unmatched(self) -> Counter[str]:
        """How many calls, by tool, stand in no message: of other agents, or dropped from them."""
        return Counter(as_string(event.get("function")) for event in self._unmatched)


def _flatten(events: object) -> Iterator[dict[str, Any]]:
    """The events, and those in them, in order."""
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
    """The id of the message that a call of the model gave."""
    choices = as_objects(as_object(event.get("output")).get("choices"))
    return as_id(as_object(choices[0].get("message")).get("id")) if choices else ""
