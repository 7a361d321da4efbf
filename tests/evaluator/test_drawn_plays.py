"""Plays on drawn policies: what each step came to is what it was when it was written down.

`tests/cases/drawn_plays.txt` has a line for each step: its number, the session, what was done, what
was decided by which entries, and a checksum of all that was said and written into the journal.
After a change of behaviour that is wanted, run with `POLICYGUARD_PIN=1` and read the difference.
"""

from __future__ import annotations

import os
import re
import zlib
from functools import lru_cache
from pathlib import Path

import pytest

from tests.evaluator.drawn_policies import draw_valid_policy
from tests.evaluator.habitual_play import HabitualPlay
from tests.examples import examples
from tests.guard.play import in_file, in_memory, see_at_once

__all__ = ["see_at_once"]

pytestmark = pytest.mark.usefixtures("see_at_once")

FILE = Path(__file__).parents[1] / "cases" / "drawn_plays.txt"
SEEDS = range(200)
LENGTH = 60
_EFFECT = re.compile(r'"effect": "(\w+)"')
_WARNING = re.compile(r', "errors": \[\{"id": "session/unreported"[^]]*\]')
"""Comes once for each time that a session is opened."""
_ENTRY = re.compile(r'"id": "((?:limits|budgets|rules|learn|radius|session|batch|result)[^"]*)"')


def summarize(step: str) -> str:
    """Return what was done and decided by what, and a checksum of the rest."""
    said, _, found = step.partition(": ")
    done = re.sub(r"[^\w ]", "", " ".join(said.split()[:3]))
    decided = " ".join(dict.fromkeys(_EFFECT.findall(found)[:1] + _ENTRY.findall(found)))
    return f"{done} -> {decided} {zlib.crc32(step.encode()):08x}"


@lru_cache
def read_plays() -> dict[str, list[str]]:
    """Return the lines of each play that was written down."""
    plays: dict[str, list[str]] = {}
    for line in FILE.read_text("utf-8").splitlines():
        if line.startswith("play "):
            plays[line] = lines = []
        else:
            lines.append(line)
    return plays


@pytest.mark.parametrize("seed", SEEDS)
def test_a_play_on_a_drawn_policy_goes_as_it_was_written_down(tmp_path: Path, seed: int) -> None:
    """In memory, or with a store and journals from which sessions are opened again."""
    policy = draw_valid_policy(tmp_path, seed)
    stores = in_file(tmp_path) if seed % 2 else in_memory()
    steps = HabitualPlay(stores, policy, seed).go(LENGTH)
    lines = [summarize(step) for step in steps]
    if os.environ.get("POLICYGUARD_PIN"):
        pin(f"play {seed}", lines)
    expected = read_plays()[f"play {seed}"]
    for step, line, was in zip(steps, lines, expected, strict=True):
        assert line == was, step


@pytest.mark.parametrize("seed", range(1000, 1000 + examples(200, 10)))
def test_a_play_on_a_drawn_policy_is_answered_alike_with_a_store_and_journals(
    tmp_path: Path, seed: int
) -> None:
    policy = draw_valid_policy(tmp_path, seed, without="call.previous")  # not in a journal
    answered = [
        [_WARNING.sub("", step.split("\n")[0]) for step in played.go(LENGTH)]
        for played in (
            HabitualPlay(stores, policy, seed) for stores in (in_memory(), in_file(tmp_path))
        )
    ]
    assert answered[0] == answered[1]


def pin(title: str, lines: list[str]) -> None:
    """Write a play down in the place of its earlier version."""
    plays = read_plays()
    plays[title] = lines
    text = "".join(f"{title}\n" + "".join(f"{line}\n" for line in plays[title]) for title in plays)
    FILE.write_text(text, "utf-8")
