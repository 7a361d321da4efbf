"""Stories as recordings: what happened to somebody, and what a policy makes of it.

Each folder in `tests/cases/traces/` is named after what happened, and holds

- `policy.yaml`: what an operator would sensibly have had in place. Its first comment tells the
  story, its source, what `core` alone makes of it, and in one line how much gets `through`;
- `trace.jsonl` (or `trace.jsonl.gz`): the run, in policyguard's own form;
- `benign.jsonl`: the legitimate run next to it, of which every call must be allowed;
- `expected.jsonl`: each stretch of calls that are answered alike, and not with *allow*, by the ids
  of its first and last call; then the totals: of the run, of the benign one, and of both under
  `core` alone. To pin it anew, run with `POLICYGUARD_PIN=1` and read the difference; what the
  comment says of it is never pinned.

Both runs are replayed as `policyguard simulate` does: a refused call's result is not folded in,
nobody answers *ask*, and the agent does what it did, whatever it is told.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from policyguard import Decision, Effect
from policyguard.compiler import CompiledPolicy, compile_policy
from policyguard.guard.replay import ReplayGuard, ReplaySession
from policyguard.model.event import Admitted, Completed, Event, Refused, Spent, Started
from policyguard.model.outcome import Recorded
from policyguard.traces import Reader, Skipped

CASES = Path(__file__).parent.parent / "cases" / "traces"
STORIES = sorted(folder for folder in CASES.iterdir() if folder.is_dir())
FEWEST = 20
"""Calls that a legitimate run has at least."""
MOST = 40
"""Stretches that are pinned one by one; what follows is counted."""
THROUGH = re.compile(
    r"^# through: ([\d,]+) of ([\d,]+) calls(?:, \$(\d+\.\d\d) of \$(\d+\.\d\d))?$",
    re.MULTILINE,
)


class Answered(msgspec.Struct):
    """A call and what was said to it; `number` counts all calls of the recording from 1."""

    number: int
    session: str
    call: str
    decision: Decision


class Told:
    """What a policy said to a recording: to each call, and how much money went meanwhile.

    Money is what models and calls cost: `cost` in all as recorded, `spent` until the session was
    halted, the results of refused calls left out.
    """

    def __init__(self) -> None:
        self.answers: list[Answered] = []
        self.cost = 0.0
        self.spent = 0.0

    def stretches(self) -> Iterator[dict[str, Any]]:
        """Each stretch of one session's calls that are answered alike, and not with *allow*."""
        open_: dict[str, dict[str, Any]] = {}
        found = []
        for answer in self.answers:
            decision = answer.decision
            stretch = open_.get(answer.session)
            by = _entry(decision)
            if stretch is not None and (stretch["effect"], stretch["by"]) == (decision.effect, by):
                stretch["last"] = answer.call
                stretch["calls"] += 1
                continue
            stretch = {
                "session": answer.session,
                "first": answer.call,
                "last": answer.call,
                "calls": 1,
                "effect": decision.effect.value,
                "by": by,
            }
            open_[answer.session] = stretch
            found.append(stretch)
        yield from (stretch for stretch in found if stretch["effect"] != Effect.ALLOW)

    def pinned(self) -> Iterator[dict[str, Any]]:
        """The first stretches, and how many calls of which entry follow."""
        stretches = self.stretches()
        yield from itertools.islice(stretches, MOST)
        more: Counter[str] = Counter()
        for stretch in stretches:
            more[f"{stretch['effect']} by {stretch['by']}"] += stretch["calls"]
        if more:
            yield {"more": dict(sorted(more.items()))}

    def totals(self) -> dict[str, Any]:
        """How many calls were let through, which one was the first to be stopped, and the money."""
        refused = [answer for answer in self.answers if not answer.decision.allowed]
        halts = [answer for answer in refused if answer.decision.effect is Effect.HALT]
        return {
            "calls": len(self.answers),
            "admitted": len(self.answers) - len(refused),
            "refused": len(refused),
            "first_refused": refused[0].number if refused else None,
            "first_halted": halts[0].number if halts else None,
            "cost": round(self.cost, 2),
            "spent": round(self.spent, 2),
        }


def _entry(decision: Decision) -> str | None:
    """The entry that has most against the call; what was learned has another id each time."""
    if not decision.violations:
        return None
    id_ = decision.violations[0].id
    return "constraints" if id_.startswith("constraints/") else id_


@cache
def tell(policy_file: str | Path, recording: Path) -> Told:
    """Replay a recording under a policy."""
    compiled = compiled_policy(policy_file)
    guard = ReplayGuard(compiled)
    told = Told()
    sessions: dict[str, ReplaySession] = {}
    halted: set[str] = set()
    advised: dict[tuple[str, str], str] = {}
    for event in events(recording):
        session = sessions.get(event.session)
        if session is None:
            assert isinstance(event, Started), f"{event.session} is used before it starts"
            session = sessions[event.session] = guard.start_session(_tagged(event, compiled))
            continue
        said = session.apply(event)
        if isinstance(event, Admitted | Refused):
            assert isinstance(said, Decision)
            assert said.errors == ()
            told.answers.append(Answered(len(told.answers) + 1, session.id, event.call, said))
            if said.effect is Effect.HALT:
                halted.add(session.id)
            else:
                halted.discard(session.id)
            if said.effect is Effect.ADVISE and not event.batch:
                advised[session.id, event.call] = said.message
        elif isinstance(event, Completed):
            assert isinstance(said, Recorded)
            assert said.advice == advised.pop((session.id, event.call), said.advice)
            told.cost += event.cost or 0.0
            told.spent += (event.cost or 0.0) if said.counted else 0.0
        elif isinstance(event, Spent):
            told.cost += event.cost
            told.spent += 0.0 if session.id in halted else event.cost
    assert not advised, "a call that was advised on has no result to carry the advice"
    return told


def _tagged(event: Started, compiled: CompiledPolicy) -> Started:
    """The start of a session, with the tags that this policy knows, and its defaults."""
    declared = compiled.policy.tags
    known = {name: value for name, value in event.tags.items() if name in declared}
    return msgspec.structs.replace(event, tags=compiled.evaluator.check_tags(known))


def events(recording: Path) -> Iterator[Event]:
    """The events of a recording, each with its time, which never runs backwards in a session."""
    trace = Reader().read(recording)
    assert trace.format == "policyguard"
    latest: dict[str, int] = {}
    for item in trace:
        assert not isinstance(item, Skipped), item
        assert item.at is not None
        assert item.at >= latest.get(item.session, 0), f"{item} lies before what went before it"
        latest[item.session] = item.at
        yield item


def recording(folder: Path, name: str) -> Path:
    """A recording of a story, packed or not."""
    (found,) = folder.glob(f"{name}.jsonl*")
    return found


@cache
def compiled_policy(file: str | Path) -> CompiledPolicy:
    return compile_policy(file)


def ids(folder: Path) -> str:
    return folder.name


@pytest.mark.parametrize("folder", STORIES, ids=ids)
def test_a_story_goes_as_expected(folder: Path) -> None:
    policy, trace, benign = (
        folder / "policy.yaml",
        recording(folder, "trace"),
        recording(folder, "benign"),
    )
    told = tell(policy, trace)
    lines = [
        *told.pinned(),
        {"trace": told.totals()},
        {"benign": tell(policy, benign).totals()},
        {"trace under core alone": tell("core", trace).totals()},
        {"benign under core alone": tell("core", benign).totals()},
    ]
    found = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
    expected = folder / "expected.jsonl"
    if os.environ.get("POLICYGUARD_PIN"):
        expected.write_text(found, "utf-8")
    assert found.splitlines() == expected.read_text("utf-8").splitlines()


@pytest.mark.parametrize("folder", STORIES, ids=ids)
def test_what_happened_is_stopped(folder: Path) -> None:
    """And the comment says truly how much of it gets through."""
    comment = (folder / "policy.yaml").read_text("utf-8")
    for line in ("# story: ", "# source: http", "# core alone: "):
        assert line in comment
    totals = tell(folder / "policy.yaml", recording(folder, "trace")).totals()
    assert totals["refused"]
    claim = THROUGH.search(comment)
    assert claim is not None, "say `# through: N of M calls` in the comment"
    admitted, calls, spent, cost = (
        part and float(part.replace(",", "")) for part in claim.groups()
    )
    assert (admitted, calls) == (totals["admitted"], totals["calls"])
    if spent is not None:
        assert (spent, cost) == (totals["spent"], totals["cost"])


@pytest.mark.parametrize("folder", STORIES, ids=ids)
def test_what_is_legitimate_is_allowed(folder: Path) -> None:
    """Nothing of it is refused; after several failures alike, a piece of advice may come."""
    told = tell(folder / "policy.yaml", recording(folder, "benign"))
    assert [one for one in told.stretches() if one["effect"] != "advise"] == []
    assert len(told.answers) >= FEWEST
