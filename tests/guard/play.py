"""A play: random steps of two guards on one store, written down with all that they answered."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from policyguard import Guard, Session
from policyguard.compiler import CompiledPolicy
from policyguard.guard.budgets import shared
from policyguard.guard.learning import constraint_sync
from policyguard.model.constraint import Constraint
from policyguard.model.event import Event
from policyguard.store.memory.store import MemoryStore
from policyguard.store.protocol import Caps, Store
from policyguard.store.sqlite.store import SqliteStore

SECOND = 10**9
CAPS = Caps(constraints=50, grants=50, evidence=200, anchors=200)
OWNERS = {"s": 0, "t": 1, "u": 0}
"""Which of the two guards has a session."""
RESULTS = (
    "",
    "done",
    "done too",
    "lost 1",
    "lost 2",
    "down",
    "wait: 1 of 3",
    "pw-123 here",
    "fire",
)
RARE_STEPS = (
    "preview",
    "batch",
    "batch",
    "release",
    "turn",
    "turn",
    "spend",
    "grant",
    "mark",
    "wait",
    "wait",
    "wait",
    "close",
    "revoke",
    "look",
)
_RANDOM_ID = re.compile(r"(?:\b[a-z]?|(?<=\\u001[def]))[0-9a-f]{12,64}\b")
_IN_STEP = {"session", "fingerprint", "wall", "args", "tool", "policy", "at", "class"}
"""What of an event the step says already."""
_IN_MESSAGE = {"text", "instead", "reason", "time_budgets", "units", "allowed", "result", "timeout"}
"""What of a decision its message says."""
_LEFT_OUT = _IN_STEP | _IN_MESSAGE


@pytest.fixture
def see_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each guard see at once what another has written."""
    for module in (shared, constraint_sync):
        monkeypatch.setattr(module, "POLL_INTERVAL", -1.0)


def in_memory() -> tuple[Store, Store]:
    """Return one store, for both guards of a play."""
    store = MemoryStore(caps=CAPS)
    return store, store


def in_file(folder: Path) -> tuple[Store, Store]:
    """Return two stores of one file, which have journals."""
    file = folder / "store.db"
    return SqliteStore(file, caps=CAPS), SqliteStore(file, caps=CAPS)


class Play:
    """Two guards, their sessions, and the steps so far with what came of them."""

    kinds = (*["check"] * 10, *["record"] * 8, *["answer"] * 3, *RARE_STEPS)

    def __init__(
        self,
        stores: tuple[Store, Store],
        seed: int,
        policy: CompiledPolicy,
        candidate: CompiledPolicy | None = None,
        *,
        listens: bool = True,
    ) -> None:
        self.stores = stores
        self.now = 10**18
        self.random = random.Random(seed)  # noqa: S311 - no secret
        self.lines: list[str] = []
        self.names: dict[str, str] = {}
        self.events: list[Event] = []
        self.guards = [
            Guard(
                policy,
                clock=lambda: self.now,
                store=store,
                listener=self.events.append if listens else None,
                candidate=candidate,
            )
            for store in stores
        ]
        self.sessions: dict[str, Session] = {}
        self.calls: list[tuple[str, Any]] = []
        self.asked: list[tuple[str, Any]] = []

    def pick(self, *choices: Any) -> Any:
        """Return one of them; `random.random` gives the same numbers in all versions of Python."""
        return choices[int(self.random.random() * len(choices))]

    def session(self, name: str) -> Session:
        if name not in self.sessions:
            guard = self.guards[OWNERS[name]]
            parent = self.session("s") if name == "u" else None
            self.sessions[name] = guard.session(
                name,
                parent=parent,
                agent="b" if name == "u" else "a",
                user="ann",
                project="p",
                tags={"tier": "vip" if name == "t" else "free"},
            )
        return self.sessions[name]

    def step(self) -> None:
        """Take a step, and write down what came of it."""
        name = self.pick("s", "s", "s", "t", "t", "u")
        kind = self.pick(*self.kinds)
        self.events.clear()
        said: list[str] = [name, kind]
        try:
            found = getattr(self, f"do_{kind}")(name, said)
        except (ValueError, LookupError, RuntimeError) as error:
            found = f"{type(error).__name__}: {error}"
        events = "".join(f"\n    {self.plain(event)}" for event in self.events)
        self.lines.append(number_ids(f"{' '.join(said)}: {found}{events}", self.names))

    def do_check(self, name: str, said: list[str]) -> str:
        tool, args = self.new_call()
        batch = self.pick("", "", "", "one", "two") or None
        estimate = self.pick(None, None, {"cost": 1.0}, {"tokens": 90})
        said += [tool, json.dumps(args), str(batch), str(estimate)]
        decision = self.session(name).check(tool, args, batch=batch, estimate=estimate)
        self.keep(name, decision)
        return self.describe(decision)

    def do_preview(self, name: str, said: list[str]) -> str:
        tool, args = self.new_call()
        said += [tool, json.dumps(args)]
        return self.describe(self.session(name).preview(tool, args))

    def do_batch(self, name: str, said: list[str]) -> str:
        calls = [self.new_call() for _ in range(self.pick(2, 3))]
        said.append(json.dumps(calls))
        decisions = self.session(name).check_batch(calls, batch=f"batch {len(self.lines)}")
        for decision in decisions:
            self.keep(name, decision)
        return " | ".join(map(self.describe, decisions))

    def do_record(self, name: str, said: list[str]) -> str:
        if not self.calls:
            return ""
        name, decision = self.pick_call()
        if self.random.random() < 0.9:
            self.calls.remove((name, decision))
        text = self.pick_result()
        fields: dict[str, Any] = {"result": text}
        if text.startswith(("lost", "down")):
            fields["error"] = text
        fields["cost"] = self.pick(None, 0.2, 0.7)
        fields["tokens"] = self.pick(None, 10, 40)
        fields["score"] = self.pick(None, None, 1.0, 2.0)
        fields["meta"] = self.pick({}, {}, {"stuck": True}, {"infra": True})
        fields["duration"] = self.pick(None, None, 3.0)
        said += [name, decision.tool, json.dumps(fields)]
        recorded = self.sessions[name].record(decision, **fields)
        return f"{self.plain(recorded)} {recorded.text!r}"

    def do_answer(self, name: str, said: list[str]) -> str:
        if not self.asked:
            return ""
        name, decision = self.asked[int(self.random.random() * len(self.asked))]
        by, labels = self.pick("ann", "bo"), self.pick((), ("lead",), ("lead",))
        remember = self.pick(None, None, "call", "target", "tool", "prefix")
        scope = self.pick("session", "project")
        said += [name, decision.tool, by, str(labels)]
        if self.random.random() < 0.2:
            said.append("no")
            return str(self.sessions[name].deny(decision, by=by, labels=labels, message="not now"))
        said += [str(remember), scope]
        more = {} if remember is None else {"remember": remember, "scope": scope, "expires": 30}
        return str(self.sessions[name].approve(decision, by=by, labels=labels, **more))

    def do_release(self, name: str, said: list[str]) -> str:
        if not self.calls:
            return ""
        name, decision = self.calls.pop(int(self.random.random() * len(self.calls)))
        said += [name, decision.tool]
        self.sessions[name].release(decision)
        return ""

    def do_turn(self, name: str, said: list[str]) -> None:
        self.session(name).turn()

    def do_spend(self, name: str, said: list[str]) -> None:
        tokens, cost = self.pick(0, 20), self.pick(0.0, 0.3)
        said += [str(tokens), str(cost)]
        self.session(name).spend(tokens=tokens, cost=cost, model_calls=1)

    def do_grant(self, name: str, said: list[str]) -> None:
        budget = self.pick("calls", "money", "tokens", "sent", "people", "none")
        said.append(budget)
        self.session(name).grant(budget, self.pick(None, 1, 2), by="ann")

    def do_mark(self, name: str, said: list[str]) -> None:
        verb = self.pick("mark", "unmark")
        mark, key = self.pick(("tested", None), ("seen", "a"))
        said += [verb, mark]
        getattr(self.session(name), verb)(mark, key)

    def do_wait(self, name: str, said: list[str]) -> None:
        seconds = self.pick(1, 2, 5, 12, 40)
        said.append(str(seconds))
        self.now += seconds * SECOND

    def do_close(self, name: str, said: list[str]) -> None:
        # A parent that is rebuilt knows what its sub-agents charged, and no more of them.
        session = self.session(name)
        verb = self.pick("close", "close", "end") if name != "s" else "end"
        said.append(verb)
        closed = (name, "u") if name == "s" else (name,)
        if name == "s":
            self.session("u")  # or it ends with its parent only where there is no journal
        for owner, decision in self.calls:  # what they hold stays held where there is no journal
            if owner in closed:
                self.sessions[owner].release(decision)
        getattr(session, verb)()
        for one in closed:
            self.sessions.pop(one, None)
        self.calls = [one for one in self.calls if one[0] not in closed]
        self.asked = [one for one in self.asked if one[0] not in closed]

    def do_revoke(self, name: str, said: list[str]) -> str:
        guard = self.guards[OWNERS[name]]
        constraints = sorted(guard.constraints(), key=_by_content)
        known = [*(one.id for one in constraints), *(one.id for one in guard.grants())]
        return str(guard.revoke(self.pick(*known), by="bo")) if known else ""

    def do_look(self, name: str, said: list[str]) -> str:
        session, guard = self.session(name), self.guards[OWNERS[name]]
        seen = (
            session.disabled,
            session.halted_by,
            session.progress,
            sorted(session.in_flight),
            sorted(guard.constraints(), key=_by_content),
            guard.grants(),
            [(one.call, one.entries, one.approved_by) for one in guard.questions()],
        )
        return self.plain(seen)

    def new_call(self) -> tuple[str, dict[str, Any]]:
        tool = self.pick("read", "read", "edit", "poll", "send", "deploy", "test", "x")
        args: dict[str, Any] = {"path": self.pick(*"aaabbbc"), "n": self.pick(0, 1, 1, 3)}
        if self.random.random() < 0.02:
            args["path"] = "z"
        if self.random.random() < 0.2:
            args["paths"] = ["a", "b", "c", "d"][: self.pick(1, 2, 3, 4)]
        if self.random.random() < 0.2:
            args |= {"id": self.pick(1, 2), "rate": self.pick(1.0, 1.05, 1.3)}
        return tool, args

    def pick_call(self) -> tuple[str, Any]:
        """Return a call that runs."""
        return self.calls[int(self.random.random() * len(self.calls))]

    def pick_result(self) -> str:
        return str(self.pick(*RESULTS))

    def keep(self, name: str, decision: Any) -> None:
        if decision.allowed:
            self.calls.append((name, decision))
        elif decision.effect == "ask":
            self.asked = [*self.asked[-3:], (name, decision)]

    def describe(self, decision: Any) -> str:
        return f"{self.plain(decision)} {decision.message!r}"

    def go(self, steps: int) -> list[str]:
        """Take steps, and close all; return all that was written down."""
        for _ in range(steps):
            self.step()
        for guard in self.guards:
            guard.close()
        for store in self.stores:
            store.close()
        return self.lines

    def plain(self, value: Any) -> str:
        """Return a value as JSON, without what is empty and what the step says already."""
        return json.dumps(_without_empty(msgspec.to_builtins(value, enc_hook=str)))


def _by_content(constraint: Constraint) -> tuple[str, ...]:
    """Return what constraints are sorted by, since ids and keys are random."""
    scope, *_ = re.split(r"[\x00-\x1f]", constraint.scope)
    return scope, constraint.signature, constraint.error, *constraint.taught_by


def number_ids(text: str, names: dict[str, str]) -> str:
    """Number random ids in the order in which they are first seen; `names` has the known ones."""
    return _RANDOM_ID.sub(lambda found: names.setdefault(found[0], f"#{len(names) + 1}"), text)


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: _without_empty(item) for key, item in value.items() if key not in _LEFT_OUT}
        return {key: item for key, item in kept.items() if item not in (None, "", [], {}, False)}
    return [*map(_without_empty, value)] if isinstance(value, (list, tuple)) else value
