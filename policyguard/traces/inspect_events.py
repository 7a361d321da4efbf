"""The events of an inspect_ai sample: when its calls ran, and what its model used."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

from policyguard.traces.shape import as_id, as_object, as_objects, as_string

_AROUND = ("tool", "subtask")
"""The kinds of event that older versions put other events into."""


class Happened:
    """What happened in a sample; `called` are the ids of the calls in its messages, in order."""

    def __init__(self, events: object, called: list[str]) -> None:
        told = list(_all(events))
        self._answers = {_answer(event): event for event in told if event.get("event") == "model"}
        ran: dict[str, list[dict[str, Any]]] = {}
        for event in told:
            if event.get("event") == "tool":
                ran.setdefault(as_id(event.get("id")), []).append(event)
        self._calls: dict[str, deque[dict[str, Any]]] = {}
        self._open: dict[str, deque[dict[str, Any]]] = {}
        self._unsaid: list[dict[str, Any]] = []
        times = Counter(called)
        for id_, found in ran.items():
            more = max(len(found) - times[id_], 0)
            self._unsaid += found[:more]
            # Of many calls with one id, and more or fewer events, none is known to be whose.
            if len(found) == times[id_] or times[id_] == 1:
                self._calls[id_] = deque(found[more:])

    def answer(self, message: str) -> dict[str, Any]:
        """The event of the model that gave a message; empty where there is none."""
        return self._answers.get(message, {})

    def go_on(self) -> None:
        """The agent makes other calls: those still without a result have none."""
        self._open.clear()

    def call(self, id_: str) -> dict[str, Any]:
        """The event of the next call of that id; empty where there is none."""
        event = _next(self._calls, id_)
        self._open.setdefault(id_, deque()).append(event)
        return event

    def result(self, id_: str) -> dict[str, Any]:
        """The event of the oldest open call of that id; empty where there is none."""
        return _next(self._open, id_)

    def unsaid(self) -> Counter[str]:
        """How many calls, by tool, stand in no message: of other agents, or dropped from them."""
        return Counter(as_string(event.get("function")) for event in self._unsaid)


def _all(events: object) -> Iterator[dict[str, Any]]:
    """The events, and those in them, in order."""
    waiting = as_objects(events)[::-1]
    while waiting:
        event = waiting.pop()
        yield event
        if event.get("event") in _AROUND:
            waiting += as_objects(event.get("events"))[::-1]


def _next(events: dict[str, deque[dict[str, Any]]], id_: str) -> dict[str, Any]:
    waiting = events.get(id_)
    return waiting.popleft() if waiting else {}


def _answer(event: dict[str, Any]) -> str:
    """The id of the message that a call of the model gave."""
    choices = as_objects(as_object(event.get("output")).get("choices"))
    return as_id(as_object(choices[0].get("message")).get("id")) if choices else ""
