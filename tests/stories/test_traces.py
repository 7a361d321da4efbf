"""Recorded stories: incidents that users reported, replayed under a policy.

Each folder in `tests/cases/traces/` is named after the incident, and holds

- `policy.yaml`: the policy that a careful operator would have had. Its first comment gives the
  story, its source, what `core` alone does, and on one line how many calls get `through`;
- `trace.jsonl` (or `trace.jsonl.gz`): the run, in policyguard's own format;
- `benign.jsonl`: a similar legitimate run, of which every call must be allowed;
- `expected.jsonl`: each series of calls with the same decision other than *allow*, by the ids of
  its first and last call; then the totals of both runs, under the policy and under `core` alone.
  `POLICYGUARD_PIN=1` writes it again: read the difference. The comment is never rewritten.

Both runs are replayed as `policyguard simulate` does: the result of a refused call is dropped, no
one answers *ask*, and the agent's calls stay the same whatever the decision.
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
from policyguard.model.event import Admitted, Completed, Event, Refused, SessionStarted, Spent
from policyguard.model.outcome import Recorded
from policyguard.traces import Reader, Skipped
from tests.examples import some

CASES = Path(__file__).parent.parent / "cases" / "traces"
STORIES = some(sorted(folder for folder in CASES.iterdir() if folder.is_dir()), 3)
FEWEST = 20
"""The minimum number of calls of a legitimate run."""
MAX_SERIES = 40
"""Series that are listed one by one; the rest are counted."""
THROUGH = re.compile(
    r"^# through: ([\d,]+) of ([\d,]+) calls(?:, \$(\d+\.\d\d) of \$(\d+\.\d\d))?$",
    re.MULTILINE,
)


class AnsweredCall(msgspec.Struct):
    """A call with its decision; `number` counts all calls of the recording from 1."""

    number: int
    session: str
    call: str
    decision: Decision


class ReplayedTrace:
    """The decisions of a policy on a recording, and the money spent meanwhile.

    Money is what models and calls cost: `cost` in all as recorded, `spent` until the session was
    halted, the results of refused calls left out.
    """

    def __init__(self) -> None:
        self.answers: list[AnsweredCall] = []
        self.cost = 0.0
        self.spent = 0.0

    def series_of_calls(self) -> Iterator[dict[str, Any]]:
        """Yield each series of a session's calls with the same answer other than *allow*."""
        open_: dict[str, dict[str, Any]] = {}
        found = []
        for answer in self.answers:
            decision = answer.decision
            series = open_.get(answer.session)
            by = _entry(decision)
            if series is not None and (series["effect"], series["by"]) == (decision.effect, by):
                series["last"] = answer.call
                series["calls"] += 1
                continue
            series = {
                "session": answer.session,
                "first": answer.call,
                "last": answer.call,
                "calls": 1,
                "effect": decision.effect.value,
                "by": by,
            }
            open_[answer.session] = series
            found.append(series)
        yield from (series for series in found if series["effect"] != Effect.ALLOW)

    def pinned(self) -> Iterator[dict[str, Any]]:
        """Yield the first series, and count the calls of the others by entry."""
        series_of_calls = self.series_of_calls()
        yield from itertools.islice(series_of_calls, MAX_SERIES)
        more: Counter[str] = Counter()
        for series in series_of_calls:
            more[f"{series['effect']} by {series['by']}"] += series["calls"]
        if more:
            yield {"more": dict(sorted(more.items()))}

    def totals(self) -> dict[str, Any]:
        """Count the admitted calls, and return the first refused one and the money."""
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
def replay(policy_file: str | Path, recording: Path) -> ReplayedTrace:
    """Replay a recording under a policy."""
    compiled = compiled_policy(policy_file)
    guard = ReplayGuard(compiled)
    replayed = ReplayedTrace()
    sessions: dict[str, ReplaySession] = {}
    halted: set[str] = set()
    advised: dict[tuple[str, str], str] = {}
    for event in events(recording):
        session = sessions.get(event.session)
        if session is None:
            assert isinstance(event, SessionStarted), f"{event.session} is used before it starts"
            session = sessions[event.session] = guard.start_session(_tagged(event, compiled))
            continue
        answer = session.apply(event)
        if isinstance(event, Admitted | Refused):
            assert isinstance(answer, Decision)
            assert answer.errors == ()
            replayed.answers.append(
                AnsweredCall(len(replayed.answers) + 1, session.id, event.call, answer)
            )
            if answer.effect is Effect.HALT:
                halted.add(session.id)
            else:
                halted.discard(session.id)
            if answer.effect is Effect.ADVISE and not event.batch:
                advised[session.id, event.call] = answer.message
        elif isinstance(event, Completed):
            assert isinstance(answer, Recorded)
            advice = advised.pop((session.id, event.call), answer.advice)
            # What is said of failures does not come with a success.
            assert answer.advice == advice or (
                answer.advice == "" and "failed" in advice and event.ok
            )
            replayed.cost += event.cost or 0.0
            replayed.spent += (event.cost or 0.0) if answer.counted else 0.0
        elif isinstance(event, Spent):
            replayed.cost += event.cost
            replayed.spent += 0.0 if session.id in halted else event.cost
    assert not advised, "a call that was advised on has no result to carry the advice"
    return replayed


def _tagged(event: SessionStarted, compiled: CompiledPolicy) -> SessionStarted:
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
    replayed = replay(policy, trace)
    lines = [
        *replayed.pinned(),
        {"trace": replayed.totals()},
        {"benign": replay(policy, benign).totals()},
        {"trace under core alone": replay("core", trace).totals()},
        {"benign under core alone": replay("core", benign).totals()},
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
    totals = replay(folder / "policy.yaml", recording(folder, "trace")).totals()
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
    replayed = replay(folder / "policy.yaml", recording(folder, "benign"))
    assert [one for one in replayed.series_of_calls() if one["effect"] != "advise"] == []
    assert len(replayed.answers) >= FEWEST
