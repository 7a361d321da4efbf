"""Long plays of two guards on one store, written down with all that they answered.

A play is a row of random steps (calls, results, answers, turns, pauses, sub-agents, …) on a policy
with something of everything. `tests/cases/plays/*.txt` have each step and what came of it. After a
change of behaviour that is wanted, run with `POLICYGUARD_PIN=1` and read the difference.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from policyguard.compiler import compile_policy
from policyguard.store.protocol import Store
from tests.examples import examples, some
from tests.guard.play import CAPS, Play, in_file, in_memory, number_ids, see_at_once
from tests.store.postgres_server import Server, postgres

__all__ = ["postgres", "see_at_once"]

FOLDER = Path(__file__).parents[1] / "cases" / "plays"
LENGTH = 160
_OF_CHAIN = {"chain", "prev", "hash"}


def play(
    stores: tuple[Store, Store], seed: int, *, listens: bool = True, judges: bool = True
) -> list[str]:
    """Return the lines of a play, with a listener or without, and with a candidate or without."""
    policy, candidate = (
        compile_policy(FOLDER / f"{name}.yaml") for name in ("policy", "candidate")
    )
    played = Play(stores, seed, policy, candidate if judges else None, listens=listens)
    return "\n".join(played.go(LENGTH)).splitlines()


pytestmark = pytest.mark.usefixtures("see_at_once")


@pytest.mark.parametrize("seed", [1, 2])
def test_a_play_goes_as_it_was_written_down(seed: int) -> None:
    lines = play(in_memory(), seed)
    file = FOLDER / f"{seed}.txt"
    if os.environ.get("POLICYGUARD_PIN"):
        file.write_text("\n".join(lines) + "\n")
    assert lines == file.read_text().splitlines()


@pytest.mark.parametrize("seed", range(100, 100 + examples(200, 10)))
def test_a_play_goes_alike_with_a_store_and_journals(tmp_path: Path, seed: int) -> None:
    """Though sessions are rebuilt there from their journals."""
    assert play(in_file(tmp_path), seed) == play(in_memory(), seed)


@pytest.mark.parametrize("seed", some(range(300, 400), 25))
def test_a_play_leaves_the_same_journals_without_a_listener(tmp_path: Path, seed: int) -> None:
    """Where nobody listens, most lines are written without an event."""
    journals = []
    for listens in (True, False):
        names: dict[str, str] = {}
        folder = tmp_path / str(listens)
        folder.mkdir()
        play(in_file(folder), seed, listens=listens, judges=False)
        journals.append(
            {
                file.name: [
                    number_ids(_content(line), names) for line in file.read_text().splitlines()
                ]
                for file in sorted(folder.glob("journal/*.jsonl"))
            }
        )
    assert journals[0]
    assert journals[0] == journals[1]


def _content(line: str) -> str:
    """Return an event without what chains it to the one before."""
    event = json.loads(line)
    return json.dumps({key: event[key] for key in event if key not in _OF_CHAIN})


@pytest.mark.parametrize("seed", range(500, 500 + examples(60, 15)))
def test_a_play_goes_alike_on_two_hosts(
    tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    from policyguard.store.postgres.store import PostgresStore

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    address = postgres.new_address()
    one, two = (PostgresStore(address, caps=CAPS) for _ in range(2))
    assert play((one, two), seed) == play(in_memory(), seed)
