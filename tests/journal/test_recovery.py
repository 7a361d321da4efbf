"""A process may die at any byte: the next one goes on, and no honest chain fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from policyguard.journal.errors import AlteredError, JournalError
from policyguard.journal.verify import verify
from policyguard.model.event import Started, TurnStarted
from tests.journal.world import World, run


def codes(world: World) -> list[str]:
    return [one.code for one in verify([world.folder], anchors=world.anchors).findings]


def cut(world: World, size: int) -> None:
    path = world.journal.path_of("s")
    path.write_bytes(path.read_bytes()[:size])


def test_death_at_any_byte_after_the_anchor_is_repaired_and_reported(tmp_path: Path) -> None:
    for keep in range(1, 10_000):
        world = World(tmp_path / str(keep))
        world.write(*run(close=False))
        anchor = world.anchors.get("s")
        assert anchor is not None
        assert (anchor.count, len(world.lines())) == (8, 9)
        last = world.lines()[-1]
        if keep > len(last):
            break
        cut(world, anchor.size + keep)
        whole, torn = keep == len(last), keep < len(last)
        result = verify([world.folder], anchors=world.anchors)
        assert not result.has_failed
        assert [one.code for one in result.findings] == (
            ["journal/torn-line"] if torn else ["journal/unanchored"]
        )
        world.restart()
        world.write(TurnStarted("s"))
        adopted = whole or keep == len(last) - 1  # all but the line feed is there
        kept = run(close=False)[: 8 + adopted]
        assert list(world.journal.read_events("s")) == [*kept, TurnStarted("s")]
        said = ["journal/torn-line"] * torn + ["journal/unanchored"] * adopted
        assert [one.code for one in world.reported] == said
        assert codes(world) == []
    else:
        pytest.fail("the last line has no end")


def test_death_in_the_first_line(tmp_path: Path) -> None:
    whole = World(tmp_path / "whole")
    whole.write(Started("s"))
    size = len(whole.lines()[0])
    for keep in range(size):
        world = World(tmp_path / str(keep))
        world.write(Started("s"))
        cut(world, keep)
        assert not verify([world.folder], anchors=world.anchors).has_failed
        world.restart()
        world.write(TurnStarted("s"))
        first = [Started("s")] if keep == size - 1 else []
        assert list(world.journal.read_events("s")) == [*first, TurnStarted("s")]
        assert codes(world) == []


def test_what_was_cut_before_the_anchor_is_no_accident(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(*run())
    whole = world.journal.path_of("s").read_bytes()
    borders = [at + by for at in range(len(whole)) if whole[at : at + 1] == b"\n" for by in (0, 1)]
    for size in sorted({*range(0, len(whole), 37), *borders, len(whole) - 1} - {len(whole)}):
        cut(world, size)
        result = verify([world.folder], anchors=world.anchors)
        assert result.has_failed
        assert "journal/cut-tail" in [one.code for one in result.findings]
        world.restart()
        with pytest.raises(AlteredError, match=r"was altered: .*policyguard journal verify"):
            world.write(TurnStarted("s"))
        with pytest.raises(AlteredError, match="was altered"):
            list(world.journal.read_events("s"))
        assert world.journal.path_of("s").stat().st_size == size
        world.journal.path_of("s").write_bytes(whole)
    world.restart()
    world.write(TurnStarted("s"))


def test_a_file_that_was_taken_away_is_not_begun_anew(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(*run())
    world.journal.path_of("s").unlink()
    with pytest.raises(AlteredError):
        world.write(Started("s"))
    with pytest.raises(AlteredError):
        list(world.journal.read_events("s"))


def test_a_file_that_ends_otherwise_than_it_was_anchored(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(*run())
    path = world.journal.path_of("s")
    anchor = world.anchors.get("s")
    assert anchor is not None
    world.restart()
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    with pytest.raises(AlteredError, match=f"has 100 bytes where {len(whole)} were anchored"):
        world.write(TurnStarted("s"))
    other = World(tmp_path / "other")
    other.write(*run())  # a chain that holds, of the same size
    path.write_bytes(b"".join(other.lines()))
    assert path.stat().st_size == anchor.size
    with pytest.raises(AlteredError, match="line 10 is not the one that was anchored"):
        world.write(TurnStarted("s"))
    with pytest.raises(AlteredError, match="line 10 is not the one that was anchored"):
        list(world.journal.read_events("s"))


def test_unanchored_lines_are_adopted_only_where_the_chain_holds(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(*run(close=False)[:7])  # anchored up to the second
    good = world.lines()
    world.restart()
    path = world.journal.path_of("s")
    for bad in (
        [*good[:5], good[5].replace(b"read", b"wipe"), good[6]],
        [*good[:5], good[6]],
        [*good[:5], good[6], good[5]],
        [*good, good[6]],
        [*good, b"\n"],
        [*good, b'{"event":"closed","session":"s"}\n'],
    ):
        path.write_bytes(b"".join(bad))
        with pytest.raises(AlteredError, match="was altered: line"):
            world.write(TurnStarted("s"))
    path.write_bytes(b"".join(good))
    world.write(TurnStarted("s"))
    assert [one.code for one in world.reported] == ["journal/unanchored"]
    assert "5 lines" in world.reported[0].message


def test_without_an_anchor_the_whole_chain_is_followed(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(*run())
    world.anchors.delete("s")
    world.restart()
    world.write(TurnStarted("s"))
    assert len(list(world.journal.read_events("s"))) == 11
    world.restart()
    world.anchors.delete("s")
    lines = world.lines()
    lines[1] = lines[1].replace(b'"at":1', b'"at":2', 1)
    world.journal.path_of("s").write_bytes(b"".join(lines))
    with pytest.raises(AlteredError, match="line 2 is not as it was written"):
        world.write(TurnStarted("s"))


def test_opening_does_not_read_what_lies_before_the_anchor(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(*run())
    world.restart()
    path = world.journal.path_of("s")
    content = path.read_bytes()
    path.write_bytes(content.replace(b"pytest", b"python", 1))
    world.write(TurnStarted("s"))  # costs the same however long the journal is …
    assert codes(world) == ["journal/edited"]  # … and verify reads it all
    with pytest.raises(AlteredError):
        list(world.journal.read_events("s"))


def test_a_chain_goes_on_with_its_own_key_only(tmp_path: Path) -> None:
    world = World(tmp_path, key=b"k" * 32)
    world.write(Started("s"))
    world.restart()
    world.write(TurnStarted("s"))
    assert len(list(world.journal.read_events("s"))) == 2
    for key in (b"other", None):
        world.more["key"] = key
        world.restart()
        with pytest.raises(JournalError, match="begun with another key, or without one; give"):
            world.write(TurnStarted("s"))
