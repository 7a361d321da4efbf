"""Plays on drawn policies: what each step came to is what it was when it was written down.

`tests/cases/drawn_plays.txt` has a line for each step: its number, the session, what was done, what
was decided by which entries, and a checksum of all that was said and written into the journal.
After a change of behaviour that is wanted, run with `POLICYGUARD_PIN=1` and read the difference.
"""

from __future__ import annotations

import json
import os
import random
import re
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from policyguard.compiler import CompiledPolicy, compile_policy
from policyguard.model.diagnostic import PolicyError
from policyguard.store.protocol import Store
from tests.evaluator.drawn_policies import draw_policy
from tests.examples import examples
from tests.guard.play import RARE_STEPS, Play, in_file, in_memory, see_at_once

__all__ = ["see_at_once"]

pytestmark = pytest.mark.usefixtures("see_at_once")

FILE = Path(__file__).parents[1] / "cases" / "drawn_plays.txt"
SEEDS = range(200)
LENGTH = 60
RESULTS = (
    '["a", "b"]',
    '["b", "a"]',
    "took 3.1s",
    "took 4.2s",
    "no match for a",
    "no match for b",
    "Error: 5 of 7 done",
    "Error: 6 of 7 done",
    "x" * 300,
)
_EFFECT = re.compile(r'"effect": "(\w+)"')
_WARNING = re.compile(r', "errors": \[\{"id": "session/unreported"[^]]*\]')
"""Comes once for each time that a session is opened."""
_ENTRY = re.compile(r'"id": "((?:limits|budgets|rules|learn|radius|session|batch|result)[^"]*)"')


class HabitualPlay(Play):
    """A play of an agent that often does again what it has just done, with the same result."""

    kinds = (*["check"] * 30, *["record"] * 30, *["answer"] * 4, *RARE_STEPS, "close")

    def __init__(self, stores: tuple[Store, Store], policy: CompiledPolicy, seed: int) -> None:
        super().__init__(stores, seed, policy)
        self.latest = [super().new_call()]
        self.result = "done"

    def new_call(self) -> tuple[str, dict[str, Any]]:
        again = self.random.random() < 0.6
        call = self.pick(*self.latest) if again else super().new_call()
        self.latest = [*self.latest[-2:], call]
        return call

    def pick_call(self) -> tuple[str, Any]:
        return self.calls[-1] if self.random.random() < 0.8 else super().pick_call()

    def pick_result(self) -> str:
        if self.random.random() < 0.5:
            is_own = self.random.random() < 0.4
            self.result = self.pick(*RESULTS) if is_own else super().pick_result()
        return self.result


def draw_valid_policy(folder: Path, seed: int, without: str = "\n") -> CompiledPolicy:
    """Return the first valid one of those that are drawn, in which a text does not occur."""
    generator = random.Random(seed)  # noqa: S311 - no secret
    file = folder / "policy.yaml"
    while True:
        drawn = draw_policy(lambda *choices: choices[int(generator.random() * len(choices))])
        text = json.dumps(drawn)  # which is YAML
        if without in text:
            continue
        file.write_text(text)
        try:
            return compile_policy(file)
        except PolicyError:
            continue


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
